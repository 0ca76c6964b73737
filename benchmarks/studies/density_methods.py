"""EVoC and fast_hdbscan, which find the number of clusters and leave rows as noise, beside PAC.

python -m benchmarks density_methods [NAME ...]

Needs PROBAGG_DATA, evoc and fast_hdbscan[nndescent].

PAC and k-means are given the number of classes; k-means keeps the best of ten starts by inertia.
EVoC runs as it is by default, and with `approx_n_clusters`; HDBSCAN's smallest cluster is a
twentieth of the mean class, as in Table 2. Rows left as noise count as wrong in ACC and as one
cluster in NMI. HDBSCAN gets a random 10,000 rows where there are more. Seconds are CPU time of the
process, without numba's compilation.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.data import open_lab_rows
from benchmarks.record import Cell, record
from probagg import PAC, evaluate

NAMES = ("pendigits", "isolet", "mnist-test", "cifar10-simclr")
SEEDS = {"PAC": 5, "EVoC": 2, "EVoC, asked for K": 2}  # the others: one run
MOST_ROWS = {"fast_hdbscan": 10_000}


def methods(K: int, n: int, metric: str) -> dict[str, Callable[[np.ndarray, int], np.ndarray]]:
    """Return the methods as functions of rows and seed."""
    from evoc import EVoC
    from fast_hdbscan import HDBSCAN

    smallest = max(5, n // (20 * K))
    return {
        "PAC": lambda X, seed: PAC(K, m="auto", metric=metric, random_state=seed).fit_predict(X),
        "k-means, best of ten": lambda X, seed: KMeans(K, n_init=10, random_state=seed).fit_predict(
            X
        ),
        "EVoC": lambda X, seed: EVoC(random_state=seed).fit_predict(X),
        "EVoC, asked for K": lambda X, seed: EVoC(
            approx_n_clusters=K, random_state=seed
        ).fit_predict(X),
        "fast_hdbscan": lambda X, seed: HDBSCAN(min_cluster_size=smallest).fit_predict(X),
    }


def scores(y: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return ACC, NMI, the share of rows left as noise and the number of clusters."""
    noise = labels < 0
    found = evaluate(y, labels)
    acc = 0.0 if noise.all() else evaluate(y[~noise], labels[~noise])["acc"] * (~noise).mean()
    n_clusters = len(np.unique(labels[~noise]))
    return {"acc": acc, "nmi": found["nmi"], "noise": noise.mean(), "n_clusters": n_clusters}


def main() -> None:
    """Print and record every run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    warnings.simplefilter("ignore")
    warm = np.random.default_rng(0).normal(size=(2000, 20)).astype(np.float32)
    for fit in methods(5, len(warm), "sqeuclidean").values():  # numba compiles at the first call
        fit(warm, 0)
    rows = []
    for name in parser.parse_args().names:
        X, y, metric = open_lab_rows(name)
        for method, fit in methods(len(np.unique(y)), len(X), metric).items():
            for seed in range(SEEDS.get(method, 1)):
                some = np.random.default_rng(seed).permutation(len(X))[: MOST_ROWS.get(method)]
                began = time.process_time()
                labels = np.asarray(fit(X[some], seed))
                took = time.process_time() - began
                found = {key: float(value) for key, value in scores(y[some], labels).items()}
                rows.append(Cell(name, method, seed=seed).row(found | {"seconds": took}))
                print(rows[-1].cell, {key: round(value, 3) for key, value in found.items()})
    record("density_methods", rows)
