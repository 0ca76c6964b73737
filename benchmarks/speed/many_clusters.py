"""Time and memory of `PAC.fit` beside KMeans, MiniBatchKMeans and faiss, on blobs and on real sets.

python -m benchmarks many_clusters [--sets 100000x32x1000 pendigits ...] [--methods pac] [--runs 1]

A set is rows x columns x clusters of overlapping blobs, or a matrix of PROBAGG_DATA. The methods
alternate, each fit in a process of its own, whose libraries are loaded, with the threads that the
environment allows. Seconds are its processor time (medians over seeds), as on a busy machine the
clock measures the others; memory is the most above that before the fit. Mean squares are k-means'
objective of each partition. A fit that takes more than `--limit` CPU seconds is ended; `--max-iter`
limits the sweeps of PAC, for its memory.
"""

import argparse
import os
import resource
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.data import lab_matrix, open_lab_rows
from benchmarks.record import Cell, Results
from benchmarks.speed.scale import mean_square
from probagg import PAC

METHODS = ("pac", "k-means", "mini-batch k-means", "faiss k-means", "pac file")
BLOBS = [f"100000x{D}x{K}" for D in (32, 128) for K in (100, 1000, 5000)]
SETS = [*BLOBS, "1000000x32x20", "pendigits", "isolet", "mnist-test", "coil100", "cifar10-simclr"]


@lru_cache(1)
def rows_of(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Return rows, their groups and K: a matrix, or overlapping blobs in float32."""
    if name == "cifar10-simclr":  # features without 200 clear groups
        X, y, _ = open_lab_rows(name)
        some = np.random.default_rng(0).permutation(len(X))[:20_000]
        return X[some], y[some], 200
    if not name[0].isdigit():
        data = lab_matrix(name)
        return data.X, data.y, data.n_classes
    N, D, K = map(int, name.split("x"))
    rng = np.random.default_rng(0)
    centers, y = rng.uniform(-10, 10, (K, D)).astype(np.float32), rng.integers(K, size=N)
    X = rng.standard_normal((N, D), np.float32)
    X *= 4
    for start in range(0, N, 10**5):
        X[start : start + 10**5] += centers[y[start : start + 10**5]]
    return X, y, K


def fit(method: str, X: np.ndarray, K: int, seed: int, max_iter: int = 100) -> np.ndarray:
    """Return the labels of one fit; faiss makes 25 iterations on all rows."""
    if method.startswith("pac"):
        return PAC(K, max_iter=max_iter, random_state=seed).fit(X).labels_
    if method != "faiss k-means":
        kind = KMeans if method == "k-means" else MiniBatchKMeans
        return kind(K, n_init=1, random_state=seed).fit(X).labels_
    import faiss

    model = faiss.Kmeans(X.shape[1], K, niter=25, seed=seed, max_points_per_centroid=len(X))
    model.train(X)
    return model.index.search(X, 1)[1][:, 0]


def timed(name: str, method: str, seed: int, limit: int, max_iter: int) -> dict[str, float]:
    """Return seconds, memory and scores of one fit."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    warnings.simplefilter("ignore")
    X, y, K = rows_of(name)
    fit(method, X[: max(1000, 2 * min(K, 100))], min(K, 100), 0)  # libraries are loaded
    with tempfile.TemporaryDirectory() as folder:
        if method == "pac file":
            np.save(Path(folder) / "X.npy", X)
        rows = np.load(Path(folder) / "X.npy", mmap_mode="r") if method == "pac file" else X
        Path("/proc/self/clear_refs").write_text("5")  # resets the most memory
        before, began = most_memory(), time.process_time()
        labels = fit(method, rows, K, seed, max_iter)
        seconds, memory = time.process_time() - began, most_memory() - before
    ari = adjusted_rand_score(y, labels)
    square = mean_square(X, labels, K)
    return {"seconds": seconds, "megabytes": memory, "mean_square": square, "ari": ari}


def most_memory() -> float:
    """Return the most memory that this process has had, in MB."""
    return float(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1000


def main() -> None:
    """Fit each set by each method in turn, and record medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS[:-1])
    parser.add_argument("--runs", type=int, default=1, help="seeds per method")
    parser.add_argument("--limit", type=int, default=600, help="CPU seconds of a fit")
    parser.add_argument("--max-iter", type=int, default=100)
    options = parser.parse_args()
    limits = options.limit, options.max_iter
    for name in options.sets:
        rows_of(name)  # before processes are forked, so that they share it
        found: dict[str, list[dict[str, float]]] = {method: [] for method in options.methods}
        for seed in range(options.runs):
            for method, runs in found.items():
                with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
                    try:
                        task = process.submit(timed, name, method, seed, *limits)
                        runs.append(task.result())
                    except BrokenProcessPool:
                        print(f"{name}, {method}: more than {options.limit} s", flush=True)
        for method, runs in found.items():
            if not runs:
                values: dict = {"error": f"more than {options.limit} s"}
            else:
                values = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
            settings = {"n": len(runs), "load": os.getloadavg()[0], "max_iter": options.max_iter}
            row = Cell(name, method, seed=None).row(values | {"settings": settings})
            Results.open("many_clusters").put(row)
            print(name, method, values, flush=True)
