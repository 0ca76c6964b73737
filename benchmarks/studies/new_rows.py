"""GraphPAC on rows that it was not fitted to: one random half is fitted, the other predicted.

python -m benchmarks new_rows [--only pendigits] [--seeds 3]

Needs PROBAGG_DATA. Sets are those of `rivals` with 1,000 rows or more. Clusters are matched with
classes on each half by itself.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from statistics import fmean

import numpy as np

from benchmarks.record import Cell, Row
from benchmarks.studies.rivals import LAB, PHOTOS, load
from benchmarks.study import Run, Study
from probagg import GraphPAC, clustering_accuracy

SMALL = ("digits", "moons", "rings", "tail", "tail-category")


def cells(size: str, seeds: int) -> Iterator[Cell]:
    """Yield every run."""
    for data in (*LAB, *PHOTOS, *SMALL) if size != "tiny" else ("moons",):
        yield from (Cell(data, "graph-pac", seed=seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Fit a half and predict the other; return the scores of both."""
    X, y = load(cell.data)
    order = np.random.default_rng(cell.seed).permutation(len(X))
    old, new = np.sort(order[: len(X) // 2]), np.sort(order[len(X) // 2 :])
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GraphPAC(len(np.unique(y)), random_state=cell.seed).fit(X[old])
    seconds = time.perf_counter() - began
    return {
        "acc": clustering_accuracy(y[old], model.labels_),
        "acc_new": clustering_accuracy(y[new], model.predict(X[new])),
        "clusters": model.reason_.partition(":")[0],
        "seconds": seconds,
        "settings": {"rows": len(X), "columns": X.shape[1]},
    }


def lines(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield the mean ACC of both halves, and the largest difference."""
    yield "| ACC | fitted half | new half | difference | largest |"
    yield "|---|---|---|---|---|"
    for data in dict.fromkeys(row.data for row in rows):
        pairs = [(100 * row["acc"], 100 * row["acc_new"]) for row in rows if row.data == data]
        old, new = (fmean(column) for column in zip(*pairs, strict=True))
        largest = max((b - a for a, b in pairs), key=abs)
        yield f"| {data} | {old:.1f} | {new:.1f} | {new - old:+.1f} | {largest:+.1f} |"


STUDY = Study(
    "new_rows", cells, run, seeds=3, shown=("acc", "acc_new"), sizes=("full", "tiny"), lines=lines
)
