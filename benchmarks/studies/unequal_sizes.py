"""Classes of unequal size: PAC and OPA at each balance, beside k-means, mixtures and graph cuts.

The sizes of the classes fall geometrically by 1, 5, 10 or 50 from the largest to the smallest, in a
random order of the classes that is the seed's; at 1 rows are drawn at random. At size small 3,000
rows at most, at size tiny 300. `pac_balance.py` has more data.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable

import numpy as np

from benchmarks.paper.methods import kmeans_of_ten, mixture, spectral
from benchmarks.paper.table2 import digest
from benchmarks.record import Cell
from benchmarks.studies.pac_balance import read, tail
from benchmarks.study import Run, Study
from probagg import PAC, OPAHead
from probagg.metrics import evaluate

NAMES = {
    "full": ("pendigits", "mnist-test"),
    "small": ("pendigits", "mnist-test"),
    "tiny": ("digits",),
}
RATIOS = ("1", "5", "10", "50")
BALANCES = ("0", "0.5", "1", "2")
OTHERS = {"kmeans": kmeans_of_ten, "gmm": mixture, "spectral": spectral}
ROWS = {"full": 6000, "small": 3000, "tiny": 300}
EPOCHS = {"full": 100, "small": 100, "tiny": 5}


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run; its setting is the ratio of the largest class to the smallest."""
    methods = [*OTHERS, *(f"{way} {balance}" for way in ("pac", "opa") for balance in BALANCES)]
    for data in NAMES[size]:
        for ratio in RATIOS:
            for method in methods:
                yield from (Cell(data, method, ratio, seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Cluster the rows of a seed by one method."""
    X, y, metric = read(cell.data)
    rng = np.random.default_rng(cell.seed)
    kept = tail(y, float(cell.setting), rng)
    if len(kept) > ROWS[size]:
        kept = rng.permutation(kept)[: ROWS[size]]
    X, y = X[kept], y[kept]
    K = len(np.unique(y))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sizes look forced is a result here
        if cell.method in OTHERS:
            labels = OTHERS[cell.method](X, K, cell.seed)
        else:
            way, balance = cell.method.split()
            model = estimator(way, K, metric, float(balance), cell.seed, EPOCHS[size])
            labels = model.fit(X).labels_
    seconds = time.perf_counter() - began
    sizes = np.sort(np.bincount(y))[::-1].tolist()
    return {
        **evaluate(y, labels),
        "seconds": seconds,
        "settings": {"rows": len(X), "sizes": sizes, "hash": digest(X)},
    }


def estimator(
    way: str, K: int, metric: str, balance: float, seed: int, epochs: int
) -> PAC | OPAHead:
    """Return PAC or an OPA head at a balance."""
    if way == "pac":
        return PAC(K, metric=metric, balance=balance, random_state=seed)
    return OPAHead(K, metric=metric, balance=balance, max_epochs=epochs, random_state=seed)


STUDY = Study("unequal_sizes", cells, run, seeds=5, shown=("acc", "nmi"))
