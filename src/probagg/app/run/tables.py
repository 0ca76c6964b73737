"""From the columns of a table to numbers of comparable scale, and clusters in its units.

Each column becomes the id of the rows, numbers to cluster, or nothing, and what was done is said in
words. The numbers that prepare a column are saved as plain JSON, one entry per column.
"""

import json
import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.report.groups import short
from probagg.data.tables import (
    AMOUNTS,
    BOOLEAN,
    CATEGORY,
    CODES,
    COMMA,
    DATE,
    ISO,
    MIXED,
    NUMBER,
    OTHER,
    TEXT,
    Column,
    Table,
    date_text,
    places,
)
from probagg.errors import InputError, NoData, did_you_mean, reading
from probagg.storage import read_bytes

FORMAT = "probagg.preparation/1"
FILE = "preparation.json"
SCALINGS = ("auto", "standard", "none")
SCALED = {"standard": "standardised (mean 0, standard deviation 1)", "none": "as they are"}
_NOUNS = {NUMBER: "numbers", DATE: "dates", BOOLEAN: "booleans", CATEGORY: "categories"}
# "auto" standardises where the largest scale is more than this many times the smallest.
FACTOR = 10.0
# A column of text with more different values is left out, and so is any column of which more than
# this share is missing.
MOST_CATEGORIES = 20
MOST_MISSING = 0.5
# The most names in a line.
SHOWN = 6
_IDS = re.compile(r"(?i:(^|[ _.-])(id|key|uuid|guid|index)$|^(row|name)$)|[a-z](ID|Id)$")
_UNNAMED = "the unnamed column"
# Numbers that many files have in place of a missing value, and names of columns of codes.
SENTINELS = frozenset(sign * float(n) for sign in (1, -1) for n in (9, 99, 999, 9999, 99999))
_CODES = re.compile(
    r"(?i:(^|[ _.-])(zip|plz|postal|postcode|fips|phone|sku|ean|isbn|code|id)($|[ _.-])|"
    r"(zip|post|postal|area)_?code)|[a-z](ID|Id)$"
)
# From LARGE numbers on, profiles.csv is of a sample of the rows with SAMPLE numbers, and it holds
# at most MOST_COLUMNS columns.
LARGE, SAMPLE = 2**26, 2**24
MOST_COLUMNS = 60
QUARTILES = (0.25, 0.5, 0.75)
# A page shows so many cells of a row; they are kept of so many rows of each kind per cluster.
FEW_COLUMNS, EXAMPLES = 4, 100


def assign_roles(
    table: Table, id: str | None, drop: Sequence[str], classes: str | None
) -> tuple[str | None, str, list[Column], dict[str, str]]:
    """Return the id and why, the columns to cluster, and why others are left out.

    The cells of the table are read as what they contain (`Table.read`). Where no column can be
    used, the error names all of them.
    """
    unknown = [name for name in (*([] if id is None else [id]), *drop) if name not in table.names]
    if unknown:
        raise InputError(
            f"{table.where} has no column {', '.join(map(repr, unknown))}; its columns are "
            f"{', '.join(table.names)}.{did_you_mean(unknown[0], table.names)}"
        )
    id, why_id = (id, "as asked") if id is not None else _guess_id(table, {*drop, classes})
    used, left_out = [], {}
    for column in (column for column in table.columns if column.name != id):
        if column.name == classes:
            left_out[column.name] = "known classes, for comparison only"
        elif why := "as asked" if column.name in drop else _why_not(column):
            left_out[column.name] = why
        elif column.kind == TEXT:
            used.append(Column(column.name, CATEGORY, column.values))
        elif column.kind == NUMBER and np.isin(column.known, (0.0, 1.0)).all():
            used.append(Column(column.name, BOOLEAN, column.values, column.style))
        else:
            used.append(column)
    if not used:
        ids = [] if id is None else [f"{id or _UNNAMED} (the id)"]
        others = [f"{name or _UNNAMED} ({why})" for name, why in left_out.items()]
        raise NoData(
            f"{table.where} has no column that can be clustered: {'; '.join([*ids, *others])}. "
            f"Numbers, dates, true or false, or texts with at most {MOST_CATEGORIES} different "
            "values are needed."
        )
    used.sort(key=lambda column: (column.kind == BOOLEAN) + 2 * (column.kind == CATEGORY))
    return id, why_id, used, left_out


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
            what = {CODES: "codes", MIXED: "numbers and text"}.get(column.style, "text")
            return f"{what} with {different:,} different values"
        return "constant" if different == 1 and len(known) == n else None
    return "constant" if (known == known[0]).all() else None


def _guess_id(table: Table, others: set[str | None]) -> tuple[str | None, str]:
    """Return the column that names the rows, and why; None where no column is likely to."""
    free = [column for column in table.columns if column.name not in others]
    for column in free[:1]:
        if column.is_index and _is_unique(column.texts()):
            return column.name, "an index without a name"
    texts = [c for c in free if c.kind == TEXT and c.style != AMOUNTS and _is_unique(c.values)]
    whole = [
        c
        for c in free
        if _IDS.search(c.name) and c.kind == NUMBER and not c.is_missing.any()
        if (c.values == np.round(c.values)).all() and _is_unique(c.texts())
    ]
    named = [column for column in texts if _IDS.search(column.name)]
    if found := [*named, *whole]:
        return found[0].name, "different in every row"
    texts = [column for column in texts if column.style != MIXED]
    return (texts[0].name, "text that differs in every row") if texts else (None, "")


def _is_unique(cells: np.ndarray) -> bool:
    different = set(cells.tolist())
    return len(cells) > 2 and None not in different and len(different) == len(cells)


@dataclass(frozen=True)
class Part:
    """A column that is clustered, and the numbers that prepare it."""

    name: str
    kind: str
    style: str = ""  # how its numbers or dates were written
    unit: str = ""  # what its numbers had beside them
    fill: float = 0.0  # replaces missing values; dates are days since 1970
    center: float = 0.0
    scale: float = 1.0
    categories: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, column: Column) -> Self:
        """Return the part of a column that is not fitted yet."""
        different = sorted(set(column.known)) if column.kind == CATEGORY else []
        return cls(column.name, column.kind, column.style, column.unit, categories=different)

    def check(self) -> None:
        """Raise an error where a part that was read from a file cannot be of a table."""
        texts = (self.name, self.style, self.unit, *self.categories)
        amounts = (self.fill, self.center, self.scale)
        if (
            not all(isinstance(text, str) for text in texts)
            or not all(type(a) in (int, float) and math.isfinite(a) for a in amounts)
            or self.kind not in _NOUNS
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

    def units(self, cells: np.ndarray) -> list[np.ndarray]:
        """Return the cells as numbers in the user's units; 1 for a row's category, NaN: missing."""
        if self.kind != CATEGORY:
            return [cells]
        return [(cells == category).astype(float) for category in self.categories]


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

    id: str | None
    scaling: str  # "standard" or "none"
    parts: list[Part]  # numbers and dates, then booleans, then categories
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
        id, why_id, used, left_out = assign_roles(table.read(), id, drop, classes)
        ids = None if id is None else _unique_ids(table, id)
        parts = [Part.of(column) for column in used]
        U, rows = _units(parts, used)
        # Rows without any value are not counted as missing.
        used = [replace(column, values=column.values[rows]) for column in used]
        scaling, why = (scale, "as asked") if scale != "auto" else _scaling(parts, U)
        parts = _learned(parts, U, scaling)
        lines = [] if id is None else [f"id: {id or 'the first column'}, {why_id}"]
        lines += describe_columns(used, parts, scaling, why, left_out)
        if n := len(table) - len(rows):
            lines.append(f"left out: {_count(n, 'row')} without a value (skipped.csv)")
        made = cls(id, scaling, parts, lines)
        return made, made._prepared(U, rows, ids, lines)

    def apply(self, table: Table) -> Prepared:
        """Return the rows of another table prepared in the same way; columns are found by name."""
        missing = [part.name for part in self.parts if part.name not in table.names]
        if missing:
            raise NoData(
                f"{table.where} has no column {', '.join(map(repr, missing))}, but the run was "
                f"made with {', '.join(part.name for part in self.parts)}. Give the same columns; "
                "their order is free."
            )
        columns = [table[p.name].read_as(p.kind, p.style, table.comma_first) for p in self.parts]
        pairs, lines = list(zip(self.parts, columns, strict=True)), []
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
        U, rows = _units(self.parts, columns)
        filled = dict(zip(self.outputs, np.isnan(U).sum(0).tolist(), strict=True))
        if any(filled.values()):
            names = ", ".join(name for name, n in filled.items() if n)
            lines.append(f"missing: {sum(filled.values()):,} values filled as in the run ({names})")
        for part, column in pairs:
            if part.kind == CATEGORY and (new := set(column.known) - set(part.categories)):
                lines.append(f"unseen: {part.name} has {few(sorted(new))}, no category here")
            if part.unit != column.unit and len(column.known):
                here, there = column.unit or "no unit", part.unit or "no unit"
                lines.append(f"unit: {part.name} has {here}, but {there} in the run")
        ids = None
        if self.id is not None and self.id in table.names:
            ids = [cell or "" for cell in table[self.id].texts()]
        return self._prepared(U, rows, ids, lines)

    @property
    def outputs(self) -> list[str]:
        """The names of the columns of X."""
        return [name for part in self.parts for name in part.outputs]

    @property
    def kinds(self) -> list[str]:
        """What each column of `Prepared.units` shows: a number, a date or a share."""
        return [p.kind if p.is_amount else "share" for p in self.parts for _ in p.outputs]

    def _prepared(
        self, U: np.ndarray, rows: np.ndarray, ids: list[str] | None, lines: list[str]
    ) -> Prepared:
        if not len(rows):
            raise NoData("No row has a value in any column of the run. Give rows with values.")
        numbers = [(p.fill, p.center, p.scale) for p in self.parts for _ in p.outputs]
        fill, center, scale = np.array(numbers).T
        return Prepared((np.where(np.isnan(U), fill, U) - center) / scale, rows, ids, U, lines)

    def to_json(self) -> str:
        """Return the preparation as readable JSON."""
        parts = [{k: v for k, v in vars(part).items() if v not in ("", [])} for part in self.parts]
        value = {"format": FORMAT, **vars(self), "parts": parts}
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the preparation in a file that holds what `to_json` wrote."""
        with reading(path, "Copy the whole run folder there again."):
            value = json.loads(read_bytes(path).decode())
            if value.pop("format") != FORMAT:
                raise ValueError("another format")
            made = cls(parts=[Part(**part) for part in value.pop("parts")], **value)
            if not all(isinstance(text, str) for text in (*made.lines, made.id or "")):
                raise ValueError("a line is not text")
            if made.scaling not in SCALED or not made.parts:
                raise ValueError(f"scaling is {made.scaling!r:.40}, of {len(made.parts)} columns")
            for part in made.parts:
                part.check()
            return made


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


def _units(parts: list[Part], columns: list[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with a value in any column in the user's units, and which these are."""
    pairs = list(zip(parts, columns, strict=True))
    U = np.column_stack([cells for p, column in pairs for cells in p.units(column.values)])
    is_category = np.array([part.kind == CATEGORY for part in parts for _ in part.outputs])
    rows = np.flatnonzero(~(np.isnan(U) | (is_category & (U == 0.0))).all(axis=1))
    return U[rows], rows


def _scaling(parts: list[Part], U: np.ndarray) -> tuple[str, str]:
    """Return how numbers and dates are scaled, by their scales and that of a category, and why."""
    from probagg.pac.advice import differing_scales  # scikit-learn is slow to import

    amounts = [j for j, part in enumerate(parts) if part.is_amount]
    X, names = U[:, amounts], [parts[j].name for j in amounts]
    if 0 < len(amounts) < len(parts):
        # A share of one half.
        X = np.column_stack([X, np.arange(len(U)) % 2])
        names.append("a category")
    scales = differing_scales(X, FACTOR) if amounts else None
    if scales is None:
        return "none", f"standard deviations within a factor of {FACTOR:.0f}"
    high, low = names[scales.largest], names[scales.smallest]
    return "standard", (
        f"as standard deviations differ by a factor of {scales.factor:,.0f}, more than "
        f"{FACTOR:.0f} ({high} {short(scales.high)}, {low} {short(scales.low)})"
    )


def _learned(parts: list[Part], U: np.ndarray, scaling: str) -> list[Part]:
    """Return the parts with the numbers that prepare them; those of categories come last."""
    from sklearn.preprocessing import StandardScaler  # scikit-learn is slow to import

    amounts = [j for j, part in enumerate(parts) if part.is_amount]
    X = U[:, amounts]
    numbers = np.array([np.nanmedian(X, axis=0), np.zeros(len(amounts)), np.ones(len(amounts))])
    if amounts and scaling == "standard":
        standard = StandardScaler().fit(np.where(np.isnan(X), numbers[0], X))
        numbers[1:] = standard.mean_, standard.scale_
    found = list(parts)
    for j, part in enumerate(parts):
        if part.kind == BOOLEAN:
            found[j] = replace(part, fill=float(np.nanmean(U[:, j]) > 0.5))
    for j, (fill, center, scale) in zip(amounts, numbers.T.tolist(), strict=True):
        found[j] = replace(parts[j], fill=fill, center=center, scale=scale)
    return found


def describe_columns(
    used: list[Column], parts: list[Part], scaling: str, why: str, left_out: dict[str, str]
) -> list[str]:
    """Return one line per kind of column, one for those left out, and what to check."""
    lines = []
    for kind, noun in _NOUNS.items():
        if found := [column for column in used if column.kind == kind]:
            n_outputs = sum(len(part.outputs) for part in parts if part.kind == kind)
            done = [_read_as(kind, found, n_outputs), _filled(kind, found)]
            words = "; ".join(filter(None, done))
            lines.append(f"{noun}: {few([c.name for c in found])}" + f" ({words})" * bool(words))
    if amounts := [_NOUNS[k] for k in (NUMBER, DATE) if any(part.kind == k for part in parts)]:
        lines.append(f"scale: {' and '.join(amounts)} {SCALED[scaling]}, {why}")
    if left_out:
        named: defaultdict[str, list[str]] = defaultdict(list)
        for name, reason in left_out.items():
            named[reason].append(name or _UNNAMED)
        reasons = (f"{', '.join(alike)} ({reason})" for reason, alike in named.items())
        lines.append(f"left out: {'; '.join(reasons)}")
    return lines + [line for column in used for line in _checks(column)]


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


def _read_as(kind: str, columns: list[Column], n_outputs: int) -> str:
    """Return how columns of a kind were read and encoded."""
    if kind == CATEGORY:
        return f"one-hot encoded as {n_outputs} columns"
    if kind == BOOLEAN:
        return "as 0 and 1"
    if kind == NUMBER:
        commas = [column.name for column in columns if column.style == COMMA]
        return f"decimal commas in {few(commas)}" if commas else ""
    formats = " and ".join(sorted({column.style for column in columns} - {"", ISO}))
    for code, word in (("%d", "day"), ("%m", "month"), ("%b", "month"), ("%Y", "year")):
        formats = formats.replace(code, word)
    return f"as days, read as {formats}" if formats else "as days"


def _filled(kind: str, columns: list[Column]) -> str:
    """Return what became of missing values."""
    missing = sum(int(column.is_missing.sum()) for column in columns)
    bad = {column.name: column.n_unreadable for column in columns if column.n_unreadable}
    if not missing:
        return ""
    how = {CATEGORY: "in no category", BOOLEAN: "filled with the most frequent"}
    what = f", {sum(bad.values()):,} of them texts in {few([*bad])}" if bad else ""
    return f"{_count(missing, 'missing value')} {how.get(kind, 'filled with the median')}{what}"


def few(names: Sequence[str]) -> str:
    """Return names in a line, of many only the first.

    >>> few(["a", "b"]), few(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e and 3 more')
    """
    if len(names) <= SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: SHOWN - 1])} and {len(names) - SHOWN + 1} more"


def profiles(
    X: Any, labels: np.ndarray, columns: list[str] | None, preparation: Preparation | None
) -> list[list[Any]]:
    """Return lines of cluster, column, mean and quartiles, of the columns that differ most.

    Those of a table are in its units: dates as dates, and for categories and booleans the share of
    rows, which has no quartiles; the kind comes last. Missing values do not count.
    """
    names = columns or places(X.shape[1])
    kinds = ["number"] * X.shape[1] if preparation is None else preparation.kinds
    is_table = preparation is not None
    X, labels = _some(X, labels)
    clusters, means, order = _telling(X, labels)
    shown, rows = np.sort(order[:MOST_COLUMNS]), []
    for k, mean in zip(clusters, means, strict=True):
        quartiles = _of_known(np.nanquantile, X[labels == k][:, shown], q=QUARTILES)
        for i, j in enumerate(shown):
            cells = _profile(kinds[j], mean[j], quartiles[:, i])
            rows.append([k, names[j], *cells, *([kinds[j]] * is_table)])
    return rows


def _telling(X: np.ndarray, labels: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return the clusters with rows, their means, and columns by how much the means differ."""
    clusters = np.unique(labels).tolist()
    means = np.array([_of_known(np.nanmean, X[labels == k], dtype=np.float64) for k in clusters])
    deviation = _of_known(np.nanstd, X, dtype=np.float64)
    spread = _of_known(np.nanstd, means) / np.maximum(deviation, 1e-300)
    return clusters, means, np.argsort(-spread, kind="stable")


def _of_known(statistic: Any, X: np.ndarray, **options: Any) -> np.ndarray:
    """Return a statistic of each column; a cluster may have no value of one, which is NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return statistic(X, axis=0, **options)


def example_cells(
    table: Table, preparation: Preparation, units: np.ndarray, assigned: Assignments, K: int
) -> Iterator[tuple[int, str, str]]:
    """Yield row, column and cell of the rows that a page may show: typical, uncertain and far ones.

    Columns are the few in which the clusters differ most; numbers have six digits.
    """
    owners = [part.name for part in preparation.parts for _ in part.outputs]
    order = _telling(*_some(units, assigned.cluster))[2]
    shown = list(dict.fromkeys(owners[j] for j in order))[:FEW_COLUMNS]
    # The page reads the table, in which most probabilities are 1.000000 and distances decide.
    p, second = assigned.probability.round(6), assigned.second_probability.round(6)
    found = set[int]()
    for key in ((assigned.distance, -p), (p - second,), (-assigned.distance,)):
        ranked = np.lexsort((*key, assigned.cluster))
        first = np.searchsorted(assigned.cluster[ranked], np.arange(K))
        place = np.arange(len(ranked)) - first[assigned.cluster[ranked]]
        found |= set(ranked[place < EXAMPLES].tolist())
    rows = np.array(sorted(found))
    some = table.only(rows)
    for column in (some[name] for name in shown):
        is_text = column.values.dtype == object or column.kind != NUMBER
        cells = column.texts().tolist() if is_text else [f"{v:.6g}" for v in column.values.tolist()]
        for row, cell, is_missing in zip(rows.tolist(), cells, column.is_missing, strict=True):
            if not is_missing:
                yield row, column.name, cell


def _some(X: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows, or a sample of them where they are many, in memory and dense."""
    if X.shape[0] * X.shape[1] > LARGE:
        size = min(X.shape[0], max(1, SAMPLE // X.shape[1]))
        some = np.sort(np.random.default_rng(0).choice(X.shape[0], size, replace=False))
        X, labels = X[some], labels[some]
    else:
        X = X[:]
    return (X.toarray() if hasattr(X, "toarray") else X), labels


def _profile(kind: str, mean: float, quartiles: np.ndarray) -> list[str]:
    """Return mean and quartiles as text, empty where unknown; a share has no quartiles."""
    values = [mean] + [np.nan if kind == "share" else q for q in quartiles.tolist()]
    texts = (date_text(np.floor(v)) if kind == "date" and v == v else f"{v:.6g}" for v in values)
    return ["" if v != v else text for v, text in zip(values, texts, strict=True)]
