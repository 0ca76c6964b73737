"""What known labels bring: PAC and GraphPAC beside semi-supervised k-means and label spreading.

python -m benchmarks known_labels [--only pendigits graph-pac] [--seeds 5]

Needs PROBAGG_DATA. Settings 0, 1, 5 and 20 are the number of labels per class, drawn by the seed;
ACC is that of the rows without a label. Clusters are matched with the classes for ACC; "class" is
the share of rows with the label of their class, which needs no matching.

Setting "half" is the protocol of generalized category discovery (Vaze et al., 2022): half of the
classes are known, and half of their rows have labels. All rows without a label are matched at once;
"old" and "new" are the shares of those of known and of other classes that are right.

Semi-supervised k-means keeps labelled rows in their clusters, whose centres start from them; the
centres of other clusters are drawn as in k-means++, ten times, and the least inertia is kept.
Label spreading is scikit-learn's, on a graph of ten neighbours; it cannot find new classes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from statistics import fmean

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.semi_supervised import LabelSpreading

from benchmarks.record import Cell, Row
from benchmarks.studies.rivals import load
from benchmarks.study import Run, Study, percent
from probagg import PAC, GraphPAC

SETS = ("pendigits", "mnist-test", "isolet", "cifar10-simclr", "imagenette")
COUNTS = ("0", "1", "5", "20")
HALF = "half"
STARTS, MOST_ITERATIONS = 10, 100
SMALL_ROWS = 3_000  # random ones, of every set at size small


def pac(X: np.ndarray, known: np.ndarray, K: int, seed: int) -> np.ndarray:
    """PAC with its defaults."""
    return PAC(K, random_state=seed).fit_predict(X, known_labels=known)


def graph_pac(X: np.ndarray, known: np.ndarray, K: int, seed: int) -> np.ndarray:
    """GraphPAC with its defaults."""
    return GraphPAC(K, random_state=seed).fit_predict(X, known_labels=known)


def kmeans(X: np.ndarray, known: np.ndarray, K: int, seed: int) -> np.ndarray:
    """Semi-supervised k-means."""
    generator = np.random.default_rng(seed)
    n_starts = 1 if len(np.unique(known[known >= 0])) == K else STARTS
    runs = [_kmeans(X, known, K, generator) for _ in range(n_starts)]
    return min(runs, key=lambda run: run[1])[0]


def _kmeans(
    X: np.ndarray, known: np.ndarray, K: int, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    fixed, squares = np.flatnonzero(known >= 0), (X * X).sum(1)
    classes = np.unique(known[fixed])
    centers = np.zeros((K, X.shape[1]), X.dtype)
    for k in classes:
        centers[k] = X[known == k].mean(0)
    filled = classes.tolist()
    for k in np.setdiff1d(np.arange(K), classes).tolist():
        weights = _distances(X, squares, centers[filled]).min(1) if filled else np.ones(len(X))
        weights[fixed] = 0.0
        centers[k] = X[generator.choice(len(X), p=weights / weights.sum())]
        filled.append(k)
    labels = np.full(len(X), -1)
    for _ in range(MOST_ITERATIONS):
        before, distances = labels, _distances(X, squares, centers)
        labels = distances.argmin(1)
        labels[fixed] = known[fixed]
        if (labels == before).all():
            break
        for k in range(K):
            if (labels == k).any():
                centers[k] = X[labels == k].mean(0)
    return labels, float(distances[np.arange(len(X)), labels].sum())


def _distances(X: np.ndarray, squares: np.ndarray, centers: np.ndarray) -> np.ndarray:
    found = squares[:, None] - 2.0 * X @ centers.T + (centers * centers).sum(1)
    return found.clip(0.0).astype(np.float64)


def spreading(X: np.ndarray, known: np.ndarray, K: int, seed: int) -> np.ndarray:
    """Label spreading over ten neighbours."""
    return LabelSpreading(kernel="knn", n_neighbors=10).fit(X, known).transduction_


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]] = {
    "pac": pac,
    "graph-pac": graph_pac,
    "ss-kmeans": kmeans,
    "label-spreading": spreading,
}


def cells(size: str, seeds: int) -> Iterator[Cell]:
    """Yield every run, one seed after the other."""
    for seed in range(seeds):
        for data in SETS if size != "tiny" else ("digits",):
            for method in METHODS:
                settings = (*COUNTS, HALF) if method != "label-spreading" else COUNTS[1:]
                yield from (Cell(data, method, setting, seed) for setting in settings)


def draw_labels(y: np.ndarray, setting: str, seed: int) -> np.ndarray:
    """Return the labels that are known, -1 elsewhere."""
    generator, known = np.random.default_rng(seed), np.full(len(y), -1)
    classes = np.unique(y)
    if setting == HALF:
        classes = classes[: len(classes) // 2]
    for k in classes:
        rows = generator.permutation(np.flatnonzero(y == k))
        known[rows[: len(rows) // 2 if setting == HALF else int(setting)]] = k
    return known


def run(cell: Cell, size: str) -> Run:
    """Cluster with the labels of a seed; return how many of the others are found."""
    X, y = load(cell.data)
    if size == "small":
        kept = np.sort(np.random.default_rng(0).permutation(len(X))[:SMALL_ROWS])
        X, y = X[kept], y[kept]
    y = np.unique(y, return_inverse=True)[1]
    known, K = draw_labels(y, cell.setting, cell.seed or 0), int(y.max()) + 1
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = METHODS[cell.method](X, known, K, cell.seed or 0)
    seconds = time.perf_counter() - began
    rest = known < 0
    y, labels = y[rest], labels[rest]
    overlap = np.zeros((K, K), np.int64)
    np.add.at(overlap, (labels, y), 1)
    right = linear_sum_assignment(overlap, maximize=True)[1][labels] == y
    found: Run = {"acc": float(right.mean()), "class": float((labels == y).mean())}
    if cell.setting == HALF:
        is_old = y < K // 2
        found |= {"old": float(right[is_old].mean()), "new": float(right[~is_old].mean())}
    return found | {
        "seconds": seconds,
        "settings": {"rows": len(X), "columns": X.shape[1], "known": int((~rest).sum())},
    }


def lines(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield ACC by the number of labels per class, then the protocol of category discovery."""
    done = {setting: [row for row in rows if row.setting == setting] for setting in (*COUNTS, HALF)}
    shown = list(dict.fromkeys((row.data, row.method) for row in rows))
    yield "| ACC of rows without a label | method | " + " | ".join(COUNTS) + " | class, 1 |"
    yield "|---" * (len(COUNTS) + 3) + "|"
    for data, method in shown:
        values = [_values(done[count], data, method, "acc") for count in COUNTS]
        direct = _values(done["1"], data, method, "class")
        yield f"| {data} | {method} | {' | '.join(map(_cell, [*values, direct]))} |"
    yield ""
    yield "| half of the classes known | method | all | old | new |"
    yield "|---" * 5 + "|"
    for data, method in shown:
        if scores := [_values(done[HALF], data, method, name) for name in ("acc", "old", "new")]:
            yield f"| {data} | {method} | {' | '.join(map(_cell, scores))} |"


def _values(rows: list[Row], data: str, method: str, name: str) -> list[float]:
    return [row[name] for row in rows if (row.data, row.method) == (data, method)]


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    return percent(*values) if len(values) > 3 else f"{100 * fmean(values):.1f} (n={len(values)})"


STUDY = Study("known_labels", cells, run, seeds=5, lines=lines)
