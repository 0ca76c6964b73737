"""Tables as CSV whose cells no spreadsheet takes for formulas."""

import csv
import io
import re
from typing import Any

# Marks before a cell that a spreadsheet would run: "./" leads to the same file, and an apostrophe
# is what spreadsheets themselves put before text.
PATH, QUOTE = "./", "'"
_FORMULAS = {mark: re.compile(rf"({re.escape(mark)})*[=+\-@\t\r]") for mark in (PATH, QUOTE)}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
# Columns of names of samples: paths, or row numbers and ids, which must match the user's table.
NAMES = ("path", "row", "name", "representative")


def marked(cell: str, mark: str) -> str:
    """Return a cell of a CSV file that no spreadsheet takes for a formula.

    Somebody may have named a photo `=HYPERLINK(...).jpg`. The mark is put before such a cell, and
    before one that has it already, so that `unmarked` takes off exactly what was put there. Numbers
    are not formulas.

    >>> marked("=1+1.jpg", PATH), marked("-1.5", QUOTE)
    ('./=1+1.jpg', '-1.5')
    """
    is_formula = _FORMULAS[mark].match(cell) and not _NUMBER.fullmatch(cell)
    return mark + cell if is_formula else cell


def unmarked(cell: str, mark: str) -> str:
    """Return the cell that was `marked`.

    >>> unmarked("./=1+1.jpg", PATH)
    '=1+1.jpg'
    """
    return cell.removeprefix(mark) if _FORMULAS[mark].match(cell) else cell


def text_table(heads: str, rows: Any, heading: str = "path") -> str:
    """Return rows as CSV under the given column names.

    No cell begins a spreadsheet formula, except for names of samples that are not paths, which
    `heading` says, as in assignments.csv.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(heads.split())
    of_names = PATH if heading == "path" else None
    marks = [of_names if head in NAMES else QUOTE for head in heads.split()]
    for row in rows:
        table.writerow([_cell(cell, mark) for cell, mark in zip(row, marks, strict=True)])
    return text.getvalue()


def _cell(value: Any, mark: str | None) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if mark is None else marked(str(value), mark)
