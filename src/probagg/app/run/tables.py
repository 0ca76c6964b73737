"""From the columns of a table to numbers of comparable scale, for new rows too, and back to units.

scikit-learn's transformers do the work. What they learned is saved as plain JSON, one entry per
column, and they are rebuilt from it.
"""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probagg.app.run.columns import (
    NO_CATEGORY,
    Part,
    Roles,
    assign_roles,
    describe_column,
    describe_columns,
    few,
)
from probagg.data.tables import BOOLEAN, CATEGORY, DATE, NUMBER, Column, Table, date_text, places
from probagg.errors import InputError, NoData, reading
from probagg.storage import read_bytes
from probagg.svg import short

if TYPE_CHECKING:
    from probagg.pac.advice import Scales

FORMAT = "probagg.preparation/1"
FILE = "preparation.json"
SCALINGS = ("auto", "standard", "robust", "none")
# "auto" standardises where the largest scale is more than this many times the smallest.
FACTOR = 10.0
# From LARGE numbers on, profiles.csv is of a sample of the rows with SAMPLE numbers, and it holds
# at most MOST_COLUMNS columns.
LARGE, SAMPLE = 2**26, 2**24
MOST_COLUMNS = 60
QUARTILES = (0.25, 0.5, 0.75)


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
        scales, why = None, "as asked"
        if scale == "auto":
            scales = _scales(M, parts)
            scale = "none" if scales is None else "standard"
            why = _why(scales, parts)
        transformer = _new_transformer(parts, scale).fit(M)
        parts = _learned(parts, scale, transformer)
        lines = describe_columns(roles, parts, scale, why, n_rows - len(rows))
        made = cls(table.names, table.is_named, roles.id, scale, parts, roles.left_out, lines)
        return made, made._prepared(M, rows, transformer, ids, lines)

    def apply(self, table: Table) -> Prepared:
        """Return the rows of another table prepared in the same way; columns are found by name."""
        columns, lines = self._find(table), []
        wrong = [
            f"{part.name} (a {part.kind})"
            for part, column in zip(self.parts, columns, strict=True)
            if column.n_unreadable and column.is_missing.all()
        ]
        if wrong:
            listed = ", ".join(wrong)
            raise NoData(
                f"{table.where} has other values than the run was made with in {listed}. Give "
                "columns of the same kind."
            )
        M = np.column_stack([p.codes(c) for p, c in zip(self.parts, columns, strict=True)])
        rows = _with_values(M, self.parts)
        filled = {p.name: int(np.isnan(M[rows, j]).sum()) for j, p in enumerate(self.parts)}
        if any(filled.values()):
            names = ", ".join(name for name, n in filled.items() if n)
            lines.append(f"missing: {sum(filled.values()):,} values filled as in the run ({names})")
        for part, column in zip(self.parts, columns, strict=True):
            if part.kind == CATEGORY:
                new = {c for c in column.values if c is not None} - set(part.categories)
                if new:
                    lines.append(f"unseen: {part.name} has {few(sorted(new))}, no category here")
        ids = None
        if self.id is not None and self.id in table.names:
            ids = [cell or "" for cell in table[self.id].texts()]
        return self._prepared(M[rows], rows, _rebuild(self.parts, self.scaling), ids, lines)

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
        if self.id is not None and width == len(self.columns) - 1:  # without the id
            return [place - (place > self.columns.index(self.id)) for place in places]
        raise NoData(
            f"{table.where} has {width} columns without names, but the run was made with "
            f"{len(self.columns)}: {', '.join(self.columns)}. Give the same columns in this order."
        )

    @property
    def _in_order(self) -> list[Part]:
        """The parts in the order of the transformed columns."""
        return [part for group in _groups(self.parts) for part in group]

    @property
    def outputs(self) -> list[str]:
        """The names of the columns of X."""
        return [name for part in self._in_order for name in part.outputs]

    @property
    def kinds(self) -> list[str]:
        """What each column of `Prepared.units` shows: a number, a date or a share."""
        kinds = {NUMBER: "number", DATE: "date"}
        return [kinds.get(part.kind, "share") for part in self._in_order for _ in part.outputs]

    def _prepared(
        self, M: np.ndarray, rows: np.ndarray, transformer: Any, ids: Any, lines: list[str]
    ) -> Prepared:
        if not len(rows):
            raise NoData("No row has a value in any column of the run. Give rows with values.")
        X = np.asarray(transformer.transform(M), np.float64)
        units, place = [], {part.name: j for j, part in enumerate(self.parts)}
        for part in self._in_order:
            column = M[:, place[part.name]]
            if part.kind == CATEGORY:
                units += [(column == k).astype(float) for k in range(len(part.categories))]
            else:
                units.append(column)
        return Prepared(X, rows, ids, np.column_stack(units), lines)

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
            return cls._parse(read_bytes(path).decode())

    @classmethod
    def _parse(cls, text: str) -> Self:
        value = json.loads(text)
        if value.pop("format") != FORMAT:
            raise ValueError("another format")
        parts = [Part(**part) for part in value.pop("parts")]
        made = cls(parts=parts, **value)
        names = [*made.columns, *made.lines, *made.left_out, *made.left_out.values()]
        if not all(isinstance(name, str) for name in (*names, made.id or "")):
            raise ValueError("a column, a line or a reason is not text")
        if made.scaling not in SCALINGS[1:] or type(made.is_named) is not bool:
            raise ValueError(f"scaling is {made.scaling!r:.40}")
        for part in parts:
            part.check(len(made.columns))
        _rebuild(parts, made.scaling)
        return made

    def table(self) -> list[dict[str, str]]:
        """Return one line per column for the page: its name, its kind and what was done."""
        lines = []
        parts = {part.name: part for part in self.parts}
        for name in self.columns:
            if name in parts:
                kind, done = parts[name].kind, describe_column(parts[name], self.scaling)
            elif name == self.id:
                kind, done = "id", "names the rows"
            else:
                kind, done = "left out", self.left_out.get(name, "")
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
    cells = table[name].texts()
    seen: set[str] = set()
    again = next((c for c in cells if c is None or c in seen or seen.add(c)), "")  # type: ignore[func-returns-value]
    if again is None or again:
        why = "has rows without a value" if again is None else f"has {again!r} more than once"
        raise InputError(
            f"The id column {name!r} of {table.where} {why}. Name a column that differs in every "
            "row, or leave id out for row numbers."
        )
    return list(cells)


def _parts(table: Table, roles: Roles) -> tuple[list[Part], np.ndarray]:
    """Return the columns to cluster, not fitted, and their cells as numbers."""
    parts = [_part(column, table.names.index(column.name)) for column in roles.used]
    M = np.column_stack([p.codes(c) for p, c in zip(parts, roles.used, strict=True)])
    return parts, M


def _part(column: Column, place: int) -> Part:
    categories: list[str] = []
    if column.kind == CATEGORY:
        categories = sorted({cell for cell in column.values if cell is not None})
    missing = int(column.is_missing.sum())
    return Part(
        column.name, place, column.kind, column.style, missing, column.n_unreadable,
        categories=categories,
    )  # fmt: skip


def _with_values(M: np.ndarray, parts: list[Part]) -> np.ndarray:
    """Return the rows with a value in any column."""
    empty = np.array([NO_CATEGORY if part.kind == CATEGORY else np.nan for part in parts])
    return np.flatnonzero(~(np.isnan(M) | (empty == M)).all(axis=1))


def _scales(M: np.ndarray, parts: list[Part]) -> Scales | None:
    """Compare the scales of numbers and dates, and of a share of one half beside them."""
    from probagg.pac.advice import differing_scales  # which loads scikit-learn

    amounts = [j for j, part in enumerate(parts) if part.kind in (NUMBER, DATE)]
    X = M[:, amounts]
    if X.shape[1] and len(amounts) < len(parts):
        half = (np.arange(len(M)) % 2).astype(float)
        X = np.column_stack([X, half])
    found = differing_scales(X, FACTOR) if X.shape[1] else None
    if found is None:
        return None
    places = [*amounts, -1]  # -1: the share
    return replace(found, largest=places[found.largest], smallest=places[found.smallest])


def _groups(parts: list[Part]) -> tuple[list[Part], list[Part], list[Part]]:
    """Return amounts, booleans and categories, which are transformed together."""
    return (
        [part for part in parts if part.kind in (NUMBER, DATE)],
        [part for part in parts if part.kind == BOOLEAN],
        [part for part in parts if part.kind == CATEGORY],
    )


def _new_transformer(parts: list[Part], scaling: str) -> Any:
    """Return the transformer of the parts' columns of M, not fitted."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, RobustScaler, StandardScaler

    scalers = {"standard": StandardScaler, "robust": RobustScaler}
    scaler = scalers[scaling]() if scaling in scalers else "passthrough"
    steps = [("fill", SimpleImputer(strategy="median")), ("scale", scaler)]
    amounts, flags, categories = _groups(parts)
    codes = [np.arange(float(len(part.categories))) for part in categories]
    encoder = OneHotEncoder(categories=codes, handle_unknown="ignore", sparse_output=False)
    steps_of = [
        ("amounts", Pipeline(steps), amounts),
        ("booleans", SimpleImputer(strategy="most_frequent"), flags),
        ("categories", encoder, categories),
    ]
    return ColumnTransformer(
        [(n, t, [parts.index(p) for p in group]) for n, t, group in steps_of if group]
    )


def _learned(parts: list[Part], scaling: str, transformer: Any) -> list[Part]:
    """Return the parts with what the transformers learned."""
    found: dict[str, Part] = {}
    amounts, flags, _ = _groups(parts)
    if amounts:
        steps = transformer.named_transformers_["amounts"].named_steps
        n, scaler = len(amounts), steps["scale"]
        centers, scales = np.zeros(n), np.ones(n)
        if scaling == "standard":
            centers, scales = scaler.mean_, scaler.scale_
        elif scaling == "robust":
            centers, scales = scaler.center_, scaler.scale_
        for j, part in enumerate(amounts):
            found[part.name] = replace(
                part,
                fill=float(steps["fill"].statistics_[j]),
                center=float(centers[j]),
                scale=float(scales[j]),
            )
    if flags:
        fills = transformer.named_transformers_["booleans"].statistics_
        found |= {p.name: replace(p, fill=float(f)) for p, f in zip(flags, fills, strict=True)}
    return [found.get(part.name, part) for part in parts]


def _rebuild(parts: list[Part], scaling: str) -> Any:
    """Return the fitted transformer, from what it learned.

    Imputers and the encoder learn their parameters again from one row that holds them.
    """
    row = np.array([[0.0 if part.kind == CATEGORY else part.fill for part in parts]])
    transformer = _new_transformer(parts, scaling).fit(row)
    amounts = _groups(parts)[0]
    if amounts and scaling != "none":
        scaler = transformer.named_transformers_["amounts"].named_steps["scale"]
        centers = np.array([part.center for part in amounts])
        setattr(scaler, "mean_" if scaling == "standard" else "center_", centers)
        scaler.scale_ = np.array([part.scale for part in amounts])
    return transformer


def profiles_table(
    X: Any, labels: np.ndarray, K: int, columns: list[str] | None, preparation: Preparation | None
) -> str:
    """Return mean and quartiles per cluster, as CSV, of the columns that differ most.

    Those of a table are in its units: dates as dates, and for categories and booleans the share of
    rows, which has no quartiles. Missing values do not count.
    """
    names = columns or places(X.shape[1])
    kinds = ["number"] * X.shape[1] if preparation is None else preparation.kinds
    is_table = preparation is not None
    X, labels = _some(X, labels)
    clusters = [k for k in range(K) if (labels == k).any()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a cluster without any value of a column
        means = np.array([np.nanmean(X[labels == k], 0, dtype=np.float64) for k in clusters])
        spread = np.nanstd(means, 0) / np.maximum(np.nanstd(X, 0, dtype=np.float64), 1e-300)
        shown = np.sort(np.argsort(-spread, kind="stable")[:MOST_COLUMNS])
        rows = []
        for k, mean in zip(clusters, means, strict=True):
            quartiles = np.nanquantile(X[labels == k][:, shown], QUARTILES, axis=0)
            for i, j in enumerate(shown):
                cells = _profile(kinds[j], mean[j], quartiles[:, i])
                rows.append([k, names[j], *cells, *([kinds[j]] * is_table)])
    heads = ["cluster", "column", "mean", "q25", "median", "q75"]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerows([[*heads, *(["kind"] * is_table)], *rows])
    return text.getvalue()


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
    if kind == "share":
        return [_write_number(mean), "", "", ""]
    write = _write_date if kind == "date" else _write_number
    return [write(float(value)) for value in (mean, *quartiles)]


def _write_number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6g}"


def _write_date(value: float) -> str:
    return "" if np.isnan(value) else date_text(np.floor(value))
