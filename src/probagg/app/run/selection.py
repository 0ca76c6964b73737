"""Which samples of a run to look at first, and which are most similar to one."""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from probagg.app.assignments import BORDERLINE, Yardstick
from probagg.app.report.contents import Contents
from probagg.app.report.groups import Counts, select
from probagg.arrays import unit_rows
from probagg.neighbours.graph import nearest_rows

# The most rows that are divided into parts to spread over them.
SPREAD_ROWS = 20_000


def look_first(contents: Contents, X: Any, n: int) -> list[int]:
    """Return up to n rows, best first: in turn typical, borderline and spread over all samples.

    Left out are discarded samples, those that a person moved, and all near-duplicates but the one
    that represents them. X (N, D) are the features; None spreads over distances to clusters.
    """
    samples, every = contents.samples, np.arange(len(contents.samples))
    first = every if contents.representatives is None else contents.representatives
    decided = np.array([name in contents.review.moved for name in samples.names])
    rows = np.flatnonzero(contents.kept & ~decided & (first == every))
    one_kind = Counts(n, 0, 0)
    typical = [
        select(contents, rows[samples.cluster[rows] == k], one_kind)[0]
        for k in sorted(contents.clusters, key=lambda k: -contents.sizes[k])
    ]
    margin = samples.probability[rows] - samples.second_probability[rows]
    borderline = rows[np.lexsort((margin, samples.flag[rows] != BORDERLINE))].tolist()
    points = np.nan_to_num(samples.distance)[:, None] if X is None else X
    spread = _spread(rows, points, -(-n // 3), contents.has_images and X is not None)
    return list(dict.fromkeys(_in_turn([_in_turn(typical), borderline, spread])))[:n]


def _in_turn(lists: Iterable[Iterable[int]]) -> list[int]:
    """Return the first of each list, then the second of each, and so on."""
    turns = itertools.zip_longest(*lists)
    return [row for turn in turns for row in turn if row is not None]


def _spread(rows: np.ndarray, X: Any, n: int, by_angle: bool) -> list[int]:
    """Return the rows in the middle of n parts into which k-means divides them, largest first."""
    if len(rows) <= n:
        return rows.tolist()
    from probagg.neighbours.joining import kmeans_labels, principal_axes  # SciPy is slow to import

    if len(rows) > SPREAD_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, SPREAD_ROWS, replace=False))
    points = X[rows].toarray() if hasattr(X, "toarray") else np.asarray(X[rows], np.float64)
    points = principal_axes(unit_rows(points) if by_angle else points)
    parts = kmeans_labels(points, n, 0, n_init=1)
    found = []
    for part in np.argsort(-np.bincount(parts), kind="stable"):
        members = np.flatnonzero(parts == part)
        middle = points[members].mean(0)
        found.append(int(rows[members[((points[members] - middle) ** 2).sum(1).argmin()]]))
    return found


def most_similar(
    X: Any, x: Any, n: int, metric: str, own: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the n rows of X (N, D) that are nearest to x (1, D), and their distances.

    `own` is the row that x is, which is left out.

    >>> rows, distances = most_similar(np.eye(3), np.array([[3.0, 4.0, 0.0]]), 2, "cosine")
    >>> rows.tolist(), distances.round(1).tolist()
    ([1, 0], [0.2, 0.4])
    """
    rows = nearest_rows(x, min(n + (own is not None), X.shape[0]), metric, among=X)[0]
    rows = rows[rows != own][:n] if own is not None else rows
    center = np.asarray(x.toarray() if hasattr(x, "toarray") else x, np.float64)
    measure = Yardstick(metric, center, np.full(1, np.inf))
    return rows, measure.distances(X[rows], np.zeros(len(rows), np.int64))
