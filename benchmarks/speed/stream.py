"""Streams: `PAC.partial_fit` beside `fit` and MiniBatchKMeans, each row seen once.

python -m benchmarks stream        needs PROBAGG_DATA; about ten minutes on two cores

1. Ten million rows from a generator: speed and memory. 2. Known sets in chunks of 100, shuffled and
sorted by class. 3. Clusters that move, with and without forgetting.
"""

import argparse
import resource
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score

from benchmarks.data import lab_matrix
from benchmarks.record import Cell, Row, record
from benchmarks.study import percent
from probagg import PAC, clustering_accuracy
from probagg.aggregation import objective

SETS = ("digits", "pendigits", "mnist-test", "isolet")
SEEDS = range(5)
Chunks = Iterator[tuple[np.ndarray, np.ndarray]]


def feed(estimator: Any, X: np.ndarray, size: int = 100) -> float:
    """Pass X in chunks, and return the seconds this took."""
    start = time.perf_counter()
    for first in range(0, len(X), size):
        estimator.partial_fit(X[first : first + size])
    return time.perf_counter() - start


def order_of(y: np.ndarray, way: str, seed: int) -> np.ndarray:
    """Return a random order of the rows; where sorted, whole classes in a random order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    if way == "shuffled":
        return order
    return order[np.argsort(rng.permutation(y.max() + 1)[y[order]], kind="stable")]


def quality(data: Any, labels: np.ndarray, seconds: float) -> dict[str, float]:
    """Return ACC, NMI and the objective of hard labels, which all methods have."""
    return {
        "acc_percent": 100 * clustering_accuracy(data.y, labels),
        "nmi_percent": 100 * normalized_mutual_info_score(data.y, labels),
        "objective": objective(data.X.astype(np.float64), np.eye(data.n_classes)[labels]),
        "seconds": seconds,
    }


def known_sets() -> list[Row]:
    """Compare one pass in chunks with a fit, on sets with known classes."""
    ways = [("fit", "any")]
    ways += [(m, way) for way in ("shuffled", "sorted") for m in ("partial_fit", "MiniBatchKMeans")]
    rows: list[Row] = []
    for name in SETS:
        data, of_fit = lab_matrix(name), 1.0
        for method, way in ways:
            runs = [
                Cell(name, method, way, seed).row(one_run(data, method, way, seed))
                for seed in SEEDS
            ]
            J = np.mean([run["objective"] for run in runs])
            of_fit = J if method == "fit" else of_fit
            acc = percent(*(run["acc_percent"] / 100 for run in runs))
            print(f"{name:10} {method:15} {way:8} ACC {acc}  J {J / of_fit:.3f}", flush=True)
            rows += runs
    return rows


def one_run(data: Any, method: str, way: str, seed: int) -> dict[str, float]:
    """Return the quality of one run, judged on all rows."""
    start = time.perf_counter()
    if method == "fit":
        labels = PAC(data.n_classes, random_state=seed).fit(data.X).labels_
        return quality(data, labels, time.perf_counter() - start)
    kind = PAC if method == "partial_fit" else MiniBatchKMeans
    estimator = kind(data.n_classes, random_state=seed)
    seconds = feed(estimator, data.X[order_of(data.y, way, seed)])
    return quality(data, estimator.predict(data.X), seconds)


def blobs(n_chunks: int, size: int = 10_000, K: int = 20, D: int = 16) -> Chunks:
    """Yield chunks of overlapping blobs in float32."""
    rng = np.random.default_rng(1)
    centers = rng.uniform(-10, 10, (K, D)).astype(np.float32)
    for _ in range(n_chunks):
        y = rng.integers(K, size=size)
        yield centers[y] + 4.0 * rng.standard_normal((size, D), np.float32), y


def resident_mb() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ten_million(kind: Any) -> Row:
    """Return speed, growth of memory after the first million rows, and ACC of a chunk.

    The peak is that of the process, so only the memory of the method that runs first is its own.
    """
    estimator, seconds, early = kind(20, random_state=0), 0.0, 0.0
    for i, (X, _) in enumerate(blobs(1000)):
        start = time.perf_counter()
        estimator.partial_fit(X)
        seconds += time.perf_counter() - start
        early = resident_mb() if i == 99 else early
    X, y = next(blobs(1))
    found = {
        "rows": 10**7,
        "rows_per_second": 10**7 / seconds,
        "peak_mb": resident_mb(),
        "growth_mb": resident_mb() - early,
        "acc_percent": 100 * clustering_accuracy(y, estimator.predict(X)),
    }
    print(kind.__name__, found, flush=True)
    return Cell("ten million rows", kind.__name__).row(found)


def turning(rng: np.random.Generator, steps: int = 200, K: int = 10) -> Chunks:
    """Yield chunks of blobs on a circle that turns once: each comes to where others were."""
    for step in range(steps):
        y = rng.integers(K, size=100)
        angle = 2.0 * np.pi * (y / K + step / steps)
        yield 8.0 * np.c_[np.cos(angle), np.sin(angle)] + rng.normal(size=(100, 2)), y


def walking(rng: np.random.Generator, steps: int = 200, K: int = 10) -> Chunks:
    """Yield chunks of blobs whose means walk at random, in ten dimensions."""
    centers = 4.0 * rng.normal(size=(K, 10))
    for _ in range(steps):
        centers = centers + 0.4 * rng.normal(size=centers.shape)
        y = rng.integers(K, size=100)
        yield centers[y] + rng.normal(size=(100, 10)), y


def moving_clusters() -> list[Row]:
    """Label each chunk before it is added, and compare what forgetting does."""
    makers = {
        f"forgetting={f}": (lambda s, f=f: PAC(10, forgetting=f, random_state=s))
        for f in (1.0, 0.9, 0.7)
    }
    makers["MiniBatchKMeans"] = lambda s: MiniBatchKMeans(10, random_state=s)
    rows = []
    for drift in (turning, walking):
        for method, make in makers.items():
            acc = [accuracy_ahead(make(seed), drift(np.random.default_rng(seed))) for seed in SEEDS]
            for seed, each in zip(SEEDS, acc, strict=True):
                rows.append(Cell(drift.__name__, method, seed=seed).row({"acc_percent": each}))
            spread = percent(*(each / 100 for each in acc))
            print(f"{drift.__name__:8} {method:16} ACC {spread}", flush=True)
    return rows


def accuracy_ahead(estimator: Any, chunks: Chunks) -> float:
    """Return the mean ACC of chunks not yet seen, over the second half of the stream."""
    found = []
    for i, (X, y) in enumerate(chunks):
        if i >= 100:
            found.append(100 * clustering_accuracy(y, estimator.predict(X)))
        estimator.partial_fit(X)
    return float(np.mean(found))


def main() -> None:
    """Print and record all three parts; memory first, in a small process."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = [ten_million(kind) for kind in (PAC, MiniBatchKMeans)]
    record("stream", [*rows, *moving_clusters(), *known_sets()])
