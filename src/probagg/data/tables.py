"""Tables as people have them, read by pandas: columns of numbers, dates, categories and text."""

from __future__ import annotations

import csv
import datetime
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from probagg.environment import check_memory
from probagg.errors import NoData, import_optional, reading
from probagg.storage import open_regular, read_bytes

NUMBER, BOOLEAN, DATE, CATEGORY, TEXT, OTHER = (
    "number", "boolean", "date", "category", "text", "other"
)  # fmt: skip
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
# The names of an index that was written without one.
INDEX_NAMES = ("", "__index_level_0__")
# Bytes of memory that each byte of a text file takes at least, when it is read.
MEMORY = 6.0
# Bytes of memory that each cell takes, as it was read, as a column, and prepared.
CELL = 40.0
MISSING = frozenset(
    ("", "na", "n/a", "n.a.", "nan", "null", "none", "nil", "<na>", "nat", "#n/a", "?", "-", "--")
)
FLAGS = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"})
TRUE, FALSE = ("true", "yes", "t", "y"), ("false", "no", "f", "n")
POINT, COMMA, THOUSANDS = ".", ",", ",000"  # how numbers are written: 1234.5, 1.234,5 and 1,234.5
ISO = "ISO"
DATE_FORMATS = ("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y")
# The share of a column's cells that must be numbers for the others to count as missing.
MOSTLY = 0.9
# The first cells of a column, which rule out most of what it is not.
FIRST = 20
_COMMA = r"[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)(,[0-9]+)?([eE][+-]?[0-9]+)?"
_THOUSANDS = r"[+-]?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)(\.[0-9]+)?"
# With a day, as pandas reads 2024-02 and -5 as dates too, and without a T 20240131 may be a number.
_ISO = r"\d{4}-\d\d-\d\d([T ]\S.*)?|\d{8}T\S+"
_WORDS = re.compile("true|false", re.IGNORECASE)
_DATE = re.compile(r"\d.*[-./ T].*\d")
_KINDS = {  # what pandas infers of a column, whatever its type
    "boolean": BOOLEAN, "integer": NUMBER, "floating": NUMBER, "mixed-integer-float": NUMBER,
    "decimal": NUMBER, "timedelta64": NUMBER, "timedelta": NUMBER, "datetime64": DATE,
    "datetime": DATE, "date": DATE, "string": TEXT, "empty": TEXT,
}  # fmt: skip


def pandas() -> Any:
    """Return the module pandas, or raise an error that says how to install it."""
    return import_optional("pandas", "A table", "table")


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
        return pandas().isna(self.values)

    def read(self, comma_first: bool = False) -> Column:
        """Return a column of text as what it contains: numbers, booleans or dates, if any."""
        if self.kind != TEXT:
            return self
        is_present = ~self.is_missing
        present = self.values[is_present]
        if {cell.lower() for cell in set(present)} in FLAGS:
            return replace(self, kind=BOOLEAN, values=_to_flags(self.values))
        kind, (style, found) = NUMBER, _guess_numbers(present, comma_first)
        if found is None:
            kind, (style, found) = DATE, _guess_dates(present)
        if found is None:
            return self
        values = np.full(len(self.values), np.nan)
        values[is_present] = found
        bad = int(np.isnan(found).sum())
        return replace(self, kind=kind, values=values, style=style, n_unreadable=bad)

    def read_as(self, kind: str, style: str, comma_first: bool | None = None) -> Column:
        """Return the column as a kind that is known; cells that are not of it are missing.

        With `comma_first`, text that is the same kind in another style is read in its own.
        """
        if kind == CATEGORY:
            return replace(self, kind=kind, values=self.texts())
        values, n_missing = self.values, int(self.is_missing.sum())
        if values.dtype == object:
            values = _parse(values, kind, style)
            bad = int(np.isnan(values).sum()) - n_missing
            if bad and comma_first is not None:
                again = self.read(comma_first)
                if again.kind == kind and np.isnan(again.values).sum() < n_missing + bad:
                    values = again.values
        elif kind == DATE and self.kind != DATE:
            values = np.full(len(values), np.nan)
        bad = int(np.isnan(values).sum()) - n_missing
        return replace(self, kind=kind, values=values, style=style, n_unreadable=bad)

    def texts(self) -> np.ndarray:
        """Return the cells as text, None where missing; a whole number has no decimals."""
        if self.values.dtype == object:
            return self.values
        write = date_text if self.kind == DATE else _plain
        return np.array([None if v != v else write(v) for v in self.values.tolist()], object)


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def date_text(days: float) -> str:
    """Return days since 1970 as a date, with the time where there is one."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=days)
    return str(moment.date()) if days == int(days) else moment.isoformat(" ", "seconds")


def _parse(cells: np.ndarray, kind: str, style: str) -> np.ndarray:
    """Return the values of cells of text, NaN where they are not of the kind."""
    if kind == BOOLEAN:
        return _to_flags(cells)
    return _to_days(cells, style) if kind == DATE else _to_numbers(cells, style or POINT)


def _text(cells: Any) -> Any:
    """Return cells as a pandas Series of text, each as a Python object: some are not UTF-8."""
    return pandas().Series(cells, dtype="string[python]")


def _to_flags(cells: np.ndarray) -> np.ndarray:
    """Return 1 for true, yes and 1.0, 0 for false, no and 0.0, NaN otherwise."""
    known = dict.fromkeys(TRUE, 1.0) | dict.fromkeys(FALSE, 0.0)
    flags = _text(cells).str.lower().map(known).to_numpy(np.float64, na_value=np.nan)
    numbers = _to_numbers(cells, POINT)
    return np.where(np.isnan(flags) & np.isin(numbers, (0.0, 1.0)), numbers, flags)


def _guess_numbers(present: np.ndarray, comma_first: bool) -> tuple[str, np.ndarray | None]:
    """Return how a column's numbers are written, and the numbers; None for a column of text.

    At least nine in ten cells must be numbers. "1,234" is 1.234 with `comma_first`, as in a file
    that separates cells by semicolons, and 1234 otherwise.
    """
    for style in (POINT, COMMA, THOUSANDS) if comma_first else (POINT, THOUSANDS, COMMA):
        first = present[:FIRST]
        if np.isfinite(_to_numbers(first, style)).sum() < len(first) / 2:
            continue
        numbers = _to_numbers(present, style)
        if len(present) and np.isfinite(numbers).mean() >= MOSTLY:
            return style, numbers
    return "", None


def _to_numbers(cells: np.ndarray, style: str) -> np.ndarray:
    """Return the numbers in cells of text, NaN where there is none."""
    found = _text(cells).str.replace(r"\s*%$", "", regex=True)
    if style == COMMA:
        found = found.where(found.str.fullmatch(_COMMA))
        found = found.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    elif style == THOUSANDS:
        found = found.where(found.str.fullmatch(_THOUSANDS)).str.replace(",", "", regex=False)
    numbers = pandas().to_numeric(found, errors="coerce")
    return _finite(numbers.to_numpy(np.float64, na_value=np.nan, copy=True))


def _guess_dates(present: np.ndarray) -> tuple[str, np.ndarray | None]:
    """Return the format of a column in which all cells are dates, and the days; None for others."""
    # pandas takes milliseconds for each format.
    if not len(present) or not all(_DATE.search(cell) for cell in present[:FIRST]):
        return "", None
    for style in (ISO, *DATE_FORMATS):
        if np.isnan(_to_days(present[:FIRST], style)).any():
            continue
        days = _to_days(present, style)
        if not np.isnan(days).any():
            return style, days
    return "", None


def _to_days(cells: np.ndarray, style: str) -> np.ndarray:
    """Return days since 1970 of cells with dates, with fractions for times; NaN for others."""
    found = _text(cells)
    # pandas would also read the word "today".
    found = found.where(found.str.fullmatch(_ISO) if style == ISO else found.str.contains(r"\d"))
    form = "ISO8601" if style == ISO else style
    return _days(pandas().to_datetime(found, format=form, errors="coerce", utc=True))


def _days(moments: Any) -> np.ndarray:
    """Return times of a Series as days since 1970, NaN where missing."""
    return _in_days(moments.dt.tz_localize(None).to_numpy("M8[us]"))


def _in_days(values: np.ndarray) -> np.ndarray:
    days = values.astype(np.int64).astype(np.float64) / 86_400e6
    days[np.isnat(values)] = np.nan
    return days


def _finite(values: np.ndarray) -> np.ndarray:
    """Return the array with infinite values as missing, in place."""
    values[~np.isfinite(values)] = np.nan
    return values


@dataclass(frozen=True)
class Table:
    """The columns of a table, all of the same length."""

    kind: ClassVar = "table"

    where: str  # its file, in messages
    columns: list[Column]
    is_named: bool = True  # otherwise columns are known by their place
    comma_first: bool = False  # whether 1,234 is 1.234

    def __post_init__(self) -> None:
        shape = (len(self) if self.columns else 0, len(self.columns))
        if 0 in shape:
            raise NoData(
                f"{self.where} has shape {shape}. At least one row and one column are needed."
            )

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
        # A column without any value is of numbers, all missing.
        columns = [
            column.read_as(NUMBER, POINT) if column.is_missing.all() else column
            for column in self.read().columns
        ]
        others = [column.name for column in columns if column.kind != NUMBER]
        if others:
            raise NoData(
                f"{self.where} has columns that are not numbers: {', '.join(others)}. Leave them "
                "out or encode them."
            )
        return np.column_stack([column.values for column in columns])


def table_of(where: str, columns: Iterable[tuple[Any, Any]]) -> Table:
    """Return a table of named arrays or Series; names that are not text count as places."""
    found = list(columns)
    named = all(isinstance(name, str) for name, _ in found)
    names = unique([str(name) for name, _ in found]) if named else places(len(found))
    made = [_column(name, cells) for name, (_, cells) in zip(names, found, strict=True)]
    return Table(where, made, is_named=named)


def table_of_frame(frame: Any, where: str = "The DataFrame") -> Table:
    """Return a DataFrame of pandas; an index that is more than row numbers comes first."""
    columns, values, name = list(frame.items()), frame.index.to_numpy(), frame.index.name
    is_rows = values.dtype.kind in "iu" and bool((np.diff(values) == 1).all()) and name is None
    if not is_rows and all(isinstance(column, str) for column, _ in columns):
        columns.insert(0, (name if isinstance(name, str) else "", values))
    return table_of(where, columns)


def _column(name: str, cells: Any) -> Column:
    """Return a column of an array or a Series of any type."""
    pd = pandas()
    # With its own type: pandas would turn Python strings into UTF-8, which not all can be.
    cells = pd.Series(cells, dtype=getattr(cells, "dtype", None))
    if isinstance(cells.dtype, pd.CategoricalDtype):
        plain = _column(name, cells.to_numpy())
        return replace(plain, kind=CATEGORY, values=plain.texts())
    found = pd.api.types.infer_dtype(cells, skipna=True)
    kind = _KINDS.get(found, OTHER)
    if kind == OTHER and all(isinstance(cell, Real | Decimal) for cell in cells.dropna()):
        kind = NUMBER
    if kind == TEXT:
        # Stripped, None where missing.
        found = _text(cells).str.strip()
        found = found.where(~found.str.lower().isin(MISSING))
        return Column(name, TEXT, found.to_numpy(object, na_value=None))
    if kind == DATE:
        return Column(name, DATE, _days(pd.to_datetime(cells, utc=True)))
    if found.startswith("timedelta"):
        return Column(name, NUMBER, _in_days(pd.to_timedelta(cells).to_numpy("m8[us]")))
    if kind == OTHER:
        return Column(name, OTHER, np.full(len(cells), None, object))
    return Column(name, kind, _finite(cells.to_numpy(np.float64, na_value=np.nan, copy=True)))


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


def read_table(path: Path) -> Table:
    """Return the table in a .csv, .tsv, .txt or .parquet file."""
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    with reading(path, "Save it as CSV again.", NoData, "a table"):
        return _read_text(path)


def _read_parquet(path: Path) -> Table:
    import_optional("pyarrow", f"Reading {path}", "table")
    parquet = import_optional("pyarrow.parquet", f"Reading {path}", "table")
    with reading(path, "Write the file again.", NoData, "parquet"), open_regular(path) as opened:
        file = parquet.ParquetFile(opened)
        check_memory(
            CELL * file.metadata.num_rows * file.metadata.num_columns,
            f"{path}, unpacked,",
            "Write fewer rows or columns, or numbers as .npy, which is read in parts.",
        )
        return table_of_frame(file.read().to_pandas(ignore_metadata=True), str(path))


def _read_text(path: Path) -> Table:
    """Read cells between semicolons, tabs, commas or spaces; a header line names the columns."""
    text = _decoded(path)
    delimiter = _delimiter(text)
    first = next(_rows(text, delimiter), [])
    if not first:
        raise NoData(f"{path} is empty: of shape (0, 0). A table of rows and columns is needed.")
    comma_first = delimiter in (";", "\t")
    header = not _are_numbers([cell for cell in first if cell]).all()
    numbers = _numbers(text, delimiter, header)
    if numbers is not None and numbers.shape[1] == len(first):
        columns = [
            Column("", NUMBER, _finite(numbers[place].to_numpy(copy=True))) for place in numbers
        ]
    else:
        cells = _cells(path, text, delimiter, header)
        columns = [_column("", cells[place][int(header) :]) for place in cells]
        if header and _is_data(first, columns):
            header, columns = False, [_column("", cells[place]) for place in cells]
    names = unique([name.strip() for name in first]) if header else places(len(first))
    columns = [replace(column, name=name) for column, name in zip(columns, names, strict=True)]
    return Table(str(path), columns, is_named=header, comma_first=comma_first)


def _decoded(path: Path) -> str:
    size = path.stat().st_size
    check_memory(
        MEMORY * size,
        f"{path}, as a table,",
        "Write it as .npy or .parquet, which are read in parts, or split it.",
    )
    data = read_bytes(path)
    if b"\0" in data[:4096]:
        raise NoData(f"{path} cannot be read as text. Save it as CSV in UTF-8.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Excel in Western Europe writes this encoding.
        return data.decode("cp1252", "replace")


def _delimiter(text: str) -> str | None:
    """Return what separates the cells of the first lines evenly; None for spaces."""
    head = "\n".join(text[: 2**16].splitlines()[:20])
    for delimiter in ";\t,|":
        widths = {len(row) for row in _rows(head, delimiter)}
        if len(widths) == 1 and widths != {1}:
            return delimiter
    first = head.partition("\n")[0]
    found = next((d for d in ",;\t" if d in first), None)  # uneven: an error says where
    if found is None and not any(len(line.split()) > 1 for line in head.splitlines()):
        return ","
    return found


def _rows(text: str, delimiter: str | None) -> Iterator[list[str]]:
    """Yield the cells of each line that is not empty."""
    if delimiter is None:
        return (line.split() for line in text.splitlines() if line.strip())
    return (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row)


def _numbers(text: str, delimiter: str | None, header: bool) -> Any:
    """Return a table of nothing but numbers, read fast, as a DataFrame; None for another."""
    if _WORDS.search(text):
        return None  # pandas reads them as 1 and 0
    try:
        return _read_csv(
            text, delimiter, dtype=np.float64, skiprows=int(header), na_values=["nan", "NaN", "NAN"]
        )
    except ValueError:  # pandas' own errors are of this class
        return None


def _cells(path: Path, text: str, delimiter: str | None, header: bool) -> Any:
    """Return the cells of all lines as a DataFrame of text; lines of unequal length are an error.

    pandas does not say which line is too short, but fills it up with empty cells.
    """
    cells, error = None, None
    try:
        cells = _read_csv(text, delimiter, dtype=object, na_filter=False)
    except ValueError as found:
        error = found
    if cells is None or (cells.iloc[:, -1] == "").any():
        first, *others = map(len, _rows(text, delimiter))
        for number, width in enumerate(others, 0 if header else 1):
            if width != first:
                raise NoData(
                    f"{path} is not a table: row {number} (counted from 0) has {width} cells, but "
                    f"the first line has {first}. Quote cells that contain the separator."
                )
    if error is not None:
        raise error
    return cells


def _read_csv(text: str, delimiter: str | None, **options: Any) -> Any:
    return pandas().read_csv(
        io.StringIO(text),
        sep=r"\s+" if delimiter is None else delimiter,
        quoting=csv.QUOTE_NONE if delimiter is None else csv.QUOTE_MINIMAL,
        header=None,
        keep_default_na=False,
        **options,
    )


def _are_numbers(texts: list[str]) -> np.ndarray:
    """Return which texts are numbers in any style."""
    cells = np.array([text.strip() for text in texts], object)
    found = [np.isfinite(_to_numbers(cells, style)) for style in (POINT, COMMA, THOUSANDS)]
    return np.any(found, axis=0)


def _is_data(first: list[str], columns: list[Column]) -> bool:
    """Return whether the first line is a row and not a header: its texts occur below again."""
    texts = [top.strip() for top in first]
    pairs = zip(texts, columns, _are_numbers(texts), strict=True)
    again = [
        top in set(column.values)
        for top, column, is_number in pairs
        if top.lower() not in MISSING and not is_number
    ]
    return bool(again) and all(again)
