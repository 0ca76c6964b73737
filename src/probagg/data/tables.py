"""Tables as people have them, read by pandas: columns of numbers, dates, categories and text."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from probagg.environment import check_memory
from probagg.errors import NoData, import_optional, reading
from probagg.storage import open_regular, read_bytes

NUMBER, BOOLEAN, DATE, CATEGORY, TEXT, OTHER = (
    "number", "boolean", "date", "category", "text", "other"
)  # fmt: skip
SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
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
# Text that is not clustered as numbers: 00501; of several units: $, EUR; numbers beside other text.
CODES, AMOUNTS, MIXED = "codes", "amounts", "mixed"
ISO = "ISO"
DATE_FORMATS = ("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y")
# The share of a column's cells that must be numbers for the others to count as missing.
MOSTLY = 0.9
# The share from which on a column of text looks like numbers that could not be read.
HALF = 0.5
# The first cells of a column, which rule out most of what it is not.
FIRST = 20
_COMMA = r"[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)(,[0-9]+)?([eE][+-]?[0-9]+)?"
_THOUSANDS = r"[+-]?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)(\.[0-9]+)?"
# What a number may have before or after it: $2,130.38, 500.00 EUR, 12 %, 3.5 kg, 7cm.
_UNIT = r"^([+-]?)\s*(?:[$€£¥₹]|(?:USD|EUR|GBP|CHF|JPY)\s)\s*|(?<=[0-9])(?:\s*[$€£¥₹%°]|\s+[^\W\d_]{1,3}[²³]?|[a-z]{1,3}[²³]?)$"  # noqa: E501
# Amounts below zero as accountants write them: (4,932.94), $(15.00), 4932.94- and 4932.94- EUR.
_BRACKETS = r"^([^\d(]*)\(\s*(.*?)\s*\)([^\d)]*)$"
_MINUS_LAST = r"^(.*[0-9][^\d.,-]*)-(\s\D*)?$"
# Whole amounts in Switzerland and Germany, which are not below zero: 50.-, 50,-- and 50,- €.
_NO_CENTS = r"(?<=[0-9][.,])(--?|[\u2013\u2014])(?=\s|€|$)"
# What any of these has, and the sign U+2212; few columns do, and others are read faster.
_SIGNS = r"[(\u2013\u2014\u2212]|[^-]-"
# 4 932,94 with a space of any width, and 4'932.94.
_GROUP = r"[\s'\u2019]"
_GROUPED = rf"[+-]?[1-9][0-9]{{0,2}}({_GROUP})[0-9]{{3}}(\1[0-9]{{3}})*([.,][0-9]+)?"
_CODE = r"0[0-9]+"  # a number would lose its first digit
# With a day, as pandas reads 2024-02 and -5 as dates too, and without a T 20240131 may be a number.
_ISO = r"\d{4}-\d\d-\d\d([T ]\S.*)?|\d{8}T\S+"
_DATE = re.compile(r"\d.*[-./ T].*\d")
_KINDS = {  # what pandas infers of a column, whatever its type
    "boolean": BOOLEAN, "integer": NUMBER, "floating": NUMBER, "mixed-integer-float": NUMBER,
    "decimal": NUMBER, "datetime64": DATE, "datetime": DATE, "date": DATE, "string": TEXT,
    "empty": TEXT,
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
    # How its numbers or dates are written, where they were text; CODES, AMOUNTS or MIXED of a text.
    style: str = ""
    unit: str = ""  # what its numbers had beside them: $, EUR, kg
    n_unreadable: int = 0  # cells that are not of the kind of the others, and count as missing

    @property
    def is_index(self) -> bool:
        """Whether this is the index of a DataFrame, written without a name."""
        return self.name in INDEX_NAMES or self.name.startswith("Unnamed: ")

    @property
    def is_missing(self) -> np.ndarray:
        """Which cells have no value, (n,) bool."""
        return pandas().isna(self.values)

    @property
    def known(self) -> np.ndarray:
        """The values of the cells that have one."""
        return self.values[~self.is_missing]

    def read(self, comma_first: bool = False) -> Column:
        """Return a column of text as what it contains: numbers, booleans or dates, if any."""
        if self.kind != TEXT:
            return self
        present = self.known
        if {cell.lower() for cell in set(present)} in FLAGS:
            return replace(self, kind=BOOLEAN, values=_parsed(self.values, BOOLEAN))
        kind, style = NUMBER, _number_style(present, comma_first)
        if style is None:
            kind, style = DATE, _date_style(present)
        if style in (None, CODES, MIXED):
            return replace(self, style=style or "")
        values = _parsed(self.values, kind, style)
        units = _units(self.values, values) if kind == NUMBER else []
        if len(units) > 1:
            return replace(self, style=AMOUNTS)
        bad = int(np.isnan(values).sum()) - (len(values) - len(present))
        unit = "".join(units)
        return replace(self, kind=kind, values=values, style=style, unit=unit, n_unreadable=bad)

    def read_as(self, kind: str, style: str, comma_first: bool) -> Column:
        """Return the column as a kind that is known; cells that are not of it are missing.

        Text is read in that style, or in its own where that reads more cells as this kind.
        """
        if kind == CATEGORY:
            return replace(self, kind=kind, values=self.texts())
        values, unit = self.values, ""
        if values.dtype == object:
            own = self.read(comma_first)
            ways = [_parsed(values, kind, style), *([own.values] if own.kind == kind else [])]
            values = min(ways, key=lambda found: int(np.isnan(found).sum()))
            unit = " and ".join(_units(self.values, values)) if kind == NUMBER else ""
        elif kind == DATE and self.kind != DATE:
            values = np.full(len(values), np.nan)
        bad = int(np.isnan(values).sum() - self.is_missing.sum())
        return replace(self, kind=kind, values=values, style=style, unit=unit, n_unreadable=bad)

    def texts(self) -> np.ndarray:
        """Return the cells as text, None where missing; a whole number has no decimals."""
        if self.values.dtype == object:
            return self.values
        write = {DATE: date_text, BOOLEAN: lambda v: str(bool(v))}.get(self.kind, _plain)
        return np.array([None if v != v else write(v) for v in self.values.tolist()], object)


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def date_text(days: float) -> str:
    """Return days since 1970 as a date, with the time where there is one."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=days)
    return str(moment.date()) if days == int(days) else moment.isoformat(" ", "seconds")


def _text(cells: Any) -> Any:
    """Return cells as a pandas Series of text, each as a Python object: some are not UTF-8."""
    return pandas().Series(cells, dtype="string[python]")


def _parsed(cells: np.ndarray, kind: str, style: str = POINT) -> np.ndarray:
    """Return the values of cells of text, NaN where they are not of the kind."""
    pd, found = pandas(), _text(cells)
    if kind == DATE:
        # pandas would also read the word "today".
        dates = found.str.fullmatch(_ISO) if style == ISO else found.str.contains(r"\d")
        form = "ISO8601" if style == ISO else style
        return _days(pd.to_datetime(found.where(dates), format=form, errors="coerce", utc=True))
    plain = _signed(found).str.replace(_UNIT, r"\1", regex=True)
    grouped = plain.str.fullmatch(_GROUPED).fillna(False)
    if grouped.any():
        plain = plain.where(~grouped, plain.str.replace(_GROUP, "", regex=True))
    if style == COMMA:
        plain = plain.where(plain.str.fullmatch(_COMMA))
        plain = plain.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    elif style == THOUSANDS:
        plain = plain.where(plain.str.fullmatch(_THOUSANDS)).str.replace(",", "", regex=False)
    numbers = _finite(pd.to_numeric(plain, errors="coerce"))
    if kind == NUMBER:
        return numbers
    known = dict.fromkeys(TRUE, 1.0) | dict.fromkeys(FALSE, 0.0)
    flags = found.str.lower().map(known).to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isnan(flags) & np.isin(numbers, (0.0, 1.0)), numbers, flags)


def _signed(cells: Any) -> Any:
    """Return cells with the sign of an amount before it."""
    if not cells.str.contains(_SIGNS).any():
        return cells
    cells = cells.str.replace("\N{MINUS SIGN}", "-", regex=False)
    cells = cells.str.replace(_NO_CENTS, "0", regex=True)
    cells = cells.str.replace(_BRACKETS, r"-\1\2\3", regex=True)
    return cells.str.replace(_MINUS_LAST, r"-\1\2", regex=True)


def _units(cells: np.ndarray, numbers: np.ndarray) -> list[str]:
    """Return the different units of the cells that are numbers."""
    found = _signed(_text(cells[np.isfinite(numbers)]))
    found = found[found != found.str.replace(_UNIT, r"\1", regex=True)]
    return sorted(set(found.str.replace(r"[\d.,+\s'\u2019-]", "", regex=True)))


def _number_style(present: np.ndarray, comma_first: bool) -> str | None:
    """Return how a column's numbers are written, CODES or MIXED; None for a column of text.

    At least nine in ten cells must be numbers. "1,234" is 1.234 with `comma_first`, as in a file
    that separates cells by semicolons, and 1234 otherwise.
    """
    first, is_number = present[:FIRST], np.zeros(len(present), bool)
    for style in (POINT, COMMA, THOUSANDS) if comma_first else (POINT, THOUSANDS, COMMA):
        if np.isfinite(_parsed(first, NUMBER, style)).sum() < len(first) / 2:
            continue
        is_number |= (found := np.isfinite(_parsed(present, NUMBER, style)))
        if len(present) and found.mean() >= MOSTLY:
            return CODES if _text(present).str.fullmatch(_CODE).any() else style
    return MIXED if len(present) and is_number.mean() >= HALF else None


def _date_style(present: np.ndarray) -> str | None:
    """Return the format of a column in which all cells are dates; None for others."""
    # pandas takes milliseconds for each format.
    if len(present) and all(_DATE.search(cell) for cell in present[:FIRST]):
        for style in (ISO, *DATE_FORMATS):
            if not any(np.isnan(_parsed(c, DATE, style)).any() for c in (present[:FIRST], present)):
                return style
    return None


def _days(times: Any) -> np.ndarray:
    """Return dates of a Series as days since 1970, NaN where missing."""
    since = times.dt.tz_localize(None) - pandas().Timestamp(0)
    return (since.dt.as_unit("us") / pandas().Timedelta(days=1)).to_numpy(np.float64)


def _finite(numbers: Any) -> np.ndarray:
    """Return a Series of numbers as float64, NaN where missing or infinite."""
    values = numbers.to_numpy(np.float64, na_value=np.nan, copy=True)
    values[~np.isfinite(values)] = np.nan
    return values


@dataclass(frozen=True)
class Table:
    """The columns of a table, all of the same length."""

    kind: ClassVar = "table"

    where: str  # its file, in messages
    columns: list[Column]
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


def table_of(where: str, columns: Iterable[tuple[Any, Any]]) -> Table:
    """Return a table of named arrays or Series; where names are not text, places are."""
    found = list(columns)
    named = all(isinstance(name, str) for name, _ in found)
    names = unique([str(name) for name, _ in found]) if named else places(len(found))
    return Table(where, [_column(n, cells) for n, (_, cells) in zip(names, found, strict=True)])


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
    if kind == TEXT:
        # Stripped, None where missing.
        found = _text(cells).str.strip()
        found = found.where(~found.str.lower().isin(MISSING))
        return Column(name, TEXT, found.to_numpy(object, na_value=None))
    if kind == DATE:
        return Column(name, DATE, _days(pd.to_datetime(cells, utc=True)))
    if kind == OTHER:
        return Column(name, OTHER, np.full(len(cells), None, object))
    if cells.dtype in (np.int64, np.uint64):
        return Column(name, NUMBER, cells.to_numpy())  # ids of many digits stay as they are
    return Column(name, kind, _finite(cells))


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
    """Read cells between semicolons, tabs, commas or bars.

    The first line names the columns unless it is numbers.
    """
    text = _decoded(path)
    delimiter = delimiter_of(text)
    start = text[: max(2**20, 2 * text.find("\n"))]  # csv copies all that it is given
    lines = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)
    head = list(itertools.islice(filter(None, lines), FIRST + 1))
    first = [cell.strip() for cell in head[0]] if head else []
    styles = (POINT, COMMA, THOUSANDS)
    numbers = [np.isfinite(_parsed(np.array(first, object), NUMBER, style)) for style in styles]
    header = not all(ok or not cell for ok, cell in zip(np.any(numbers, 0), first, strict=True))
    if len(head) < 1 + header:
        raise NoData(f"{path} has no rows. A line of names and at least one row are needed.")
    # Codes such as 00501 stay as they are written; pandas knows the types of other columns.
    codes = {
        place: object
        for place in range(len(first))
        if any(len(row) > place and re.fullmatch(_CODE, row[place].strip()) for row in head)
    }
    missing = [written for word in MISSING for written in (word, word.upper(), word.title())]
    frame = pandas().read_csv(
        io.StringIO(text),
        sep=delimiter,
        header=None,
        skiprows=int(header),
        dtype=codes,
        keep_default_na=False,
        na_values=[*missing, "NaN"],
        low_memory=False,
    )
    if frame.shape[1] != len(first):
        raise NoData(
            f"{path} has rows of {frame.shape[1]} cells, but its first line has {len(first)}. Name "
            "every column."
        )
    names = unique(first) if header else places(len(first))
    found = table_of(str(path), zip(names, (frame[place] for place in frame), strict=True))
    return replace(found, comma_first=delimiter in ";\t")


def _decoded(path: Path) -> str:
    check_memory(
        MEMORY * path.stat().st_size,
        f"{path}, as a table,",
        "Write it as .npy or .parquet, which are read in parts, or split it.",
    )
    data = read_bytes(path)
    if b"\0" in data[:4096]:
        raise NoData(f"{path} cannot be read as text. Save it as CSV in UTF-8.")
    try:
        return data.decode("utf-8-sig").lstrip("\r\n")
    except UnicodeDecodeError:
        # Excel in Western Europe writes this encoding.
        return data.decode("cp1252", "replace").lstrip("\r\n")


def delimiter_of(text: str) -> str:
    """Return what separates the cells of the first lines evenly, or else what is in the first."""
    head = text[: 2**16].splitlines(keepends=True)[:FIRST]
    for delimiter in ";\t,|":
        widths = {len(row) for row in csv.reader(head, delimiter=delimiter) if row}
        if len(widths) == 1 and widths != {1}:
            return delimiter
    return next((d for d in ",;\t" if head and d in head[0]), ",")
