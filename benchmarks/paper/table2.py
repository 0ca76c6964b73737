"""Table 2: eight methods of the paper, and five more, on raw features."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable

import numpy as np

from benchmarks.data import lab_matrix
from benchmarks.paper.methods import METHODS, ONCE, Methods
from benchmarks.record import Cell
from benchmarks.study import Run, Study
from probagg.metrics import evaluate
from probagg.storage import fingerprint

NAMES = ("pendigits", "isolet", "mnist-test", "coil100")
ROWS = {"full": None, "small": 2000, "tiny": 300}


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table."""
    for data in NAMES if size != "tiny" else ("digits",):
        for method in METHODS:
            runs = min(seeds, 1) if method in ONCE else seeds
            yield from (Cell(data, method, seed=seed) for seed in range(runs))


def run(cell: Cell, size: str) -> Run:
    """Cluster the cell's data at a size."""
    X, y = some_rows(*_arrays(cell.data), ROWS[size])
    return score(cell, X, y)


def score(cell: Cell, X: np.ndarray, y: np.ndarray, methods: Methods = METHODS) -> Run:
    """Cluster rows by the cell's method; return scores, times and settings."""
    K = len(np.unique(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began, cpu_began = time.perf_counter(), time.process_time()
        labels = methods[cell.method](X, K, cell.seed)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    times = {"seconds": seconds, "cpu_seconds": cpu_seconds}  # a busy machine shows in the first
    found = {**evaluate(y, labels), **times, "clusters": len(np.unique(labels))}
    return {**found, "settings": {"rows": len(X), "columns": X.shape[1], "hash": digest(X)}}


def _arrays(data: str) -> tuple[np.ndarray, np.ndarray]:
    matrix = lab_matrix(data)
    assert matrix.y is not None
    return matrix.X, matrix.y


def some_rows(X: np.ndarray, y: np.ndarray, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return all rows, or the same random ones at every call, in the order of the file."""
    if most is None or len(X) <= most:
        return X, y
    rows = np.sort(np.random.default_rng(0).choice(len(X), most, replace=False))
    return X[rows], y[rows]


def digest(X: np.ndarray) -> str:
    """Return a hash of the rows."""
    return fingerprint([memoryview(np.ascontiguousarray(X)).cast("B")])


STUDY = Study("table2", cells, run, shown=("acc", "nmi", "ari"))
