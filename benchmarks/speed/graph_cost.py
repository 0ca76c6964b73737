"""CPU seconds of `PAC` and `GraphPAC` beside one start of k-means; memory.

python -m benchmarks graph_cost [--only blobs graph-pac]

Needs PROBAGG_DATA. The sets are those of `rivals` in memory at once, and two of 100,000 rows of 50
columns: ten groups of unequal size and shape, and principal components of CIFAR-10's SimCLR
features, drawn with replacement and moved by a fiftieth of their deviation. Set OMP_NUM_THREADS=1:
then CPU seconds hardly depend on what else runs. Large sets have a process per run, and "megabytes"
is the most memory of the whole process during the fit.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from benchmarks.data import open_lab_rows
from benchmarks.record import Cell, Row
from benchmarks.studies.rivals import SMALL, Rows, load
from benchmarks.study import Run, Study
from probagg import PAC, GraphPAC, clustering_accuracy

N, D, K = 100_000, 50, 10
METHODS: dict[str, Callable[[int, int], Any]] = {
    "k-means": lambda K, seed: KMeans(K, n_init=1, random_state=seed),
    "pac": lambda K, seed: PAC(K, random_state=seed),
    "graph-pac": lambda K, seed: GraphPAC(K, random_state=seed),
}


def blobs() -> Rows:
    """Return groups that are stretched along some of their axes."""
    rng = np.random.default_rng(0)
    sizes = rng.multinomial(N, rng.dirichlet(np.full(K, 3.0)))
    axes = rng.normal(size=(K, D, D)) * rng.exponential(size=(K, D, 1)) / 7.0
    means = 2.0 * rng.normal(size=(K, D))
    rows = [rng.normal(size=(n, D)) @ axes[k] + means[k] for k, n in enumerate(sizes)]
    return np.concatenate(rows).astype(np.float32), np.repeat(np.arange(K), sizes)


def features() -> Rows:
    """Return principal components of features, more than there are."""
    rng = np.random.default_rng(0)
    X, y, _ = open_lab_rows("cifar10-simclr")
    Z, drawn = PCA(D, random_state=0).fit_transform(X), rng.integers(len(X), size=N)
    return (Z[drawn] + 0.02 * Z.std() * rng.normal(size=(N, D))).astype(np.float32), y[drawn]


LARGE = {"blobs": blobs, "features": features}


@cache
def rows_of(name: str) -> Rows:
    """Return rows and classes."""
    return LARGE[name]() if name in LARGE else load(name)


def cells(size: str, seeds: int) -> Iterator[Cell]:
    """Yield every run; of large sets one seed."""
    names = [name for name in SMALL if name != "blood-cells"]
    for data in (*names, "pendigits", *LARGE) if size != "tiny" else ("iris",):
        for method in METHODS:
            runs = 1 if data in LARGE else seeds
            yield from (Cell(data, method, seed=seed) for seed in range(runs))


def run(cell: Cell, size: str) -> Run:
    """Fit once, a large set in a process of its own."""
    if cell.data not in LARGE:
        return fit(cell)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(fit, cell).result()


def fit(cell: Cell) -> Run:
    """Return seconds, scores and the most memory of a fit."""
    X, y = rows_of(cell.data)
    model = METHODS[cell.method](len(np.unique(y)), cell.seed or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Path("/proc/self/clear_refs").write_text("5")  # resets the most memory
        began, cpu_began = time.perf_counter(), time.process_time()
        model.fit(X)
    found = {
        "cpu_seconds": time.process_time() - cpu_began,
        "seconds": time.perf_counter() - began,
        "acc": clustering_accuracy(y, model.labels_),
        "load": os.getloadavg()[0],
        "settings": {"rows": len(X), "columns": X.shape[1]},
    }
    if cell.data in LARGE:
        status = Path("/proc/self/status").read_text()
        found["megabytes"] = float(status.partition("VmHWM:")[2].split()[0]) / 1024
    return found


def lines(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield the median CPU seconds of each method and set."""
    yield f"| CPU seconds | {' | '.join(METHODS)} |"
    yield "|---|" + "---|" * len(METHODS)
    for data in dict.fromkeys(row.data for row in rows):
        found = [
            [row["cpu_seconds"] for row in rows if (row.data, row.method) == (data, method)]
            for method in METHODS
        ]
        yield f"| {data} | {' | '.join(f'{median(s):.2f}' if s else '' for s in found)} |"


STUDY = Study(
    "graph_cost", cells, run, seeds=3, shown=("cpu_seconds",), sizes=("full", "tiny"), lines=lines
)
