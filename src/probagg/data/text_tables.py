"""Tables in text files: which separator, which header, which cells."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from probagg.data.cells import MISSING, guess_numbers, text_cells
from probagg.data.tables import (
    NUMBER,
    TEXT,
    Column,
    Table,
    checked,
    finite,
    places,
    read_parquet,
    unique,
)
from probagg.environment import check_memory
from probagg.errors import NoData, reading
from probagg.storage import read_bytes

MEMORY = 6.0  # bytes per byte of a text file that reading it takes, at least


def read_table(path: Path) -> Table:
    """Return the table in a .csv, .tsv, .txt or .parquet file."""
    return read_parquet(path) if path.suffix.lower() == ".parquet" else read_text(path)


def read_text(path: Path) -> Table:
    """Read cells between semicolons, tabs, commas or spaces; a header line names the columns."""
    with reading(path, "Save it as CSV again.", NoData, "a table"):
        return _parse(path, _decoded(path))


def _parse(path: Path, text: str) -> Table:
    delimiter = _delimiter(text)
    rows = _rows(text, delimiter)
    first = next(rows, [])
    if not first:
        raise NoData(f"{path} is empty: of shape (0, 0). A table of rows and columns is needed.")
    comma_first = delimiter in (";", "\t")
    header = not all(_is_number(cell, comma_first) for cell in first if cell)
    columns: list[np.ndarray] | None = None
    if header or "" not in first:
        columns = _numbers(text, delimiter, header)
    if columns is None or len(columns) != len(first):
        cells = _cells(path, rows if header else _chain(first, rows), len(first))
        if header and _is_data(first, cells):
            header, cells = (
                False,
                [[top, *column] for top, column in zip(first, cells, strict=True)],
            )
        made = [Column("", TEXT, text_cells(column)) for column in cells]
    else:
        made = [Column("", NUMBER, finite(column)) for column in columns]
    names = unique([name.strip() for name in first]) if header else places(len(first))
    made = [replace(column, name=name) for column, name in zip(made, names, strict=True)]
    return checked(Table(str(path), made, is_named=header, comma_first=comma_first))


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
        return data.decode("cp1252", "replace")  # as Excel writes in Western Europe


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


def _chain(first: list[str], rows: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rows


def _is_number(text: str, comma_first: bool) -> bool:
    return guess_numbers(np.array([text.strip()], object), comma_first) is not None


def _numbers(text: str, delimiter: str | None, header: bool) -> list[np.ndarray] | None:
    """Return the columns of a table of nothing but numbers, read fast; None for another."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a header and no rows
            X = np.loadtxt(
                io.StringIO(text), delimiter=delimiter, skiprows=int(header), ndmin=2, quotechar='"'
            )
    except ValueError:
        return None
    return [column.copy() for column in X.T] if len(X) else None


def _cells(path: Path, rows: Iterator[list[str]], width: int) -> list[list[str]]:
    """Return the columns of a table of text."""
    found = []
    for number, row in enumerate(rows):
        if len(row) != width:
            raise NoData(
                f"{path} is not a table: row {number} (counted from 0) has {len(row)} cells, but "
                f"the first line has {width}. Quote cells that contain the separator."
            )
        found.append(row)
    return [list(column) for column in zip(*found, strict=True)] or [[] for _ in range(width)]


def _is_data(first: list[str], cells: list[list[str]]) -> bool:
    """Return whether the first line is a row and not a header: its texts occur below again."""
    texts = [
        (top.strip(), column)
        for top, column in zip(first, cells, strict=True)
        if top.strip().lower() not in MISSING and not _is_number(top, comma_first=True)
    ]
    again = [top in {cell.strip() for cell in column} for top, column in texts]
    return bool(again) and all(again)
