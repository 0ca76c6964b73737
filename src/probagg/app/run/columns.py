"""What becomes of each column of a table: an id, numbers to cluster, or nothing, and in words."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from probagg.data.tables import (
    BOOLEAN,
    CATEGORY,
    COMMA,
    DATE,
    ISO,
    NUMBER,
    OTHER,
    TEXT,
    Column,
    Table,
    date_text,
)
from probagg.errors import InputError, NoData, did_you_mean
from probagg.svg import short

# A column of text with more different values is left out, and so is any column of which more than
# this share is missing.
MOST_CATEGORIES = 20
MOST_MISSING = 0.5
_IDS = re.compile(r"(^|[ _.-])(id|key|uuid|guid|index)$|^(row|name)$|[a-z](ID|Id)$", re.IGNORECASE)
NO_CATEGORY = -1.0  # the code of a missing or unseen category: a row of zeros
SHOWN = 6  # names in a line
SCALED = {
    "standard": "standardised (mean 0, standard deviation 1)",
    "robust": "scaled (median 0, interquartile range 1)",
    "none": "as they are",
}


@dataclass(frozen=True)
class Roles:
    """The columns to cluster, the id of each row, and the columns left out with their reasons."""

    id: str | None
    why_id: str
    used: list[Column] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def assign_roles(
    table: Table, id: str | None = None, drop: Sequence[str] = (), classes: str | None = None
) -> Roles:
    """Return what becomes of each column; where none can be used, the error names all of them.

    The cells of the table are read as what they contain (`Table.read`).
    """
    check_names(table, [*([] if id is None else [id]), *drop])
    chosen, why = (id, "as asked") if id is not None else _guess_id(table, {*drop, classes})
    roles = Roles(chosen, why)
    for column in table.columns:
        if column.name == chosen:
            continue
        if column.name == classes:
            roles.left_out[column.name] = "known classes, for comparison only"
        elif column.name in drop:
            roles.left_out[column.name] = "as asked"
        else:
            _assign(column, table, roles)
    if not roles.used:
        raise NoData(
            f"{table.where} has no column that can be clustered: {_listed(roles)}. Numbers, "
            f"dates, true or false, or texts with at most {MOST_CATEGORIES} different values are "
            "needed."
        )
    return roles


def check_names(table: Table, names: Sequence[str]) -> None:
    """Refuse names that are not columns, all at once."""
    unknown = [name for name in names if name not in table.names]
    if unknown:
        raise InputError(
            f"{table.where} has no column {', '.join(map(repr, unknown))}; its columns are "
            f"{', '.join(table.names)}.{did_you_mean(unknown[0], table.names)}"
        )


def _listed(roles: Roles) -> str:
    parts = [f"{name or 'the unnamed column'} ({why})" for name, why in roles.left_out.items()]
    return "; ".join([*([f"{roles.id or 'the unnamed column'} (the id)"] * (roles.id is not None)),
                      *parts])  # fmt: skip


def _assign(column: Column, table: Table, roles: Roles) -> None:
    """Add a column to those used or those left out."""
    missing, n = int(column.is_missing.sum()), len(table)
    if column.kind == OTHER:
        roles.left_out[column.name] = "neither numbers nor text"
    elif missing == n:
        roles.left_out[column.name] = "no values"
    elif missing > MOST_MISSING * n:
        roles.left_out[column.name] = f"{missing / n:.0%} missing"
    elif column.kind in (TEXT, CATEGORY):
        different = len({cell for cell in column.values if cell is not None})
        if different > MOST_CATEGORIES or (column.kind == TEXT and different == n - missing > 2):
            roles.left_out[column.name] = f"text with {different:,} different values"
        elif different == 1 and not missing:
            roles.left_out[column.name] = "constant"
        else:
            roles.used.append(Column(column.name, CATEGORY, column.values))
    else:
        values = column.values[~np.isnan(column.values)]
        if (values == values[0]).all():
            roles.left_out[column.name] = "constant"
        elif column.kind == NUMBER and np.isin(values, (0.0, 1.0)).all():
            roles.used.append(Column(column.name, BOOLEAN, column.values, column.style))
        else:
            roles.used.append(column)


def _guess_id(table: Table, others: set[str | None]) -> tuple[str | None, str]:
    """Return the column that names the rows, and why; None where no column is likely to."""
    free = [column for column in table.columns if column.name not in others]
    for column in free[:1]:
        if table.is_named and column.is_index and _is_unique(column.texts()):
            return column.name, "an index without a name"
    texts = [c for c in free if c.kind == TEXT and _is_unique(c.values)]
    whole = [c for c in free if _IDS.search(c.name) and _is_whole(c)]
    named = [column for column in texts if _IDS.search(column.name)]
    if found := [*named, *whole]:
        return found[0].name, "different in every row"
    return (texts[0].name, "text that differs in every row") if texts else (None, "")


def _is_unique(cells: np.ndarray) -> bool:
    different = set(cells.tolist())
    return len(cells) > 2 and None not in different and len(different) == len(cells)


def _is_whole(column: Column) -> bool:
    """Return whether a column has a different whole number in every row."""
    if column.kind != NUMBER or column.is_missing.any():
        return False
    values = column.values
    return bool((values == np.round(values)).all()) and _is_unique(column.texts())


@dataclass(frozen=True)
class Part:
    """A column that is clustered, and the numbers that prepare it."""

    name: str
    place: int  # its number among the columns of the table
    kind: str
    style: str = ""  # how its numbers or dates were written
    missing: int = 0  # number of missing values
    unreadable: int = 0  # how many of them are texts among numbers
    fill: float = 0.0  # replaces missing values; dates are days since 1970
    center: float = 0.0
    scale: float = 1.0
    categories: list[str] = field(default_factory=list)

    def check(self, n_columns: int) -> None:
        """Raise an error where a part that was read from a file cannot be of a table."""
        texts = (self.name, self.kind, self.style, *self.categories)
        counts = (self.place, self.missing, self.unreadable)
        amounts = (self.fill, self.center, self.scale)
        if (
            not all(isinstance(text, str) for text in texts)
            or not all(type(count) is int for count in counts)
            or not all(type(a) in (int, float) and math.isfinite(a) for a in amounts)
            or self.kind not in (NUMBER, DATE, BOOLEAN, CATEGORY)
            or not 0 <= self.place < n_columns
            or self.scale == 0.0
        ):
            raise ValueError(f"its column {self.name!r:.40} cannot be of a table")

    @property
    def outputs(self) -> list[str]:
        """The names of the numbers that it becomes."""
        if self.kind != CATEGORY:
            return [self.name]
        return [f"{self.name} = {category}" for category in self.categories]

    def codes(self, column: Column) -> np.ndarray:
        """Return the cells as numbers, with NaN for missing ones, or codes of categories."""
        if self.kind != CATEGORY:
            return column.values
        code = {category: float(k) for k, category in enumerate(self.categories)}
        return np.array([code.get(cell, NO_CATEGORY) for cell in column.values], float)


def describe_columns(
    roles: Roles, parts: list[Part], scaling: str, why_scaled: str, n_rows_left_out: int
) -> list[str]:
    """Return one line per kind of column, and one each for what was left out."""
    of_kind: defaultdict[str, list[Part]] = defaultdict(list)
    for part in parts:
        of_kind[part.kind].append(part)
    lines = []
    if roles.id is not None:
        lines.append(f"id: {roles.id or 'the first column'}, {roles.why_id}")
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
        lines.append(f"scale: {what} {SCALED[scaling]}, {why_scaled}")
    if roles.left_out:
        lines.append(f"left out: {_by_reason(roles.left_out)}")
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
