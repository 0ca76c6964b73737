"""Groups of unequal size: balance 1, 0 and "auto" beside k-means.

python -m benchmarks pac_balance [--seeds 5] [NAME ...]        needs PROBAGG_DATA; 15 minutes

Blobs, and real sets as they are and with long tails: the sizes of the classes fall geometrically by
a factor, the largest having at most 1,000 samples, in a random order of the classes. Features of
photos are EfficientNet-Lite0's, whose weights have seen ImageNet's labels. Sets that are not named
keep their results.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler, normalize

from benchmarks.data import open_lab_rows
from benchmarks.record import Cell, Results
from probagg import PAC, clustering_accuracy

BLOBS = {
    "blobs 2000/50/50/50": (2000, 50, 50, 50),
    "blobs 1000/100/100": (1000, 100, 100),
    "blobs 2000/500/100/50/20": (2000, 500, 100, 50, 20),
    "blobs 500/500/500/500": (500, 500, 500, 500),
}
REAL = {
    "digits": (1, 3, 10, 30, 100),
    "digits standardised": (1, 10),
    "pendigits": (1, 10, 100),
    "pendigits standardised": (1, 10),
    "isolet": (1, 10, 100),
    "mnist-test": (1, 10, 100),
    "cifar10-simclr": (1, 10, 100),
    "imagenette": (1, 10, 50),
    "imagenet-dogs": (1, 10, 50),
}
MOST = 6000  # rows of a set, 1000 of a class


def blobs(sizes: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw groups of unit variance around uniform centres in 5 dimensions."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    centers = rng.uniform(-10, 10, (len(sizes), 5))
    return centers[y] + rng.standard_normal((len(y), 5)), y


def read(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return rows, classes and the metric; "standardised" in the name scales the columns."""
    name, _, scaling = name.partition(" ")
    X, y, metric = open_lab_rows(name)
    return StandardScaler().fit_transform(X) if scaling else X, y, metric


def tail(y: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Return rows whose classes fall in size by `ratio`; 1 takes rows at random."""
    if ratio == 1:
        return rng.permutation(len(y))[:MOST]
    classes = rng.permutation(np.unique(y))
    largest = min(1000, np.bincount(np.unique(y, return_inverse=True)[1]).min())
    sizes = largest * ratio ** -np.linspace(0, 1, len(classes))
    pairs = zip(classes, np.maximum(sizes, 3).astype(int), strict=True)
    return np.concatenate([rng.choice(np.flatnonzero(y == k), n, replace=False) for k, n in pairs])


def compare(X: np.ndarray, y: np.ndarray, metric: str, seed: int) -> tuple[dict[str, float], float]:
    """Return the accuracy of each way, and the balance chosen."""
    K = len(np.unique(y))
    rows = normalize(X) if metric == "cosine" else X
    means = KMeans(K, n_init=10, random_state=seed).fit(rows)
    found = {"k-means": clustering_accuracy(y, means.labels_)}
    for balance in (1.0, 0.0, "auto"):
        pac = PAC(K, metric=metric, balance=balance, random_state=seed).fit(X)
        found[f"balance {balance}"] = clustering_accuracy(y, pac.labels_)
    return found, pac.balance_


def main() -> None:
    """Run all sets, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*BLOBS, *REAL])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = Results.open("pac_balance")

    def add(name: str, X: np.ndarray, y: np.ndarray, metric: str, seed: int) -> None:
        found, chosen = compare(X, y, metric, seed)
        settings = {"n": len(X), "K": len(np.unique(y))}
        for way, acc in found.items():
            more = {"balance": chosen} if way == "balance auto" else {}
            results.put(Cell(name, way, seed=seed).row({"acc": acc, **more, "settings": settings}))
        print(name, seed, {way: round(acc, 3) for way, acc in found.items()}, chosen, flush=True)

    for name in options.names:
        if name not in BLOBS:
            everything = read(name)
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            if name in BLOBS:
                add(name, *blobs(BLOBS[name], rng), "sqeuclidean", seed)
                continue
            for ratio in REAL[name]:
                X, y, metric = everything
                kept = tail(y, ratio, rng)
                add(f"{name} 1:{ratio}", X[kept], y[kept], metric, seed)
