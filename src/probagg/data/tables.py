"""Tables as people have them: named columns of numbers, dates, categories and text."""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from probagg.data.cells import (
    days_of,
    guess_dates,
    guess_flags,
    guess_numbers,
    is_present,
    text_cells,
    to_days,
    to_flags,
    to_numbers,
)
from probagg.environment import check_memory
from probagg.errors import NoData, import_optional, reading

NUMBER, BOOLEAN, DATE, CATEGORY, TEXT, OTHER = (
    "number", "boolean", "date", "category", "text", "other"
)  # fmt: skip
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
INDEX_NAMES = ("", "__index_level_0__")  # of an index that was written without a name


@dataclass(frozen=True)
class Column:
    """A column: numbers, 0 and 1, or days since 1970, NaN where missing; or text, or None."""

    name: str
    kind: str
    values: np.ndarray
    style: str = ""  # how its numbers or dates are written, where they were text
    n_unreadable: int = 0  # cells that are not of the kind of the others, and count as missing

    @property
    def is_index(self) -> bool:
        """Whether this is the index of a DataFrame, written without a name."""
        return self.name in INDEX_NAMES or self.name.startswith("Unnamed: ")

    @property
    def is_missing(self) -> np.ndarray:
        """Which cells have no value, (n,) bool."""
        if self.values.dtype == object:
            return ~is_present(self.values)
        return np.isnan(self.values)

    def read(self, comma_first: bool = False) -> Column:
        """Return a column of text as what it contains: numbers, booleans or dates, if any."""
        if self.kind != TEXT:
            return self
        if (flags := guess_flags(self.values)) is not None:
            return replace(self, kind=BOOLEAN, values=flags)
        if (dates := guess_dates(self.values)) is not None:
            return replace(self, kind=DATE, values=dates[1], style=dates[0])
        if (found := guess_numbers(self.values, comma_first)) is not None:
            bad = int(np.isnan(found[1]).sum() - self.is_missing.sum())
            return replace(self, kind=NUMBER, values=found[1], style=found[0], n_unreadable=bad)
        return self

    def read_as(self, kind: str, style: str, comma_first: bool = False) -> Column:
        """Return the column as a kind that is known; cells that are not of it are missing."""
        if kind == CATEGORY:
            return replace(self, kind=kind, values=self.texts())
        values = self.values
        if values.dtype == object:
            candidates = [_parse(values, kind, style)]
            again = self.read(comma_first)
            if again.kind == kind:
                candidates.append(again.values)
            values = min(candidates, key=lambda found: int(np.isnan(found).sum()))
        elif kind == DATE and self.kind != DATE:
            values = np.full(len(values), np.nan)
        bad = int(np.isnan(values).sum() - self.is_missing.sum())
        return replace(self, kind=kind, values=values, n_unreadable=bad)

    def texts(self) -> np.ndarray:
        """Return the cells as text, None where missing; a whole number has no decimals."""
        if self.values.dtype == object:
            return self.values
        write = date_text if self.kind == DATE else _plain
        return np.array([None if v != v else write(v) for v in self.values.tolist()], object)


def _parse(values: np.ndarray, kind: str, style: str) -> np.ndarray:
    if kind == BOOLEAN:
        return to_flags(values)
    return to_days(values, style) if kind == DATE else to_numbers(values, style or ".")


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def date_text(days: float) -> str:
    """Return days since 1970 as a date, with the time where there is one."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=days)
    return str(moment.date()) if days == int(days) else moment.isoformat(" ", "seconds")


@dataclass(frozen=True)
class Table:
    """The columns of a table, all of the same length; classes are used for reporting only."""

    kind: ClassVar = "table"

    where: str  # its file, in messages
    columns: list[Column]
    is_named: bool = True  # otherwise columns are known by their place
    comma_first: bool = False  # whether 1,234 is 1.234
    y: np.ndarray | None = None
    class_names: list[str] | None = None

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> list[str]:
        """The names of the columns; their places where they have none."""
        return [column.name for column in self.columns]

    def __getitem__(self, name: str) -> Column:
        return self.columns[self.names.index(name)]

    def read(self) -> Table:
        """Return the table with columns of text as what they contain."""
        return replace(self, columns=[column.read(self.comma_first) for column in self.columns])

    def only(self, rows: np.ndarray) -> Table:
        """Return some of the rows."""
        columns = [replace(column, values=column.values[rows]) for column in self.columns]
        return replace(self, columns=columns)

    def matrix(self) -> np.ndarray:
        """Return the columns as one float64 matrix; what is not a number is an error."""
        columns = self.read().columns
        others = [column.name for column in columns if column.kind != NUMBER]
        if others:
            raise NoData(
                f"{self.where} has columns that are not numbers: {', '.join(others)}. Leave them "
                "out or encode them."
            )
        return np.column_stack([column.values for column in columns])


def table_of(where: str, columns: Iterable[tuple[Any, Any]]) -> Table:
    """Return a table of named arrays; names that are not text count as places."""
    found = [(name, values) for name, values in columns]
    named = all(isinstance(name, str) for name, _ in found)
    names = unique([str(name) for name, _ in found]) if named else places(len(found))
    made = [_column(name, v) for name, (_, v) in zip(names, found, strict=True)]
    return checked(Table(where, made, is_named=named))


def table_of_frame(frame: Any) -> Table:
    """Return a pandas or polars DataFrame; an index that is more than row numbers comes first."""
    pairs = list(frame.items()) if hasattr(frame, "items") else zip(
        frame.columns, frame.get_columns(), strict=True
    )  # fmt: skip
    columns = [(name, _Declared(c) if _is_categorical(c) else c.to_numpy()) for name, c in pairs]
    index = getattr(frame, "index", None)
    if index is not None and not _is_row_numbers(index) and all(
        isinstance(name, str) for name, _ in columns
    ):  # fmt: skip
        columns.insert(0, (index.name if isinstance(index.name, str) else "", index.to_numpy()))
    return table_of("The DataFrame", columns)


class _Declared:
    """A column whose type says that it is categorical."""

    def __init__(self, column: Any) -> None:
        self.values = column.to_numpy()


def _is_categorical(column: Any) -> bool:
    return str(column.dtype).lower().startswith(("category", "categorical", "enum"))


def _is_row_numbers(index: Any) -> bool:
    values = index.to_numpy()
    return values.dtype.kind in "iu" and bool((np.diff(values) == 1).all()) and index.name is None


def read_parquet(path: Path) -> Table:
    """Return the table in a Parquet file, read into memory."""
    import_optional("pyarrow", f"Reading {path}", "table")
    parquet = import_optional("pyarrow.parquet", f"Reading {path}", "table")
    with reading(path, "Write the file again.", NoData, "parquet"):
        if not path.is_file():
            raise NoData(f"{path} is not a regular file. Give one.")
        file = parquet.ParquetFile(path)
        check_memory(
            16.0 * file.metadata.num_rows * file.metadata.num_columns,
            f"{path}, unpacked,",
            "Write fewer rows or columns, or a file of numbers only, which PAC reads in parts.",
        )
        return table_of_arrow(file.read(), str(path))


def is_arrow(source: Any) -> bool:
    """Return whether a source is a pyarrow Table."""
    return hasattr(source, "schema") and hasattr(source, "column_names")


def table_of_arrow(table: Any, where: str = "The Arrow table") -> Table:
    """Return a pyarrow Table; dictionaries are categories."""
    pyarrow = import_optional("pyarrow", "An Arrow table", "table")
    columns: list[tuple[str, Any]] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pyarrow.types.is_dictionary(column.type):
            columns.append((name, _Declared(column.cast(column.type.value_type))))
        else:
            columns.append((name, column.to_numpy()))
    return table_of(where, columns)


def _column(name: str, values: Any) -> Column:
    """Return a column of an array of any type."""
    if isinstance(values, _Declared):
        plain = _column(name, values.values)
        return replace(plain, kind=CATEGORY, values=plain.texts())
    kind = values.dtype.kind
    if kind == "b":
        return Column(name, BOOLEAN, values.astype(np.float64))
    if kind in "fiu":
        return Column(name, NUMBER, finite(values.astype(np.float64)))
    if kind in "mM":
        days = values.astype(f"{kind}8[us]").astype(np.float64) / 86_400e6
        days[np.isnat(values)] = np.nan
        return Column(name, DATE if kind == "M" else NUMBER, days)
    if kind in "OUT":
        return _column_of_objects(name, values)
    return Column(name, OTHER, np.full(len(values), None, object))


def _column_of_objects(name: str, values: np.ndarray) -> Column:
    """Return a column of Python objects, which are all of one kind or are text."""
    missing = np.array([_is_missing(value) for value in values], bool)
    present = [value for value, none in zip(values, missing, strict=True) if not none]
    found = np.full(len(values), np.nan)
    if present and all(isinstance(v, bool | np.bool_) for v in present):
        found[~missing] = np.array(present, float)
        return Column(name, BOOLEAN, found)
    if present and all(isinstance(v, numbers.Number) for v in present):
        if any(isinstance(v, complex | np.complexfloating) for v in present):
            return Column(name, OTHER, np.full(len(values), None, object))
        found[~missing] = np.array([float(v) for v in present])
        return Column(name, NUMBER, finite(found))
    if present and all(isinstance(v, datetime.date) for v in present):
        found[~missing] = [days_of(v) for v in present]
        return Column(name, DATE, found)
    if all(isinstance(v, str) for v in present):
        texts = ["" if none else v for v, none in zip(values, missing, strict=True)]
        return Column(name, TEXT, text_cells(texts))
    return Column(name, OTHER, np.full(len(values), None, object))


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def finite(values: np.ndarray) -> np.ndarray:
    """Return the array with infinite values as missing, in place."""
    values[~np.isfinite(values)] = np.nan
    return values


def checked(table: Table) -> Table:
    """Return a table that has rows and columns."""
    if not table.columns or not len(table):
        raise NoData(
            f"{table.where} has shape ({len(table) if table.columns else 0}, "
            f"{len(table.columns)}). At least one row and one column are needed."
        )
    return table


def unique(names: list[str]) -> list[str]:
    """Return the names with a number after those that occur before.

    >>> unique(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def places(width: int) -> list[str]:
    """Return names for columns that have none."""
    return [f"column {place}" for place in range(width)]
