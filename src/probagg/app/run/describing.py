"""What was done to the columns of a table, in words: one line per kind."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from probagg.app.run.transformers import Part
from probagg.data.tables import BOOLEAN, CATEGORY, COMMA, DATE, ISO, NUMBER, date_text
from probagg.svg import short

if TYPE_CHECKING:
    from probagg.app.run.preparation import Preparation

SHOWN = 6  # names in a line
SCALED = {
    "standard": "standardised (mean 0, standard deviation 1)",
    "robust": "scaled (median 0, interquartile range 1)",
    "none": "as they are",
}


def describe_preparation(
    made: Preparation, why_scaled: str, why_id: str, n_rows_left_out: int
) -> list[str]:
    """Return one line per kind of column, and one each for what was left out."""
    of_kind: defaultdict[str, list[Part]] = defaultdict(list)
    for part in made.parts:
        of_kind[part.kind].append(part)
    lines = []
    if made.id is not None:
        lines.append(f"id: {made.id or 'the first column'}, {why_id}")
    if parts := of_kind[NUMBER]:
        commas = [part.name for part in parts if part.style == COMMA]
        written = [f"decimal commas in {few(commas)}"] if commas else []
        lines.append(_line("numbers", parts, *written, *_filled(parts, "the median")))
    if parts := of_kind[DATE]:
        formats = [_words(style) for style in sorted({part.style for part in parts} - {"", ISO})]
        read = f"as days, read as {' and '.join(formats)}" if formats else "as days"
        lines.append(_line("dates", parts, read, *_filled(parts, "the median")))
    if parts := of_kind[BOOLEAN]:
        filled = _filled(parts, "the most frequent")
        lines.append(_line("booleans", parts, "as 0 and 1", *filled))
    if parts := of_kind[CATEGORY]:
        n = sum(len(part.categories) for part in parts)
        missing = sum(part.missing for part in parts)
        without = [f"{_count(missing, 'missing value')} in no category"] if missing else []
        lines.append(_line("categories", parts, f"one-hot encoded as {n} columns", *without))
    if of_kind[NUMBER] or of_kind[DATE]:
        what = " and ".join(f"{kind}s" for kind in (NUMBER, DATE) if of_kind[kind])
        lines.append(f"scale: {what} {SCALED[made.scaling]}, {why_scaled}")
    if made.left_out:
        lines.append(f"left out: {_by_reason(made.left_out)}")
    if n_rows_left_out:
        lines.append(f"left out: {_count(n_rows_left_out, 'row')} without a value (skipped.csv)")
    return lines


def _line(kind: str, parts: list[Part], *done: str) -> str:
    names = few([part.name for part in parts])
    return f"{kind}: {names}{' (' if done else ''}{'; '.join(done)}{')' if done else ''}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"


def _words(style: str) -> str:
    """Return a date format in words.

    >>> _words("%d.%m.%Y")
    'day.month.year'
    """
    for code, word in (("%d", "day"), ("%m", "month"), ("%b", "month"), ("%Y", "year")):
        style = style.replace(code, word)
    return style


def _filled(parts: list[Part], how: str) -> list[str]:
    missing, bad = sum(part.missing for part in parts), sum(part.unreadable for part in parts)
    texts = [part.name for part in parts if part.unreadable]
    what = f", {bad:,} of them texts in {few(texts)}" if bad else ""
    return [f"{_count(missing, 'missing value')} filled with {how}{what}"] if missing else []


def _by_reason(left_out: dict[str, str]) -> str:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, reason in left_out.items():
        names[reason].append(name or "the unnamed column")
    return "; ".join(f"{', '.join(found)} ({reason})" for reason, found in names.items())


def few(names: Sequence[str]) -> str:
    """Return names in a line, of many only the first.

    >>> few(["a", "b"]), few(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e and 3 more')
    """
    if len(names) <= SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: SHOWN - 1])} and {len(names) - SHOWN + 1} more"


def describe_column(part: Part, scaling: str) -> str:
    """Return what was done to one column, with its numbers."""
    done = []
    if part.kind == CATEGORY:
        done.append(f"one-hot encoded: {', '.join(part.categories)}")
        if part.missing:
            done.append(f"{part.missing:,} missing are no category")
        return "; ".join(done)
    if part.kind == BOOLEAN:
        done.append("as 0 and 1")
    elif scaling == "none":
        done.append("as days" if part.kind == DATE else "as it is")
    else:
        center, scale = _amount(part.center, part), short(part.scale)
        unit = " days" if part.kind == DATE else ""
        words = ("mean", "standard deviation") if scaling == "standard" else ("median", "IQR")
        done.append(f"minus the {words[0]} {center}, divided by the {words[1]} {scale}{unit}")
    if part.missing:
        bad = f" ({part.unreadable:,} texts)" if part.unreadable else ""
        done.append(f"{part.missing:,} missing{bad} filled with {_amount(part.fill, part)}")
    return "; ".join(done)


def _amount(value: float, part: Part) -> str:
    if part.kind == DATE:
        return date_text(math.floor(value))
    return short(value)
