"""From the columns of a table to numbers of comparable scale, for new rows too, and back to units.

Each column becomes the id of the rows, numbers to cluster, or nothing, and what was done is said in
words. The numbers that prepare a column are saved as plain JSON, one entry per column.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from probagg.app.report.page.groups import short
from probagg.data.tables import (
    AMOUNTS,
    BOOLEAN,
    CATEGORY,
    CODES,
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
from probagg.errors import InputError, NoData, did_you_mean, reading
from probagg.storage import read_bytes

if TYPE_CHECKING:
    from probagg.pac.advice import Scales

FORMAT = "probagg.preparation/1"
FILE = "preparation.json"
SCALINGS = ("auto", "standard", "robust", "none")
SCALED = {
    "standard": "standardised (mean 0, standard deviation 1)",
    "robust": "scaled (median 0, interquartile range 1)",
    "none": "as they are",
}
_NOUNS = {NUMBER: "numbers", DATE: "dates", BOOLEAN: "booleans", CATEGORY: "categories"}
# "auto" standardises where the largest scale is more than this many times the smallest.
FACTOR = 10.0
# A column of text with more different values is left out, and so is any column of which more than
# this share is missing.
MOST_CATEGORIES = 20
MOST_MISSING = 0.5
NO_CATEGORY = -1.0  # the code of a missing or unseen category: a row of zeros
SHOWN = 6  # names in a line
_IDS = re.compile(r"(?i:(^|[ _.-])(id|key|uuid|guid|index)$|^(row|name)$)|[a-z](ID|Id)$")
_UNNAMED = "the unnamed column"
# Numbers that many files have in place of a missing value, and names of columns of codes.
SENTINELS = frozenset(sign * float(n) for sign in (1, -1) for n in (9, 99, 999, 9999, 99999))
_CODES = re.compile(
    r"(?i:(^|[ _.-])(zip|plz|postal|postcode|fips|phone|sku|ean|isbn|code|id)($|[ _.-])|"
    r"(zip|post|postal|area)_?code)|[a-z](ID|Id)$"
)


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
    unknown = [name for name in (*([] if id is None else [id]), *drop) if name not in table.names]
    if unknown:
        raise InputError(
            f"{table.where} has no column {', '.join(map(repr, unknown))}; its columns are "
            f"{', '.join(table.names)}.{did_you_mean(unknown[0], table.names)}"
        )
    roles = Roles(*((id, "as asked") if id is not None else _guess_id(table, {*drop, classes})))
    for column in table.columns:
        if column.name == roles.id:
            continue
        if column.name == classes:
            why: str | None = "known classes, for comparison only"
        else:
            why = "as asked" if column.name in drop else _why_not(column)
        if why is not None:
            roles.left_out[column.name] = why
        elif column.kind == TEXT:
            roles.used.append(Column(column.name, CATEGORY, column.values))
        elif column.kind == NUMBER and np.isin(column.known, (0.0, 1.0)).all():
            roles.used.append(Column(column.name, BOOLEAN, column.values, column.style))
        else:
            roles.used.append(column)
    if not roles.used:
        ids = [] if roles.id is None else [f"{roles.id or _UNNAMED} (the id)"]
        others = [f"{name or _UNNAMED} ({why})" for name, why in roles.left_out.items()]
        raise NoData(
            f"{table.where} has no column that can be clustered: {'; '.join([*ids, *others])}. "
            f"Numbers, dates, true or false, or texts with at most {MOST_CATEGORIES} different "
            "values are needed."
        )
    return roles


def _why_not(column: Column) -> str | None:
    """Return why a column cannot be clustered, or None where it can."""
    known, n = column.known, len(column.values)
    if column.kind == OTHER:
        return "neither numbers nor text"
    if column.style == AMOUNTS:
        return "amounts in several units"
    if not len(known):
        return "no values"
    if n - len(known) > MOST_MISSING * n:
        return f"{(n - len(known)) / n:.0%} missing"
    if column.kind in (TEXT, CATEGORY):
        different = len(set(known))
        if different > MOST_CATEGORIES or (column.kind == TEXT and different == len(known) > 2):
            what = "codes" if column.style == CODES else "text"
            return f"{what} with {different:,} different values"
        return "constant" if different == 1 and len(known) == n else None
    return "constant" if (known == known[0]).all() else None


def _guess_id(table: Table, others: set[str | None]) -> tuple[str | None, str]:
    """Return the column that names the rows, and why; None where no column is likely to."""
    free = [column for column in table.columns if column.name not in others]
    for column in free[:1]:
        if table.is_named and column.is_index and _is_unique(column.texts()):
            return column.name, "an index without a name"
    texts = [c for c in free if c.kind == TEXT and c.style != AMOUNTS and _is_unique(c.values)]
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

    @classmethod
    def of(cls, column: Column, place: int) -> Self:
        """Return the part of a column that is not fitted yet."""
        different = set(column.known) if column.kind == CATEGORY else set()
        missing = int(column.is_missing.sum())
        facts = (column.style, missing, column.n_unreadable)
        return cls(column.name, place, column.kind, *facts, categories=sorted(different))

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
    def is_amount(self) -> bool:
        """Whether the column is scaled."""
        return self.kind in (NUMBER, DATE)

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

    def units(self, codes: np.ndarray) -> list[np.ndarray]:
        """Return the numbers that codes become, in the user's units; 1 for a row's category."""
        if self.kind != CATEGORY:
            return [codes]
        return [(codes == k).astype(float) for k in range(len(self.categories))]

    def prepare(self, codes: np.ndarray) -> list[np.ndarray]:
        """Return the numbers that codes become, to cluster."""
        if self.kind == CATEGORY:
            return self.units(codes)
        return [(np.where(np.isnan(codes), self.fill, codes) - self.center) / self.scale]

    def describe(self, scaling: str) -> str:
        """Return what was done to the column, with its numbers."""
        if self.kind == CATEGORY:
            none = [f"{self.missing:,} missing are no category"] * bool(self.missing)
            return "; ".join([f"one-hot encoded: {', '.join(self.categories)}", *none])
        if self.kind == BOOLEAN:
            done = "as 0 and 1"
        elif scaling == "none":
            done = "as days" if self.kind == DATE else "as it is"
        else:
            unit = " days" if self.kind == DATE else ""
            words = ("mean", "standard deviation") if scaling == "standard" else ("median", "IQR")
            done = f"minus the {words[0]} {self._amount(self.center)}, divided by the {words[1]} "
            done += f"{short(self.scale)}{unit}"
        if self.missing:
            bad = f" ({self.unreadable:,} texts)" if self.unreadable else ""
            done += f"; {self.missing:,} missing{bad} filled with {self._amount(self.fill)}"
        return done

    def _amount(self, value: float) -> str:
        return date_text(math.floor(value)) if self.kind == DATE else short(value)


@dataclass(frozen=True)
class Prepared:
    """Rows of a table as numbers: to cluster, and in the user's units."""

    X: np.ndarray  # (n, outputs)
    rows: np.ndarray  # the rows of the table that have any value
    names: list[str] | None  # the id of each of its rows
    units: np.ndarray  # (n, outputs) in the user's units, NaN where missing; shares as 0 and 1
    lines: list[str]


@dataclass(frozen=True)
class Preparation:
    """How the columns of a table become numbers."""

    columns: list[str]  # all columns of the table, in its order
    is_named: bool
    id: str | None
    scaling: str  # "standard", "robust" or "none"
    parts: list[Part]
    left_out: dict[str, str]  # columns and reasons
    lines: list[str]  # what was done, for a person

    @classmethod
    def fit(
        cls,
        table: Table,
        *,
        id: str | None = None,
        scale: str = "auto",
        drop: Sequence[str] = (),
        classes: str | None = None,
    ) -> tuple[Self, Prepared]:
        """Decide what becomes of each column, and return the rows prepared so.

        `classes` is a column of known classes, which is left out.
        """
        if scale not in SCALINGS:
            raise InputError(f"scale is {scale!r}; possible are {', '.join(SCALINGS)}.")
        raw, table = table, table.read()
        n_rows, roles = len(table), assign_roles(table, id, drop, classes)
        ids = None if roles.id is None else _unique_ids(raw, roles.id)
        parts, M = _parts(table, roles)
        rows = _with_values(M, parts)
        # Rows without any value are neither counted as missing nor judged.
        if len(rows) < len(table):
            table = table.only(rows)
            roles = replace(assign_roles(table, roles.id, drop, classes), why_id=roles.why_id)
            parts, M = _parts(table, roles)
        why = "as asked"
        if scale == "auto":
            scales = _scales(M, parts)
            scale, why = "none" if scales is None else "standard", _why(scales, parts)
        parts = _learned(parts, M, scale)
        lines = describe_columns(roles, parts, scale, why, n_rows - len(rows))
        made = cls(table.names, table.is_named, roles.id, scale, parts, roles.left_out, lines)
        return made, made._prepared(M, rows, ids, lines)

    def apply(self, table: Table) -> Prepared:
        """Return the rows of another table prepared in the same way; columns are found by name."""
        pairs, lines = list(zip(self.parts, self._find(table), strict=True)), []
        wrong = [
            f"{part.name} (a {part.kind})"
            for part, column in pairs
            if column.n_unreadable and column.is_missing.all()
        ]
        if wrong:
            raise NoData(
                f"{table.where} has other values than the run was made with in {', '.join(wrong)}. "
                "Give columns of the same kind."
            )
        M = np.column_stack([part.codes(column) for part, column in pairs])
        rows = _with_values(M, self.parts)
        filled = {p.name: int(np.isnan(M[rows, j]).sum()) for j, p in enumerate(self.parts)}
        if any(filled.values()):
            names = ", ".join(name for name, n in filled.items() if n)
            lines.append(f"missing: {sum(filled.values()):,} values filled as in the run ({names})")
        for part, column in pairs:
            if part.kind == CATEGORY and (new := set(column.known) - set(part.categories)):
                lines.append(f"unseen: {part.name} has {few(sorted(new))}, no category here")
        ids = None
        if self.id is not None and self.id in table.names:
            ids = [cell or "" for cell in table[self.id].texts()]
        return self._prepared(M[rows], rows, ids, lines)

    def _find(self, table: Table) -> list[Column]:
        """Return the columns of the parts, read as their kinds."""
        if self.is_named and table.is_named:
            missing = [part.name for part in self.parts if part.name not in table.names]
            if missing:
                raise NoData(
                    f"{table.where} has no column {', '.join(map(repr, missing))}, but the run was "
                    f"made with {', '.join(part.name for part in self.parts)}. Give the same "
                    "columns; their order is free."
                )
            found = [table[part.name] for part in self.parts]
        else:
            found = [table.columns[place] for place in self._places(table)]
        comma = table.comma_first
        pairs = zip(self.parts, found, strict=True)
        return [column.read_as(part.kind, part.style, comma) for part, column in pairs]

    def _places(self, table: Table) -> list[int]:
        """Return the places of the parts in a table without names."""
        places, width = [part.place for part in self.parts], len(table.columns)
        if width == len(self.columns):
            return places
        # The id may be left out.
        if self.id is not None and width == len(self.columns) - 1:
            return [place - (place > self.columns.index(self.id)) for place in places]
        raise NoData(
            f"{table.where} has {width} columns without names, but the run was made with "
            f"{len(self.columns)}: {', '.join(self.columns)}. Give the same columns in this order."
        )

    @property
    def in_order(self) -> list[int]:
        """The places of the parts in the order of X: amounts, booleans, categories."""
        rank = {BOOLEAN: 1, CATEGORY: 2}
        return sorted(range(len(self.parts)), key=lambda j: rank.get(self.parts[j].kind, 0))

    @property
    def outputs(self) -> list[str]:
        """The names of the columns of X."""
        return [name for j in self.in_order for name in self.parts[j].outputs]

    @property
    def kinds(self) -> list[str]:
        """What each column of `Prepared.units` shows: a number, a date or a share."""
        parts = [self.parts[j] for j in self.in_order]
        return [part.kind if part.is_amount else "share" for part in parts for _ in part.outputs]

    def _prepared(
        self, M: np.ndarray, rows: np.ndarray, ids: list[str] | None, lines: list[str]
    ) -> Prepared:
        if not len(rows):
            raise NoData("No row has a value in any column of the run. Give rows with values.")
        X = [column for j in self.in_order for column in self.parts[j].prepare(M[:, j])]
        units = [column for j in self.in_order for column in self.parts[j].units(M[:, j])]
        return Prepared(np.column_stack(X), rows, ids, np.column_stack(units), lines)

    def to_json(self) -> str:
        """Return the preparation as readable JSON."""
        parts = [
            {k: v for k, v in asdict(part).items() if v not in ("", [])} for part in self.parts
        ]
        value = {"format": FORMAT, **{k: v for k, v in vars(self).items() if k != "parts"}}
        return json.dumps(value | {"parts": parts}, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the preparation in a file that holds what `to_json` wrote."""
        with reading(path, "Copy the whole run folder there again."):
            value = json.loads(read_bytes(path).decode())
            if value.pop("format") != FORMAT:
                raise ValueError("another format")
            made = cls(parts=[Part(**part) for part in value.pop("parts")], **value)
            names = [*made.columns, *made.lines, *made.left_out, *made.left_out.values()]
            if not all(isinstance(name, str) for name in (*names, made.id or "")):
                raise ValueError("a column, a line or a reason is not text")
            if made.scaling not in SCALINGS[1:] or type(made.is_named) is not bool:
                raise ValueError(f"scaling is {made.scaling!r:.40}")
            if not made.parts:
                raise ValueError("it has no column")
            for part in made.parts:
                part.check(len(made.columns))
            return made

    def table(self) -> list[dict[str, str]]:
        """Return one line per column for the page: its name, its kind and what was done."""
        parts = {part.name: (part.kind, part.describe(self.scaling)) for part in self.parts}
        lines = []
        for name in self.columns:
            left_out = ("left out", self.left_out.get(name, ""))
            kind, done = ("id", "names the rows") if name == self.id else left_out
            kind, done = parts.get(name, (kind, done))
            lines.append({"column": name or "(no name)", "kind": kind, "done": done})
        return lines


def _why(scales: Scales | None, parts: list[Part]) -> str:
    """Return why columns are standardised, or not."""
    if scales is None:
        return f"standard deviations within a factor of {FACTOR:.0f}"
    large, small = (
        "a category" if place < 0 else parts[place].name
        for place in (scales.largest, scales.smallest)
    )
    return (
        f"as standard deviations differ by a factor of {scales.factor:,.0f}, more than "
        f"{FACTOR:.0f} ({large} {short(scales.high)}, {small} {short(scales.low)})"
    )


def _unique_ids(table: Table, name: str) -> list[str]:
    cells = list(table[name].texts())
    counts = Counter(cells)
    if len(counts) < len(cells) or None in counts:
        again = next(cell for cell in cells if cell is None or counts[cell] > 1)
        why = "has rows without a value" if again is None else f"has {again!r} more than once"
        raise InputError(
            f"The id column {name!r} of {table.where} {why}. Name a column that differs in every "
            "row, or leave id out for row numbers."
        )
    return cells


def _parts(table: Table, roles: Roles) -> tuple[list[Part], np.ndarray]:
    """Return the columns to cluster, not fitted, and their cells as numbers."""
    parts = [Part.of(column, table.names.index(column.name)) for column in roles.used]
    M = np.column_stack([p.codes(c) for p, c in zip(parts, roles.used, strict=True)])
    return parts, M


def _with_values(M: np.ndarray, parts: list[Part]) -> np.ndarray:
    """Return the rows with a value in any column."""
    empty = np.array([NO_CATEGORY if part.kind == CATEGORY else np.nan for part in parts])
    return np.flatnonzero(~(np.isnan(M) | (empty == M)).all(axis=1))


def _scales(M: np.ndarray, parts: list[Part]) -> Scales | None:
    """Compare the scales of numbers and dates, and of a share of one half beside them."""
    from probagg.pac.advice import differing_scales  # scikit-learn is slow to import

    amounts = [j for j, part in enumerate(parts) if part.is_amount]
    X = M[:, amounts]
    if X.shape[1] and len(amounts) < len(parts):
        half = (np.arange(len(M)) % 2).astype(float)
        X = np.column_stack([X, half])
    found = differing_scales(X, FACTOR) if X.shape[1] else None
    if found is None:
        return None
    # -1 stands for the share.
    places = [*amounts, -1]
    return replace(found, largest=places[found.largest], smallest=places[found.smallest])


def _learned(parts: list[Part], M: np.ndarray, scaling: str) -> list[Part]:
    """Return the parts with the numbers that prepare them."""
    from sklearn.preprocessing import RobustScaler, StandardScaler  # slow to import

    found = list(parts)
    for j in (j for j, part in enumerate(parts) if part.kind == BOOLEAN):
        found[j] = replace(parts[j], fill=float(np.nanmean(M[:, j]) > 0.5))
    if amounts := [j for j, part in enumerate(parts) if part.is_amount]:
        X = M[:, amounts]
        fills = np.nanmedian(X, axis=0)
        X = np.where(np.isnan(X), fills, X)
        centers, scales = np.zeros(len(amounts)), np.ones(len(amounts))
        if scaling == "standard":
            standard = StandardScaler().fit(X)
            centers, scales = standard.mean_, standard.scale_
        elif scaling == "robust":
            robust = RobustScaler().fit(X)
            centers, scales = robust.center_, robust.scale_
        learned = zip(fills.tolist(), centers.tolist(), scales.tolist(), strict=True)
        for j, (fill, center, scale) in zip(amounts, learned, strict=True):
            found[j] = replace(parts[j], fill=fill, center=center, scale=scale)
    return found


def describe_columns(
    roles: Roles, parts: list[Part], scaling: str, why_scaled: str, n_rows_left_out: int
) -> list[str]:
    """Return one line per kind of column, and one each for what was left out."""
    lines = [] if roles.id is None else [f"id: {roles.id or 'the first column'}, {roles.why_id}"]
    for kind, noun in _NOUNS.items():
        if found := [part for part in parts if part.kind == kind]:
            done = [*_read_as(kind, found), *_filled(kind, found)]
            names = few([part.name for part in found])
            lines.append(f"{noun}: {names}" + f" ({'; '.join(done)})" * bool(done))
    if amounts := [_NOUNS[k] for k in (NUMBER, DATE) if any(part.kind == k for part in parts)]:
        lines.append(f"scale: {' and '.join(amounts)} {SCALED[scaling]}, {why_scaled}")
    if roles.left_out:
        named: defaultdict[str, list[str]] = defaultdict(list)
        for name, reason in roles.left_out.items():
            named[reason].append(name or _UNNAMED)
        reasons = (f"{', '.join(alike)} ({reason})" for reason, alike in named.items())
        lines.append(f"left out: {'; '.join(reasons)}")
    lines += [line for column in roles.used for line in _checks(column)]
    if n_rows_left_out:
        lines.append(f"left out: {_count(n_rows_left_out, 'row')} without a value (skipped.csv)")
    return lines


def _checks(column: Column) -> list[str]:
    """Return what to look at in a column of numbers: codes, and numbers that mean "missing"."""
    if column.kind != NUMBER:
        return []
    found, values = [], column.known
    if _CODES.search(column.name) and (values == np.round(values)).all():
        found.append(
            f"check: {column.name} is named as a code, but clustered as a number. Leave it out "
            f"(--drop {column.name}) unless its size means something"
        )
    low, high = float(values.min()), float(values.max())
    for extreme, others in ((low, values[values > low]), (high, values[values < high])):
        n = len(values) - len(others)
        gap = min(abs(others.min() - extreme), abs(others.max() - extreme)) if len(others) else 0.0
        if extreme in SENTINELS and n > 1 and gap > np.ptp(others):
            found.append(
                f"check: {column.name} is {extreme:g} in {n:,} rows, far from its other values "
                f"({others.min():g} to {others.max():g}). If it means missing, leave the cells "
                "empty"
            )
    return found


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"


def _read_as(kind: str, parts: list[Part]) -> list[str]:
    """Return how columns of a kind were read and encoded."""
    if kind == CATEGORY:
        return [f"one-hot encoded as {sum(len(part.categories) for part in parts)} columns"]
    if kind == BOOLEAN:
        return ["as 0 and 1"]
    if kind == NUMBER:
        commas = [part.name for part in parts if part.style == COMMA]
        return [f"decimal commas in {few(commas)}"] if commas else []
    formats = " and ".join(sorted({part.style for part in parts} - {"", ISO}))
    for code, word in (("%d", "day"), ("%m", "month"), ("%b", "month"), ("%Y", "year")):
        formats = formats.replace(code, word)
    return [f"as days, read as {formats}" if formats else "as days"]


def _filled(kind: str, parts: list[Part]) -> list[str]:
    missing, bad = sum(part.missing for part in parts), sum(part.unreadable for part in parts)
    if not missing:
        return []
    how = {CATEGORY: "in no category", BOOLEAN: "filled with the most frequent"}
    texts = few([part.name for part in parts if part.unreadable])
    what = f", {bad:,} of them texts in {texts}" if bad else ""
    return [f"{_count(missing, 'missing value')} {how.get(kind, 'filled with the median')}{what}"]


def few(names: Sequence[str]) -> str:
    """Return names in a line, of many only the first.

    >>> few(["a", "b"]), few(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e and 3 more')
    """
    if len(names) <= SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: SHOWN - 1])} and {len(names) - SHOWN + 1} more"
