"""Time and memory of `PAC.fit` at K = 100 to 5,000, beside KMeans, MiniBatchKMeans and faiss.

python -m benchmarks many_clusters [--shapes 100000x32x1000 ...] [--runs 1]

The methods alternate on the same blobs, in one process with the threads that the environment
allows. Seconds are the processor time of a fit (medians over seeds), as on a busy machine the clock
measures the others; mean squares are k-means' objective of each partition.
"""

import argparse
import os
import time
import warnings

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.record import Cell, Results
from benchmarks.speed.scale import mean_square
from probagg import PAC

METHODS = ("pac", "k-means", "mini-batch k-means", "faiss k-means")
SHAPES = [f"100000x{D}x{K}" for D in (32, 128) for K in (100, 1000, 5000)]


def blobs(N: int, D: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return overlapping blobs in float32, and the blob of each row."""
    rng = np.random.default_rng(0)
    centers, y = rng.uniform(-10, 10, (K, D)).astype(np.float32), rng.integers(K, size=N)
    return centers[y] + 4 * rng.standard_normal((N, D), np.float32), y


def fit(method: str, X: np.ndarray, K: int, seed: int) -> np.ndarray:
    """Return the labels of one fit; faiss makes 25 iterations on all rows."""
    if method == "pac":
        return PAC(K, random_state=seed).fit(X).labels_
    if method != "faiss k-means":
        kind = KMeans if method == "k-means" else MiniBatchKMeans
        return kind(K, n_init=1, random_state=seed).fit(X).labels_
    import faiss

    model = faiss.Kmeans(X.shape[1], K, niter=25, seed=seed, max_points_per_centroid=len(X))
    model.train(X)
    return model.index.search(X, 1)[1][:, 0]


def main() -> None:
    """Fit each shape by each method in turn, and record medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="rows x columns x clusters")
    parser.add_argument("--runs", type=int, default=1, help="seeds per method")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for shape in options.shapes:
        N, D, K = map(int, shape.split("x"))
        X, y = blobs(N, D, K)
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in METHODS}
        for seed in range(options.runs):
            for name in METHODS:
                began = time.process_time()
                labels = fit(name, X, K, seed)
                seconds = time.process_time() - began
                ari = adjusted_rand_score(y, labels)
                found[name].append((seconds, mean_square(X, labels, K), ari))
        rows = []
        for name, each in found.items():
            seconds, square, ari = (float(value) for value in np.median(each, 0))
            values = {"seconds": seconds, "mean_square": square, "ari": ari}
            load = {"n": options.runs, "load": os.getloadavg()[0]}
            rows.append(Cell("blobs", name, shape, None).row(values | {"settings": load}))
            print(f"{shape}, {name}: {seconds:.1f} s, {square:.1f}, ARI {ari:.3f}", flush=True)
        Results.open("many_clusters").put(*rows)
