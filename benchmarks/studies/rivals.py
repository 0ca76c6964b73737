"""PAC and probagg.cluster beside k-means, spectral clustering, HDBSCAN, Leiden and EVoC.

python -m benchmarks rivals [--only pendigits leiden-k] [--seeds 3]

Needs PROBAGG_DATA, scanpy (for the blood cells), igraph, leidenalg and evoc.

Every method is given the same rows: tables standardised, features of networks as unit vectors.
k-means keeps the best of ten starts by inertia. Spectral clustering has scikit-learn's graph of ten
neighbours, Leiden an unweighted one of 15. HDBSCAN's smallest cluster is a twentieth of the mean
class. HDBSCAN, Leiden and EVoC find the number of clusters; the others are given that of the
classes, and so are "leiden-k", whose resolution is searched, and "evoc-k" by `approx_n_clusters`.
Rows left as noise count as wrong in ACC, and as one cluster in NMI and ARI.

"pac" is the paper's PAC (m chosen). "probagg" is `probagg.cluster` as a user calls it: `GraphPAC`
with its defaults.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
from sklearn import datasets
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import StandardScaler, normalize

import probagg
from benchmarks.data import open_lab_rows
from benchmarks.paper.methods import Labels, hdbscan, kmeans_of_ten, spectral
from benchmarks.record import Cell, Row
from benchmarks.study import Run, Study, percent
from probagg import PAC, evaluate

LAB = ("pendigits", "isolet", "mnist-test", "coil100", "cifar10-simclr")
PHOTOS = ("imagenette", "imagenet-dogs")
MOST_ROWS = 10_000  # of SimCLR features, for the methods that compare all pairs
NEIGHBOURS = 15
SEARCHES = 30  # of Leiden's resolution
Rows = tuple[np.ndarray, np.ndarray]  # and their classes


def scaled(load: Callable[..., Rows]) -> Rows:
    """Return a set of scikit-learn's with standardised columns."""
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def blood_cells() -> Rows:
    """Return the principal components of scanpy's 700 cells of ten types."""
    import scanpy

    cells = scanpy.datasets.pbmc68k_reduced()
    return cells.obsm["X_pca"], cells.obs["bulk_labels"].cat.codes.to_numpy()


def tail(categories: int) -> Rows:
    """Return four groups of very unequal size, beside one random category or none."""
    sizes = [3500, 1000, 350, 150]
    X, y = datasets.make_blobs(sizes, 5, random_state=1, center_box=(-10, 10))
    kinds = np.random.default_rng(0).integers(categories or 1, size=len(X))
    X = StandardScaler().fit_transform(X)
    return np.hstack([X, np.eye(categories)[kinds]]) if categories else X, y


SMALL: dict[str, Callable[[], Rows]] = {
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "iris": lambda: scaled(datasets.load_iris),
    "wine": lambda: scaled(datasets.load_wine),
    "breast-cancer": lambda: scaled(datasets.load_breast_cancer),
    "blood-cells": blood_cells,
    "moons": lambda: datasets.make_moons(2000, noise=0.07, random_state=0),
    "rings": lambda: datasets.make_circles(2000, noise=0.06, factor=0.45, random_state=0),
    "tail": lambda: tail(0),
    "tail-category": lambda: tail(4),
}


@cache
def load(name: str) -> Rows:
    """Return rows in float32 and classes."""
    if name in SMALL:
        X, y = SMALL[name]()
        return np.asarray(X, np.float32), np.asarray(y)
    X, y, metric = open_lab_rows(name)
    kept = np.sort(np.random.default_rng(0).permutation(len(X))[:MOST_ROWS])
    if name == "cifar10-simclr":
        X, y = X[kept], y[kept]
    return (normalize(X) if metric == "cosine" else X), y


def leiden(X: np.ndarray, K: int, seed: int) -> Labels:
    """Leiden at resolution 1."""
    return _leiden(_graph(X), 1.0, seed)


def leiden_k(X: np.ndarray, K: int, seed: int) -> Labels:
    """Leiden at the resolution that gives K clusters, or the nearest number to it."""
    graph, low, high = _graph(X), 1e-4, 100.0
    best = _leiden(graph, 1.0, seed)
    for _ in range(SEARCHES):
        resolution = (low * high) ** 0.5
        labels = _leiden(graph, resolution, seed)
        found = labels.max() + 1
        if abs(found - K) <= abs(best.max() + 1 - K):
            best = labels
        if found == K:
            break
        low, high = (resolution, high) if found < K else (low, resolution)
    return best


def _graph(X: np.ndarray) -> object:
    import igraph

    A = kneighbors_graph(X, NEIGHBOURS)
    return igraph.Graph(len(X), list(zip(*(A + A.T).nonzero(), strict=True))).simplify()


def _leiden(graph: object, resolution: float, seed: int) -> Labels:
    from leidenalg import RBConfigurationVertexPartition, find_partition

    found = find_partition(
        graph, RBConfigurationVertexPartition, resolution_parameter=resolution, seed=seed
    )
    return np.asarray(found.membership)


def evoc(X: np.ndarray, K: int, seed: int) -> Labels:
    """EVoC, which finds the number of clusters."""
    from evoc import EVoC

    return EVoC(random_state=seed).fit_predict(X)


def evoc_k(X: np.ndarray, K: int, seed: int) -> Labels:
    """EVoC, asked for about K clusters."""
    from evoc import EVoC

    return EVoC(approx_n_clusters=K, random_state=seed).fit_predict(X)


def pac(X: np.ndarray, K: int, seed: int) -> Labels:
    """PAC with the paper's equal sizes and m chosen."""
    return PAC(K, m="auto", balance=1.0, random_state=seed).fit_predict(X)


def product(X: np.ndarray, K: int, seed: int) -> Labels:
    """`probagg.cluster` with its defaults, less the page."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = probagg.cluster(X, K, out=out, random_state=seed, report=False)
        return np.asarray(run.assignments.cluster)


METHODS: dict[str, Callable[[np.ndarray, int, int], Labels]] = {
    "k-means": kmeans_of_ten,
    "spectral": spectral,
    "hdbscan": hdbscan,
    "leiden": leiden,
    "leiden-k": leiden_k,
    "evoc": evoc,
    "evoc-k": evoc_k,
    "pac": pac,
    "probagg": product,
}
ONCE = {"hdbscan"}  # no random start
# EVoC 0.3.2 raises an error where rows have fewer than four columns.
NOT_RUN = {(data, method) for data in ("moons", "rings") for method in ("evoc", "evoc-k")}


def cells(size: str, seeds: int) -> Iterator[Cell]:
    """Yield every run."""
    for data in (*LAB, *PHOTOS, *SMALL) if size != "tiny" else ("iris",):
        for method in METHODS if size != "tiny" else ("k-means", "hdbscan", "pac", "probagg"):
            runs = 0 if (data, method) in NOT_RUN else 1 if method in ONCE else seeds
            yield from (Cell(data, method, seed=seed) for seed in range(runs))


def run(cell: Cell, size: str) -> Run:
    """Cluster the cell's data; return scores, seconds and the number of clusters."""
    X, y = load(cell.data)
    K = len(np.unique(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began, cpu_began = time.perf_counter(), time.process_time()
        labels = METHODS[cell.method](X, K, cell.seed or 0)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    noise = labels < 0
    found = evaluate(y, labels)
    if noise.any():
        kept = evaluate(y[~noise], labels[~noise])["acc"] if not noise.all() else 0.0
        found["acc"] = kept * float((~noise).mean())
    times = {"seconds": seconds, "cpu_seconds": cpu_seconds}
    clusters = {"clusters": len(np.unique(labels[~noise])), "noise": float(noise.mean())}
    return {**found, **clusters, **times, "settings": {"rows": len(X), "columns": X.shape[1]}}


def lines(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield the ACC of each method on each set, and their means over the sets that all have."""
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        scores.setdefault(row.data, {}).setdefault(row.method, []).append(row["acc"])
    names = [name for name in METHODS if any(name in found for found in scores.values())]
    yield f"| ACC | {' | '.join(names)} |"
    yield "|---|" + "---|" * len(names)
    for data, found in scores.items():
        yield f"| {data} | {' | '.join(percent(*found.get(name, [])) for name in names)} |"
    shared = [found for found in scores.values() if found.keys() >= set(names)]
    if shared:
        means = [fmean(fmean(found[name]) for found in shared) for name in names]
        yield f"| mean of {len(shared)} | {' | '.join(f'{100 * mean:.1f}' for mean in means)} |"


STUDY = Study(
    "rivals", cells, run, shown=("acc", "nmi", "ari"), sizes=("full", "tiny"), lines=lines
)
