"""Text that a spreadsheet would run as a formula, marked in CSV files so that it does not.

Somebody may have named a photo `=HYPERLINK(...).jpg`. A mark is put before such a cell, and before
one that has it already, so that reading takes off exactly what writing put there. Numbers are not
formulas.

>>> marked("=1+1.jpg", PATH), plain("./=1+1.jpg", PATH), marked("-1.5", TEXT)
('./=1+1.jpg', '=1+1.jpg', '-1.5')
"""

from __future__ import annotations

import re

PATH = "./"  # leads to the same file
TEXT = "'"  # what spreadsheets themselves put before text
_FORMULAS = {mark: re.compile(rf"({re.escape(mark)})*[=+\-@\t\r]") for mark in (PATH, TEXT)}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def marked(cell: str, mark: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    is_formula = _FORMULAS[mark].match(cell) and not _NUMBER.fullmatch(cell)
    return mark + cell if is_formula else cell


def plain(cell: str, mark: str) -> str:
    """Return the cell that was `marked`."""
    return cell.removeprefix(mark) if _FORMULAS[mark].match(cell) else cell
