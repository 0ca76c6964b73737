"""Table 1: rows, classes and dimensions of each data set as loaded here, beside the paper's.

Sets that the library can fetch are fetched where $PROBAGG_DATA has no copy (STL-10 is 2.5 GB). A
set that is not found is recorded as such, with where to get it; `--again` looks once more.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.data import lab_matrix, open_lab_images
from benchmarks.paper.expected import expected, misprint
from benchmarks.paper.table2 import digest
from benchmarks.record import Cell, Row
from benchmarks.study import Run, Study
from probagg.errors import NoData

METHOD = "load"
MATRICES = ("digits", "pendigits", "isolet", "mnist-test", "coil100")
QUANTITIES = ("samples", "classes", "dimension", "height", "width")


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every data set; at the tiny size the one that comes with scikit-learn."""
    for data in expected("table1") if size != "tiny" else ("digits",):
        yield Cell(data, METHOD)


def run(cell: Cell, size: str) -> Run:
    """Load a data set; return its sizes, or why it is not there."""
    try:
        return {
            "found": True,
            **(_matrix if cell.data in MATRICES else _images)(cell.data),
        }
    except NoData as error:
        return {"found": False, "why": str(error)}


def _matrix(name: str) -> Run:
    matrix = lab_matrix(name)
    samples, dimension = matrix.X.shape
    sizes = {"samples": samples, "classes": len(np.unique(matrix.y)), "dimension": dimension}
    return {**sizes, "settings": {"hash": digest(matrix.X)}}


def _images(name: str) -> Run:
    images = open_lab_images(name)
    height, width = images.size
    classes = len(np.unique(images.y))
    sizes = {"samples": len(images), "classes": classes, "height": height, "width": width}
    return {**sizes, "settings": {"hash": images.fingerprint()}}


def beside_paper(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield one line per data set: ours, and the paper's where it differs."""
    for row in rows:
        sizes = ", ".join(_beside(row, each) for each in QUANTITIES if each in row.values)
        marked = misprint("table1", row.data, "samples")
        note = f"; {marked.why}" if marked else ""
        yield f"{row.data:14} {sizes or 'not found: ' + row['why']}{note}"


def _beside(row: Row, quantity: str) -> str:
    ours = row[quantity]
    theirs = expected("table1").get(row.data, row)[quantity]
    return f"{quantity} {ours:,}" + ("" if ours == theirs else f" (paper {theirs:,})")


STUDY = Study("table1", cells, run, seeds=1, lines=beside_paper)
