"""Known classes of samples from a table; they are used for reporting only."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from probagg.arrays import UNKNOWN
from probagg.errors import NoData, reading, warn_user
from probagg.storage import TEXT, read_bytes, unmarked

# Column names in the order in which they are looked for; "cluster" is of a table of probagg.
_NAME_HEADS = ("path", "file", "filename", "image", "row", "index", "id", "name")
_CLASS_HEADS = ("class", "label", "category", "target", "truth", "y", "cluster")
_DELIMITERS = ",;\t"  # spreadsheets in much of Europe write semicolons


@dataclass(frozen=True)
class Classes:
    """The number of each sample's class, or UNKNOWN."""

    y: np.ndarray  # (n,) int
    names: list[str]
    origin: str = "the known labels"  # where they come from, in words

    @property
    def known(self) -> np.ndarray:
        """Which samples have a class: (n,) bool."""
        return self.y != UNKNOWN

    def of(self, rows: np.ndarray) -> Classes:
        """Return the classes of some samples."""
        return replace(self, y=self.y[rows])

    @classmethod
    def of_text(cls, found: Sequence[str | None]) -> Classes:
        """Number the classes of samples, given as names; None is unknown."""
        names = sorted({name for name in found if name is not None})
        number: dict[str | None, int] = {name: k for k, name in enumerate(names)}
        return cls(np.array([number.get(name, UNKNOWN) for name in found], np.int64), names)


def read_labels(path: Path, samples: Sequence[str], folder: str | None = None) -> Classes:
    """Return the classes in a CSV file with lines of `path,class` or `row,class`, in any order.

    `samples` are the paths or row numbers to find. Under a header that names both columns there
    may be others. Paths may be absolute, or begin with any one folder; `folder` is where the
    samples are, if that is known. A sample without a line has no class; a file that names none of
    them is an error. If the samples are all rows of a matrix, the file may have one class per line
    in their order. For image files it may not: unreadable ones would shift it.
    """
    tables = _tables(path)
    pairs = [rows for rows in tables.values() if all(len(row) == 2 for row in rows)]
    if not pairs:
        return Classes.of_text(_in_order(path, tables, samples))
    named = (_named(path, rows, samples, folder) for rows in pairs)
    found, others = max(named, key=lambda both: len(both[0]))
    if others and any(
        others[0] == row and row[1] not in dict(rest).values() for row, *rest in pairs
    ):
        others = others[1:]  # a header of other words
    if not any(found.values()):
        raise NoData(
            f"{path} names none of the {len(samples)} samples; its first line is for "
            f"{pairs[0][0][0]!r}, the first sample is {samples[0]!r}. Write the names as "
            "in assignments.csv."
        )
    if others:
        lines = "1 line" if len(others) == 1 else f"{len(others):,} lines"
        verb = "matches" if len(others) == 1 else "match"
        warn_user(f"{lines} of {path} {verb} no sample, the first is {others[0][0]!r}.")
    return Classes.of_text([found.get(sample) or None for sample in samples])


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the name and the label of every line of a CSV file (see `read_labels`)."""
    for rows in _tables(path).values():
        if all(len(row) == 2 for row in rows):
            return [(name, label) for name, label in rows]
    raise NoData(f"{path} does not have two columns on each line. Write lines of path,cluster.")


def _tables(path: Path) -> dict[str, list[list[str]]]:
    """Return the rows of cells in a file, without its header, for each possible delimiter."""
    with reading(path, "Write lines of path,class.", NoData, "a table of labels"):
        text = read_bytes(path).decode("utf-8-sig", "surrogateescape")
        first = next((line for line in text.splitlines() if line.strip()), "")
        delimiters = [d for d in _DELIMITERS if d in first] or [","]
        tables = {delimiter: _rows(text, delimiter) for delimiter in delimiters}
    if not all(tables.values()):
        raise NoData(f"{path} contains no labels. Write lines of path,class.")
    return tables


def _rows(text: str, delimiter: str) -> list[list[str]]:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows = [row for row in lines if any(cell.strip() for cell in row)]
    heads = [cell.strip().lower() for cell in rows[0]] if rows else []
    places = _places(heads)
    if places is not None:
        rows = [[row[at] for at in places] if len(row) == len(heads) else row for row in rows]
    header = places is not None or (len(heads) == 1 and heads[0] in _CLASS_HEADS + _NAME_HEADS)
    return [[*row[:-1], _class(row[-1])] for row in rows[header:]]


def _places(heads: list[str]) -> tuple[int, int] | None:
    """Return which columns of a header are the names and the classes; None where it is none.

    >>> _places(["date", "file", "label"]), _places(["path", "breed"]), _places(["a.jpg", "cat"])
    ((1, 2), (0, 1), None)
    """
    names = [heads.index(head) for head in _NAME_HEADS if head in heads]
    classes = [heads.index(head) for head in _CLASS_HEADS if head in heads]
    if names and not classes and len(heads) == 2:
        classes = [1 - names[0]]
    return (names[0], classes[0]) if names and classes else None


def _class(cell: str) -> str:
    """Return a class as printable text: bytes that are not UTF-8 are read as Latin-1."""
    data = unmarked(cell, TEXT).encode("utf-8", "surrogateescape")
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        return data.decode("latin-1").strip()


def _named(
    path: Path, rows: list[list[str]], samples: Sequence[str], folder: str | None
) -> tuple[dict[str, str], list[list[str]]]:
    """Return the class of each sample that a line names, exactly or nearly, and other lines."""
    found: dict[str, str] = {}
    start = _shared_start(path, rows, samples, folder)

    def below(name: str) -> str:
        return _bare(name).removeprefix(start)

    for form in (str, _slashes, _bare, below):
        left = {form(sample): sample for sample in samples if sample not in found}
        found |= {left[form(name)]: label for name, label in rows if form(name) in left}
        rows = [row for row in rows if form(row[0]) not in left]
    return found, rows


def _slashes(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./")


def _bare(name: str) -> str:
    return _slashes(name.strip()).strip()


def _shared_start(
    path: Path, rows: list[list[str]], samples: Sequence[str], folder: str | None
) -> str:
    """Return the folder, with its slash, that most names have before the path of a sample."""
    known, counts = set(map(_bare, samples)), Counter[str]()
    for name, _ in rows:
        parts = _bare(name).split("/")
        for at in range(1, len(parts)):
            if "/".join(parts[at:]) in known:
                counts["/".join(parts[:at]) + "/"] += 1
    home = "" if folder is None else f"{_slashes(folder)}/"
    if home in counts or not counts:
        return home
    (first, most), *rest = counts.most_common(2)
    if rest and rest[0][1] == most:
        raise NoData(
            f"{path} names samples in {first} and as many in {rest[0][0]}. Write their names as in "
            "assignments.csv."
        )
    return first


def _in_order(
    path: Path, tables: dict[str, list[list[str]]], samples: Sequence[str]
) -> list[str | None]:
    """Return the classes of a file with one per line; any other file is an error."""
    delimiter = max(tables, key=lambda d: sum(len(row) == 2 for row in tables[d]))
    rows = tables[delimiter]
    if any(len(row) != 1 for row in rows):
        odd = next(row for row in rows if len(row) != 2)
        raise NoData(
            f"{path} has the line {delimiter.join(odd)!r}, but every line must be path,class, or "
            "have as many cells as a first line that names the columns path and class."
        )
    if list(samples) != [str(row) for row in range(len(samples))]:
        raise NoData(
            f"{path} has one class per line, but image files and rows with an id are matched by "
            "name: write lines of path,class with the names as in assignments.csv."
        )
    if len(rows) == len(samples) + 1 and rows[0] not in rows[1:]:
        rows = rows[1:]  # the first line is a header
    if len(rows) != len(samples):
        raise NoData(
            f"{path} has {len(rows)} labels for {len(samples)} samples. Write one per line in the "
            "same order, or lines of row,class."
        )
    return [label or None for (label,) in rows]
