"""The cells of a column of text as numbers, booleans or dates."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence

import numpy as np

MISSING = frozenset(
    ("", "na", "n/a", "n.a.", "nan", "null", "none", "nil", "<na>", "nat", "#n/a", "?", "-", "--")
)
TRUE, FALSE = frozenset(("true", "yes", "t", "y", "1")), frozenset(("false", "no", "f", "n", "0"))
POINT, COMMA, THOUSANDS = ".", ",", ",000"  # how numbers are written: 1234.5, 1.234,5 and 1,234.5
ISO = "ISO"
DATE_FORMATS = ("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y")
MOSTLY = 0.9  # of the cells of a column that must be numbers for the others to be missing values
FIRST = 20  # cells of a column that rule out what it is not
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1)


def text_cells(values: Sequence[object]) -> np.ndarray:
    """Return stripped text, None where a cell is missing, as an object array."""
    cells = np.empty(len(values), object)
    for i, value in enumerate(values):
        text = str(value).strip()
        cells[i] = None if text.lower() in MISSING else text
    return cells


def is_present(cells: np.ndarray) -> np.ndarray:
    """Return which cells have text, (n,) bool."""
    return np.array([cell is not None for cell in cells], bool)


def guess_numbers(cells: np.ndarray, comma_first: bool) -> tuple[str, np.ndarray] | None:
    """Return how a column's numbers are written, and their values; None for a column of text.

    Cells that are not numbers are NaN; at least nine in ten must be numbers. "1,234" is 1.234 with
    `comma_first`, as in a file that separates cells by semicolons, and 1234 otherwise.
    """
    present = cells[is_present(cells)]
    styles = (POINT, COMMA, THOUSANDS) if comma_first else (POINT, THOUSANDS, COMMA)
    for style in styles:
        if np.isfinite(to_numbers(present[:FIRST], style)).sum() < min(len(present), FIRST) / 2:
            continue
        values = to_numbers(cells, style)
        if len(present) and np.isfinite(values).sum() >= MOSTLY * len(present):
            return style, values
    return None


def to_numbers(cells: np.ndarray, style: str) -> np.ndarray:
    """Return the numbers in cells of text, NaN where there is none."""
    clean: Callable[[str], str] = str
    if style == COMMA:
        clean = _from_comma
    elif style == THOUSANDS:
        clean = _from_thousands
    return np.array([_number(cell, clean) for cell in cells], np.float64)


def _number(cell: str | None, clean: Callable[[str], str]) -> float:
    if cell is None:
        return np.nan
    try:
        value = float(clean(cell[:-1].rstrip() if cell.endswith("%") else cell))
    except ValueError:
        return np.nan
    return value if np.isfinite(value) else np.nan


def _from_comma(text: str) -> str:
    return text.replace(".", "").replace(",", ".") if _COMMA.fullmatch(text) else "none"


def _from_thousands(text: str) -> str:
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else "none"


def to_flags(cells: np.ndarray) -> np.ndarray:
    """Return 1 for true and yes, 0 for false and no, NaN otherwise."""
    known = dict.fromkeys(TRUE, 1.0) | dict.fromkeys(FALSE, 0.0)
    return np.array([np.nan if c is None else known.get(c.lower(), np.nan) for c in cells], float)


def guess_flags(cells: np.ndarray) -> np.ndarray | None:
    """Return the values of a column that is true or false, or yes or no; None for another."""
    present = {cell.lower() for cell in set(cells.tolist()) - {None}}
    pairs = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"})
    return to_flags(cells) if present in pairs else None


def guess_dates(cells: np.ndarray) -> tuple[str, np.ndarray] | None:
    """Return the format of a column of dates and its days since 1970; None for another."""
    present = is_present(cells)
    first = cells[present][:FIRST]
    for style in (ISO, *DATE_FORMATS):
        if len(first) and not np.isnan(to_days(first, style)).any():
            days = to_days(cells, style)
            if not np.isnan(days[present]).any():
                return style, days
    return None


def to_days(cells: np.ndarray, style: str) -> np.ndarray:
    """Return days since 1970 of cells with dates, with fractions for times; NaN for others."""
    return np.array([np.nan if cell is None else _day(cell, style) for cell in cells], float)


def _day(cell: str, style: str) -> float:
    try:
        if style == ISO:
            if "-" not in cell and "T" not in cell:  # 20240131 may be any number
                return np.nan
            return days_of(datetime.datetime.fromisoformat(cell))
        return days_of(datetime.datetime.strptime(cell, style))
    except ValueError:
        return np.nan


def days_of(moment: datetime.date) -> float:
    """Return the days from 1970 to a date or a time; a time with a zone is in UTC.

    >>> days_of(datetime.date(1970, 1, 3))
    2.0
    """
    if not isinstance(moment, datetime.datetime):
        moment = datetime.datetime(moment.year, moment.month, moment.day)
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) / datetime.timedelta(days=1)
