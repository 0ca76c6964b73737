"""Known classes of samples from a table; they are only ever reported against."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from probagg.data import NoData

UNKNOWN = -1
_HEADS = {"path", "file", "filename", "name", "image", "row", "index", "label", "class", "y"}


@dataclass(frozen=True)
class Classes:
    """The class of each sample by number; UNKNOWN where nobody said."""

    y: np.ndarray  # (n,) int
    names: list[str]

    @property
    def known(self) -> np.ndarray:
        """(n,) bool."""
        return self.y != UNKNOWN

    def of(self, rows: np.ndarray) -> Classes:
        """The classes of some samples."""
        return Classes(self.y[rows], self.names)

    @classmethod
    def of_text(cls, found: Sequence[str | None]) -> Classes:
        """From a class, or None, for each sample."""
        names = sorted({name for name in found if name is not None})
        number: dict[str | None, int] = {name: k for k, name in enumerate(names)}
        return cls(np.array([number.get(name, UNKNOWN) for name in found], np.int64), names)


def read_labels(path: Path, samples: Sequence[str]) -> Classes:
    """Classes from a CSV file: `path,class` (or `row,class`) lines, or one class a line in order.

    `samples` are the paths or row numbers to find. A sample without a line has no class; a file
    that names none of them is refused.
    """
    rows = _lines(path)
    if len(rows[0]) == 1:
        if len(rows) != len(samples):
            raise NoData(
                f"{path} has {len(rows)} labels for {len(samples)} samples. Give one a line in "
                "the same order, or lines of path,class."
            )
        return Classes.of_text([label or None for (label,) in rows])
    given = {_plain(row[0]): row[1] for row in rows}
    found = [given.get(_plain(sample)) or None for sample in samples]
    if not any(found):
        raise NoData(
            f"{path} names none of the {len(samples)} samples; its first line is for "
            f"{rows[0][0]!r}, the first sample is {samples[0]!r}. Write the names as "
            "assignments.csv has them."
        )
    return Classes.of_text(found)


def _plain(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./")


def _lines(path: Path) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise NoData(f"{path} cannot be read as a table of labels ({error}).") from error
    if rows and {cell.lower() for cell in rows[0]} <= _HEADS:
        rows = rows[1:]
    if not rows:
        raise NoData(f"{path} holds no labels. Give lines of path,class.")
    odd = next((row for row in rows if len(row) != len(rows[0]) or len(row) > 2), None)
    if odd is not None:
        raise NoData(
            f"{path} has the line {','.join(odd)!r}, but lines of path,class are needed, all alike."
        )
    return rows
