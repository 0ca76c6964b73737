"""Groups of unequal size: PAC at balance 1 and GraphPAC beside k-means, and their warnings.

Blobs in two columns, in five, and in five with columns that are unrelated to the groups; and real
sets: 2,000 rows of all classes, or classes of at most 400 whose sizes fall geometrically by a
factor, in a random order. All methods are given K, and k-means has ten starts. Features of photos
are EfficientNet-Lite0's.

The last lines are the share of runs in which PAC is more than three points below k-means, and of
those without a warning.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.preprocessing import StandardScaler, normalize

from benchmarks.data import open_lab_rows
from benchmarks.record import Cell, Row
from benchmarks.study import Run, Study, beside_paper
from probagg import PAC, GraphPAC, clustering_accuracy

BLOBS = {
    "blobs 1750/500/175/75": (1750, 500, 175, 75),
    "blobs 2000/50/50/50": (2000, 50, 50, 50),
    "blobs 1000/100/100": (1000, 100, 100),
    "blobs 1200 to 20": (1200, 600, 300, 150, 75, 40, 20, 20),
    "blobs 4 x 500": (500, 500, 500, 500),
    "blobs 8 x 250": (250,) * 8,
}
# Columns of the groups; random categories of four values and columns of noise, beside five columns
# of unit variance.
COLUMNS = ("2 columns", "5 columns", "1 category", "3 categories", "3 noise", "10 noise")
REAL = (
    "digits",
    "pendigits",
    "isolet",
    "mnist-test",
    "cifar10-simclr",
    "imagenette",
    "imagenet-dogs",
)
TAILS = ("1:1", "1:3", "1:10", "1:50")
METHODS = ("k-means", "balance 1", "graph")
MOST, MOST_OF_CLASS = 2000, 400
OTHER_DRAWS = 100  # added to the seed of the data
FAR = 0.03  # more than three points


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run."""
    if size == "tiny":
        sets = [("blobs 1000/100/100", "2 columns"), ("digits", "1:50")]
    else:
        sets = [(name, columns) for name in BLOBS for columns in COLUMNS]
        sets += [(name, ratio) for name in REAL for ratio in TAILS]
    for seed in range(seeds):
        for name, setting in sets:
            yield from (Cell(name, method, setting, seed) for method in METHODS)


def run(cell: Cell, size: str) -> Run:
    """Cluster the rows of a seed by one method."""
    X, y, metric = drawn(cell.data, cell.setting, int(cell.seed or 0))
    K, found = len(np.unique(y)), {}
    began = time.perf_counter()
    if cell.method == "k-means":
        rows = normalize(X) if metric == "cosine" else X
        labels = KMeans(K, n_init=10, random_state=cell.seed).fit_predict(rows)
    else:
        kind = GraphPAC if cell.method == "graph" else PAC
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            labels = kind(K, metric=metric, random_state=cell.seed).fit(X).labels_
        found = {"warned": bool(caught)}
    seconds = time.perf_counter() - began
    acc = clustering_accuracy(y, labels)
    return {"acc": acc, **found, "seconds": seconds, "settings": {"n": len(X), "K": K}}


@lru_cache(1)
def drawn(name: str, setting: str, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the rows of a seed, their groups and the metric."""
    rng = np.random.default_rng(OTHER_DRAWS + seed)
    if name in REAL:
        X, y, metric = read(name)
        kept = tail(y, float(setting.removeprefix("1:")), rng, MOST, MOST_OF_CLASS)
        return X[kept], y[kept], metric
    number, kind = setting.split()
    width = int(number) if kind == "columns" else 5
    X, y = make_blobs(BLOBS[name], width, center_box=(-10, 10), random_state=OTHER_DRAWS + seed)
    if kind == "columns":
        return X, y, "sqeuclidean"
    more = [
        rng.normal(size=(len(X), 1)) if kind == "noise" else np.eye(4)[rng.integers(4, size=len(X))]
        for _ in range(int(number))
    ]
    return np.hstack([StandardScaler().fit_transform(X), *more]), y, "sqeuclidean"


@lru_cache(1)
def read(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return rows, classes and the metric; "standardised" in the name scales the columns."""
    name, _, scaling = name.partition(" ")
    X, y, metric = open_lab_rows(name)
    return StandardScaler().fit_transform(X) if scaling else X, y, metric


def tail(
    y: np.ndarray, ratio: float, rng: np.random.Generator, most: int = 6000, of_class: int = 1000
) -> np.ndarray:
    """Return rows whose classes fall in size by `ratio`; 1 takes rows at random."""
    if ratio == 1:
        return rng.permutation(len(y))[:most]
    classes = rng.permutation(np.unique(y))
    largest = min(of_class, np.bincount(np.unique(y, return_inverse=True)[1]).min())
    sizes = largest * ratio ** -np.linspace(0, 1, len(classes))
    pairs = zip(classes, np.maximum(sizes, 3).astype(int), strict=True)
    return np.concatenate([rng.choice(np.flatnonzero(y == k), n, replace=False) for k, n in pairs])


def lines(study: Study, rows: list[Row]) -> Iterator[str]:
    """Yield the accuracies, then how often each method is far below k-means."""
    yield from beside_paper(study, rows)
    kmeans = {(row.data, row.setting, row.seed): row["acc"] for row in rows if "k-" in row.method}
    for method in METHODS[1:]:
        for kind in ("blobs", "real"):
            of_kind = [
                (kmeans[key] - row["acc"] > FAR, row["warned"])
                for row in rows
                if row.method == method
                and (row.data in REAL) == (kind == "real")
                and (key := (row.data, row.setting, row.seed)) in kmeans
            ]
            if of_kind:
                far, silent, warned = (
                    100 * sum(chosen) / len(of_kind)
                    for chosen in (
                        [far for far, _ in of_kind],
                        [far and not warned for far, warned in of_kind],
                        [warned for _, warned in of_kind],
                    )
                )
                yield (
                    f"{method}, {kind}, {len(of_kind)} runs: {far:.1f} % more than 3 points below "
                    f"k-means, {silent:.1f} % without a warning; {warned:.0f} % warned"
                )


STUDY = Study("pac_balance", cells, run, seeds=10, lines=lines)
