"""Known classes of samples from a table; they are used for reporting only."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from probagg.arrays import UNKNOWN
from probagg.data.cells import QUOTE, unmarked
from probagg.data.tables import delimiter_of
from probagg.errors import NoData, reading, warn_user
from probagg.storage import read_bytes

# Column names in the order in which they are looked for; "cluster" is of a table of probagg.
_NAME_HEADS = ("path", "file", "filename", "image", "row", "index", "id", "name")
_CLASS_HEADS = ("class", "label", "category", "target", "truth", "y", "cluster")


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

    def texts(self) -> list[str | None]:
        """Return the name of each sample's class, None where it is unknown."""
        return [self.names[k] if k != UNKNOWN else None for k in self.y]

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
    may be others. Paths may begin with the folder of the samples, or all with one folder. A sample
    without a line has no class; a file that names none of them is an error. If the samples are all
    rows of a matrix, the file may have one class per line in their order. For image files it may
    not: unreadable ones would shift it.
    """
    rows = _rows(path)
    if all(len(row) == 1 for row in rows):
        return Classes.of_text(_in_order(path, [label for (label,) in rows], samples))
    pairs = _pairs(path, rows)
    found, others = _named(pairs, samples, folder)
    if not any(found.values()):
        raise NoData(
            f"{path} names none of the {len(samples)} samples; its first line is for "
            f"{pairs[0][0]!r}, the first sample is {samples[0]!r}. Write the names as in "
            "assignments.csv."
        )
    if others[:1] == pairs[:1]:
        others = others[1:]  # a header of other words
    if others:
        lines = "1 line" if len(others) == 1 else f"{len(others):,} lines"
        verb = "matches" if len(others) == 1 else "match"
        warn_user(f"{lines} of {path} {verb} no sample, the first is {others[0][0]!r}.")
    return Classes.of_text([found.get(sample) or None for sample in samples])


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the name and the label of every line of a CSV file (see `read_labels`)."""
    return _pairs(path, _rows(path))


def _rows(path: Path) -> list[list[str]]:
    """Return the cells of each line: without a header that is known, and only names and classes."""
    with reading(path, "Write lines of path,class.", NoData, "a table of labels"):
        text = read_bytes(path).decode("utf-8-sig", "surrogateescape")
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text))
        rows = [row for row in lines if any(cell.strip() for cell in row)]
    heads = [cell.strip().lower() for cell in rows[0]] if rows else []
    places = _places(heads)
    if places is not None:
        rows = [[row[at] for at in places] if len(row) == len(heads) else row for row in rows]
    header = places is not None or (len(heads) == 1 and heads[0] in _CLASS_HEADS + _NAME_HEADS)
    if not rows[header:]:
        raise NoData(f"{path} contains no labels. Write lines of path,class.")
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
    """Return a class as printable text, also where its bytes are not UTF-8."""
    return unmarked(cell, QUOTE).encode("utf-8", "surrogateescape").decode(errors="replace").strip()


def _pairs(path: Path, rows: list[list[str]]) -> list[tuple[str, str]]:
    if odd := next((row for row in rows if len(row) != 2), None):
        raise NoData(
            f"{path} has the line {','.join(odd)!r}, but every line must be path,class, or have as "
            "many cells as a first line that names the columns path and class."
        )
    return [(name, label) for name, label in rows]


def _named(
    pairs: list[tuple[str, str]], samples: Sequence[str], folder: str | None
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the class of each sample that a line names, exactly or nearly, and other lines."""
    found: dict[str, str] = {}
    home = "" if folder is None else f"{_plain(folder)}/"
    names = [_plain(name) for name, _ in pairs]
    if not any(name.startswith(home) for name in names) or not home:
        home = f"{os.path.commonpath(names)}/" if len({n[:1] == "/" for n in names}) == 1 else ""

    def below(name: str) -> str:
        return _plain(name).removeprefix(home)

    for form in (str, _plain, below):
        left = {form(sample): sample for sample in samples if sample not in found}
        found |= {left[form(name)]: label for name, label in pairs if form(name) in left}
        pairs = [(name, label) for name, label in pairs if form(name) not in left]
    return found, pairs


def _plain(name: str) -> str:
    return name.strip().replace("\\", "/").removeprefix("./").strip()


def _in_order(path: Path, labels: list[str], samples: Sequence[str]) -> list[str | None]:
    """Return the classes of a file with one per line."""
    if list(samples) != [str(row) for row in range(len(samples))]:
        raise NoData(
            f"{path} has one class per line, but image files and rows with an id are matched by "
            "name: write lines of path,class with the names as in assignments.csv."
        )
    if len(labels) == len(samples) + 1 and labels[0] not in labels[1:]:
        labels = labels[1:]  # the first line is a header
    if len(labels) != len(samples):
        raise NoData(
            f"{path} has {len(labels)} labels for {len(samples)} samples. Write one per line in "
            "the same order, or lines of row,class."
        )
    return [label or None for label in labels]
