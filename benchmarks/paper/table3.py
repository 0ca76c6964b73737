"""Table 3: the methods of Table 2 on features of networks, with rows of length 1.

The features are not the paper's; `data.py` says where they are from. Methods whose time or memory
grows with the square of the number of rows get a random sample; a run records its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import compress
from operator import not_

import numpy as np
from sklearn.preprocessing import normalize

from benchmarks.data import BACKBONE, lab_matrix, load_features
from benchmarks.paper.methods import FOR_FEATURES, ONCE
from benchmarks.paper.table2 import score, some_rows
from benchmarks.record import Cell, Row
from benchmarks.study import Run, Study, beside_paper

NAMES = ("cifar10", "cifar10-byol", "cifar100-20", "imagenette", "imagenet-dogs")
ROWS = {"full": None, "small": 5000, "tiny": 300}
SAMPLE = 10_000  # rows for the methods below
SAMPLED = {"pam", "spectral", "rcc", "hdbscan"}


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table."""
    for data in NAMES if size != "tiny" else ("digits",):
        for method in FOR_FEATURES:
            runs = min(seeds, 1) if method in ONCE else seeds
            yield from (Cell(data, method, seed=seed) for seed in range(runs))


def run(cell: Cell, size: str) -> Run:
    """Cluster the cell's features at a size."""
    X, y, source = unit_rows(cell.data)
    X, y = some_rows(X, y, ROWS[size])
    here = {"features": source, "sample_of": len(X)}
    if cell.method in SAMPLED:
        X, y = some_rows(X, y, SAMPLE)
    found = score(cell, X, y, FOR_FEATURES)
    return {**found, "settings": found["settings"] | here}


@cache
def unit_rows(data: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return normalized features, classes and where the features are from."""
    if data == "digits":
        matrix = lab_matrix(data)
        X, y, source = matrix.X, matrix.y, "pixels"
    else:
        X, y, source = load_features(data)
    return normalize(X), np.asarray(y), source


def lines(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield one line per data set and method, beside the paper's where no labels were seen."""
    labelled = [row.settings["features"] == BACKBONE for row in rows]
    yield from beside_paper(study, compress(rows, map(not_, labelled)))
    yield from beside_paper(replace(study, name=BACKBONE), compress(rows, labelled))


STUDY = Study("table3", cells, run, shown=("acc", "nmi", "ari"), lines=lines)
