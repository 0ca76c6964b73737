"""From the columns of a table to numbers of comparable scale, and the same again for new rows.

scikit-learn's transformers do the work. What they learned is saved as plain JSON, one entry per
column, and they are rebuilt from it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probagg.app.run.columns import Roles, assign_roles
from probagg.app.run.describing import describe_column, describe_preparation, few
from probagg.app.run.transformers import (
    NO_CATEGORY,
    Part,
    groups,
    learned,
    new_transformer,
    rebuild,
)
from probagg.data.tables import CATEGORY, DATE, NUMBER, Column, Table
from probagg.errors import InputError, NoData, reading
from probagg.storage import read_bytes
from probagg.svg import short

if TYPE_CHECKING:
    from probagg.pac.advice import Scales

FORMAT = "probagg.preparation/1"
FILE = "preparation.json"
AGAIN = "Copy the whole run folder there again."
SCALINGS = ("auto", "standard", "robust", "none")
FACTOR = 10.0  # between scales, from which "auto" standardises


@dataclass(frozen=True)
class Prepared:
    """Rows of a table as numbers: to cluster, and in the user's units."""

    X: np.ndarray  # (n, outputs)
    rows: np.ndarray  # of the table, those with any value
    names: list[str] | None  # the id of each of its rows
    units: np.ndarray  # (n, outputs) in the user's units, NaN where missing; shares as 0 and 1
    lines: list[str]


@dataclass(frozen=True)
class Preparation:
    """How the columns of a table become numbers."""

    columns: list[str]  # of the table, in its order
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
        if len(rows) < len(table):  # which are neither counted as missing nor judged
            table = table.only(rows)
            roles = replace(assign_roles(table, roles.id, drop, classes), why_id=roles.why_id)
            parts, M = _parts(table, roles)
        scales, why = None, "as asked"
        if scale == "auto":
            scales = _scales(M, parts)
            scale = "none" if scales is None else "standard"
            why = _why(scales, parts)
        transformer = new_transformer(parts, scale).fit(M)
        parts = learned(parts, scale, transformer)
        made = cls(table.names, table.is_named, roles.id, scale, parts, roles.left_out, [])
        lines = describe_preparation(made, why, roles.why_id, n_rows - len(rows))
        made = replace(made, lines=lines)
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
        return self._prepared(M[rows], rows, rebuild(self.parts, self.scaling), ids, lines)

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
    def _groups(self) -> list[Part]:
        """The parts in the order of the transformed columns."""
        return [part for group in groups(self.parts) for part in group]

    @property
    def outputs(self) -> list[str]:
        """The names of the columns of X."""
        return [name for part in self._groups for name in part.outputs]

    @property
    def kinds(self) -> list[str]:
        """What each column of `Prepared.units` shows: a number, a date or a share."""
        kinds = {NUMBER: "number", DATE: "date"}
        return [kinds.get(part.kind, "share") for part in self._groups for _ in part.outputs]

    def _prepared(
        self, M: np.ndarray, rows: np.ndarray, transformer: Any, ids: Any, lines: list[str]
    ) -> Prepared:
        if not len(rows):
            raise NoData("No row has a value in any column of the run. Give rows with values.")
        X = np.asarray(transformer.transform(M), np.float64)
        units, place = [], {part.name: j for j, part in enumerate(self.parts)}
        for part in self._groups:
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
    def from_json(cls, text: str) -> Self:
        """Return the preparation that `to_json` wrote."""
        with reading(FILE, AGAIN):
            return cls._parse(text)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the preparation in a file that holds what `to_json` wrote."""
        with reading(path, AGAIN):
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
        rebuild(parts, made.scaling)
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
