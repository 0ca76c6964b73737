"""Figure 1: ACC of PAC and FCM on Pendigits by the weighting exponent m.

The paper's values are in its picture only. At and above the predicted critical m, uniform
probabilities are stable: PAC's labels are then the largest of nearly equal probabilities, and their
ACC says little. `docs/make_fig1_figure.py` draws the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

import numpy as np

from benchmarks.data import lab_matrix
from benchmarks.paper.methods import fcm, pac
from benchmarks.paper.table2 import ROWS, score, some_rows
from benchmarks.record import Cell
from benchmarks.study import Run, Study
from probagg.aggregation import critical_m

EXPONENTS = (1.01, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4, 1.5, 1.6, 1.8, 2.0)
FEW = (1.03, 1.3, 2.0)


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the figure."""
    data, exponents = ("digits", FEW) if size == "tiny" else ("pendigits", EXPONENTS)
    for method in ("pac", "fcm"):
        for m in exponents:
            yield from (Cell(data, method, str(m), seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Cluster the data at the cell's m."""
    X, y, predicted = rows(cell.data, size)
    m = float(cell.setting)
    methods = {"pac": partial(pac, m=m), "fcm": partial(fcm, m=m)}
    return {**score(cell, X, y, methods), "critical_m": predicted}


@cache
def rows(data: str, size: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Return rows, classes and PAC's predicted critical m."""
    matrix = lab_matrix(data)
    assert matrix.y is not None
    X, y = some_rows(matrix.X, matrix.y, ROWS[size])
    return X, y, critical_m(X)


STUDY = Study("fig1", cells, run)
