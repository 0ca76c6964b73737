"""Time of `PAC.fit` beside `KMeans(n_init=1).fit`, alternating in one process; memory; import time.

python -m benchmarks pac_speed        needs PROBAGG_DATA; about five minutes on two cores
"""

import argparse
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import lab_matrix
from benchmarks.record import Cell, Row, record
from probagg import PAC, clustering_accuracy

RUNS = {"pendigits": 20, "isolet": 10, "mnist-test": 10, "coil100": 5}


def timed(estimator, X) -> float:
    """Seconds of one fit."""
    began = time.perf_counter()
    estimator.fit(X)
    return time.perf_counter() - began


def beside_kmeans(name: str, X, K, runs: int, y) -> list[Row]:
    """Return a row for each method, medians over seeds; a busy machine hurts both, in turn."""
    seconds: dict[str, list[float]] = {"pac": [], "k-means": []}
    accuracy: dict[str, list[float]] = {"pac": [], "k-means": []}
    timed(PAC(K, random_state=0), X[:1000])  # threads and caches are up
    timed(KMeans(K, n_init=1, random_state=0), X[:1000])
    for seed in range(runs):
        pac, kmeans = PAC(K, random_state=seed), KMeans(K, n_init=1, random_state=seed)
        for name, estimator in (("k-means", kmeans), ("pac", pac)):
            seconds[name].append(timed(estimator, X))
            accuracy[name].append(clustering_accuracy(y, estimator.labels_))
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    ratio = medians["pac"] / medians["k-means"]
    found: dict[str, dict] = {
        "pac": {"ratio": ratio, "slowest_over_median": max(seconds["pac"]) / medians["pac"]},
        "k-means": {},
    }
    for method, values in found.items():
        values |= {"mean_acc": float(np.mean(accuracy[method])), "all_seconds": seconds[method]}
        values |= {"seconds": medians[method], "settings": {"n": runs}}
    print(f"{name}: {ratio:.2f} x k-means, medians {medians}", flush=True)
    return [Cell(name, method, seed=None).row(values) for method, values in found.items()]


def blobs() -> tuple[np.ndarray, np.ndarray]:
    """A million rows."""
    return make_blobs(1_000_000, 32, centers=20, cluster_std=4, random_state=1)


def peak_memory(X, K) -> float:
    """The most memory of a fit above X and P, as a share of both (resident, every 5 ms)."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, peak, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    P = PAC(K, random_state=0).fit(X).probabilities_
    done.set()
    watcher.join()
    return (peak[0] - before - P.nbytes) / (X.nbytes + P.nbytes)


def quadratic_sweep(X, P, m) -> None:
    """Algorithm 1 with NumPy rows: all distances of a row, then Eq. 8. O(N^2 (D + K))."""
    alpha = 1 / (m - 1)
    for i in range(len(X)):
        d = ((X - X[i]) ** 2).sum(1)
        s = d @ P
        powers = (s / s.min()) ** -alpha
        P[i] = powers / powers.sum()


def against_quadratic(X, K, sweeps: int) -> dict:
    """The same sweeps from the same start, in linear and in quadratic form."""
    P = 1 + 0.02 * np.random.default_rng(0).random((len(X), K))
    P /= P.sum(1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = min(timed(PAC(K, init=P, max_iter=sweeps, tol=0.0), X) for _ in range(5))
    began = time.perf_counter()
    for _ in range(sweeps):
        quadratic_sweep(X, P, 1.03)
    theirs = time.perf_counter() - began
    return {"sweeps": sweeps, "linear_s": ours, "quadratic_s": theirs, "ratio": theirs / ours}


def import_time(repeats: int = 15) -> list[Row]:
    """Return the medians of fresh interpreters, in turn."""
    statements = {"pac": "from probagg import PAC", "sklearn.cluster": "import sklearn.cluster"}
    seconds: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(repeats):
        for name, statement in statements.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            seconds[name].append(time.perf_counter() - began)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    ratio = {"ratio": medians["pac"] / medians["sklearn.cluster"]}
    print(f"import: {ratio['ratio']:.2f}x sklearn.cluster")
    return [
        Cell("", "import", name, None).row({"seconds": each} | (ratio if name == "pac" else {}))
        for name, each in medians.items()
    ]


def main() -> None:
    """Print and record all of it; in a process of its own, print the memory of a fit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=("memory",), help="only the memory of a fit")
    if parser.parse_args().part == "memory":
        print(peak_memory(blobs()[0], 20))
        return
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = []
    for name, runs in RUNS.items():
        data = lab_matrix(name)
        rows += beside_kmeans(name, data.X, data.n_classes, runs, data.y)
    data = lab_matrix("pendigits")
    quadratic = against_quadratic(data.X, data.n_classes, 2)
    rows.append(Cell("pendigits", "quadratic", seed=None).row(quadratic))
    print(f"quadratic sweeps on pendigits: {quadratic['ratio']:.0f}x slower")
    fresh = subprocess.run(  # a process that has freed nothing yet
        [sys.executable, "-m", "benchmarks", "pac_speed", "memory"],
        check=True,
        capture_output=True,
        text=True,
    )
    X, y = blobs()
    large = beside_kmeans("blobs", X, 20, 5, y)
    large[0].values["memory_share"] = float(fresh.stdout)
    print(f"memory above X and P {100 * large[0]['memory_share']:.1f} %")
    record("pac_speed", [*rows, *large, *import_time()])
