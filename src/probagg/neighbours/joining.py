"""Clusters of any shape: small parts of the rows, joined along the graph of neighbours.

PAC's clusters are compact. A class of another shape is cut, and its pieces are shared among
clusters. So k-means divides the rows into several parts per cluster, and the parts between which
the graph has many edges are joined until K groups are left.

Whether PAC's clusters, those of k-means or joined parts are taken, the graph decides, without
labels: by the share of edges inside clusters, less a share for unequal sizes. `balance="auto"`
(pac/balance.py), which compares clusters that are all compact, adds their sums of squares. Here
these would prefer PAC's clusters to those of any other shape, so they decide only where the graph
cannot.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from probagg.neighbours.graph import kappa, mean_over, share_by_chance

KMEANS, PARTS = "clusters of k-means", "joined parts"
# Rows are averaged so often over their neighbours before they are divided.
AVERAGED = 3
# Parts per cluster, the least rows of a part on average, and the most parts.
PER_CLUSTER, PER_PART, MOST_PARTS = 8, 20, 2_000
# Divisions by k-means, each from another start and on so many principal axes.
DIVISIONS, AXES = 4, 50
# What unequal sizes cost: at this times K, clusters whose sizes have a deviation of half their
# mean lose 5 % of the edges.
SIZES = 0.2
# Joined parts replace PAC's clusters of about equal size where they keep such a share of the edges
# more. Whatever the sizes, a candidate is taken that leaves only this part of the disagreement with
# the graph; a larger one is enough where sizes are known to differ.
CLEAR_GAIN = 0.0075
SMALL_PART, LARGER_PART = 0.4, 0.65
# From this agreement on, candidates are equal to the graph, and the most compact is taken.
SEPARATE = 0.999


@dataclass(frozen=True, eq=False)
class Grouping:
    """Clusters of rows, and how they agree with the graph of neighbours."""

    name: str
    labels: np.ndarray  # (N,)
    inside: float  # the share of edges with both ends in one cluster
    by_chance: float  # that of random labels of the same sizes

    @classmethod
    def of(cls, name: str, labels: np.ndarray, near: np.ndarray) -> Grouping:
        """Return the grouping with these labels of the rows of a graph."""
        inside = float((labels[near] == labels[:, None]).mean())
        return cls(name, labels, inside, share_by_chance(labels))

    @property
    def kappa(self) -> float:
        """The share of edges inside clusters, corrected for chance."""
        return kappa(self.inside, self.by_chance)

    @property
    def percent(self) -> str:
        """The share of edges inside clusters."""
        return f"{100 * self.inside:.1f} %"

    def kept(self) -> float:
        """Return the share of edges inside clusters, less what unequal sizes cost."""
        return self.inside - SIZES * (int(self.labels.max()) + 1) * self.by_chance


def choose_clusters(
    X: np.ndarray,
    near: np.ndarray,
    P: np.ndarray,
    smoothed: Callable[[np.ndarray], np.ndarray],
    *,
    equal: bool = True,
    random_state: int = 0,
) -> tuple[Grouping | None, str]:
    """Return joined parts or the clusters of k-means, None where PAC's are kept; and why, in words.

    X (N, D) are rows in which distances are Euclidean, `near` (N, n) their neighbours, and P (N, K)
    PAC's probabilities. `smoothed` smooths probabilities over the graph: joined parts follow its
    edges, and can only be compared with clusters that do. `equal` tells that PAC preferred clusters
    of equal size (a balance of 1 or more).
    """
    K = P.shape[1]
    if K < 2 or len(near) < PER_PART * K:
        return None, "PAC's clusters"
    others = without_themselves(near)
    before = Grouping.of("PAC's clusters", smoothed(P).argmax(1), others)
    found = (
        Grouping.of(
            name, smoothed(np.eye(K)[labels]).argmax(1) if name == KMEANS else labels, others
        )
        for name, labels in _candidates(X, others, P, random_state)
    )
    candidates = [before, *(each for each in found if len(np.unique(each.labels)) == K)]
    chosen = before
    if equal:
        best = max(candidates, key=Grouping.kept)
        if best.kept() >= before.kept() + CLEAR_GAIN:
            chosen = best
    surest = max(candidates, key=lambda each: each.kappa)
    if 1.0 - surest.kappa < (SMALL_PART if equal else LARGER_PART) * (1.0 - chosen.kappa):
        chosen = surest
    if chosen.kappa >= SEPARATE:
        ties = [each for each in candidates if each.kappa >= SEPARATE]
        chosen = min(ties, key=lambda each: spread(X, each.labels))
    if chosen is before:
        return None, f"{before.name}: {before.percent} of neighbours share one"
    compared = f"{chosen.percent} of neighbours share a cluster, in PAC's {before.percent}"
    return chosen, f"{chosen.name}: {compared}"


def _candidates(
    X: np.ndarray, near: np.ndarray, P: np.ndarray, random_state: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield labels of all rows, from k-means and from several divisions into parts."""
    N, K = P.shape
    yield KMEANS, kmeans_labels(principal_axes(X), K, random_state, n_init=10)
    n_parts = count_parts(N, K)
    if n_parts <= K:
        return
    rows = X
    for _ in range(AVERAGED):
        rows = mean_over(np.column_stack([np.arange(N), near]), rows)
    rows = principal_axes(rows)
    for number in range(DIVISIONS):
        parts = kmeans_labels(rows, n_parts, random_state + number, n_init=1)
        edges = count_edges(near, parts, n_parts)
        for cost in {1.0, SIZES * K}:
            yield PARTS, refine(edges, join(edges, K, cost), cost)[parts]
        yield PARTS, join(edges, K, None)[parts]
        mass = np.stack([np.bincount(parts, column, n_parts) for column in P.T], 1)
        yield PARTS, refine(edges, mass.argmax(1), SIZES * K)[parts]


def count_parts(n: int, n_clusters: int) -> int:
    """Return into how many parts n rows are divided.

    >>> count_parts(10_000, 10), count_parts(1000, 10)
    (90, 50)
    """
    return min(PER_CLUSTER * n_clusters + 10, n // PER_PART, max(MOST_PARTS, 2 * n_clusters))


def kmeans_labels(
    rows: Any,
    n_clusters: int,
    random_state: int,
    *,
    n_init: int,
    max_iter: int = 300,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return labels by k-means; equal rows may leave fewer than K clusters."""
    from sklearn.cluster import KMeans  # slow to import
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans = KMeans(n_clusters, n_init=n_init, max_iter=max_iter, random_state=random_state)
        return kmeans.fit_predict(rows, sample_weight=weights)


def without_themselves(near: np.ndarray) -> np.ndarray:
    """Return neighbours with one fewer: the row itself, or, behind duplicates, the last."""
    keep = near != np.arange(len(near))[:, None]
    keep[keep.all(1), -1] = False
    return near[keep].reshape(len(near), -1)


def principal_axes(rows: np.ndarray) -> np.ndarray:
    """Return the rows on their first principal axes, or as they are where columns are few."""
    from sklearn.decomposition import PCA  # slow to import

    if min(rows.shape) <= 2 * AXES:
        return rows
    return PCA(AXES, svd_solver="randomized", random_state=0).fit_transform(rows)


def count_edges(near: np.ndarray, parts: np.ndarray, n_parts: int) -> np.ndarray:
    """Return the number of edges between parts in both directions, (parts, parts), float64.

    >>> count_edges(np.array([[1], [0], [1]]), np.array([0, 0, 1]), 2)
    array([[4., 1.],
           [1., 0.]])
    """
    pairs = np.bincount((n_parts * parts[:, None] + parts[near]).ravel(), minlength=n_parts**2)
    edges = pairs.reshape(n_parts, n_parts).astype(np.float64)
    return edges + edges.T


def join(edges: np.ndarray, n_groups: int, cost: float | None) -> np.ndarray:
    """Return the group of each part, after joining two groups at a time.

    The two are those whose union gains most: edges inside, less `cost` times those by chance
    (modularity, where it is 1). Without a cost they are those with the most edges between them
    compared with the edges of either: a small group then joins its only neighbour, however large.

    >>> chain = np.diag([9.0] * 4) + np.diag([5.0, 1.0, 5.0], 1) + np.diag([5.0, 1.0, 5.0], -1)
    >>> join(chain, 2, 1.0).tolist(), join(chain, 2, None).tolist()
    ([0, 0, 1, 1], [0, 0, 1, 1])
    """
    edges, total = edges.copy(), edges.sum()
    degrees = np.maximum(edges.sum(1), 1e-12)
    groups = np.arange(len(edges))
    left = np.ones(len(edges), bool)

    def gains(rows: slice | int) -> np.ndarray:
        if cost is None:
            found = edges[rows] / degrees[rows, None] + edges[rows] / degrees
        else:
            found = edges[rows] - cost / total * degrees[rows, None] * degrees
        found[:, ~left] = -np.inf
        return found

    gain = gains(slice(None))
    np.fill_diagonal(gain, -np.inf)
    for _ in range(len(edges) - n_groups):
        first, second = sorted(divmod(int(gain.argmax()), len(edges)))
        edges[first] += edges[second]
        edges[:, first] += edges[:, second]
        degrees[first] += degrees[second]
        left[second] = False
        groups[groups == second] = first
        gain[second], gain[:, second] = -np.inf, -np.inf
        gain[first] = gain[:, first] = gains(slice(first, first + 1))[0]
        gain[first, first] = -np.inf
    return np.unique(groups, return_inverse=True)[1]


def refine(edges: np.ndarray, groups: np.ndarray, cost: float, rounds: int = 50) -> np.ndarray:
    """Return the groups after moves of single parts that gain edges, less `cost` times chance.

    A group keeps at least one part.

    >>> pairs = np.kron(np.eye(2), [[0.0, 5.0], [5.0, 0.0]]) + 1.0
    >>> refine(pairs, np.array([0, 1, 1, 1]), 1.0).tolist()
    [0, 0, 1, 1]
    """
    groups, total, n_groups = groups.copy(), edges.sum(), int(groups.max()) + 1
    one_hot = np.eye(n_groups)[groups]
    degrees = edges.sum(1)
    towards, mass, sizes = edges @ one_hot, degrees @ one_hot, one_hot.sum(0)
    for _ in range(rounds):
        moved = False
        for part in range(len(edges)):
            own = groups[part]
            if sizes[own] == 1:
                continue
            others = mass.copy()
            others[own] -= degrees[part]
            gain = towards[part] - cost / total * degrees[part] * others
            gain[own] -= edges[part, part]
            best = int(gain.argmax())
            if gain[best] > gain[own] + 1e-9 * total:
                groups[part], moved = best, True
                for values, amount in ((mass, degrees[part]), (sizes, 1.0)):
                    values[own] -= amount
                    values[best] += amount
                towards[:, own] -= edges[:, part]
                towards[:, best] += edges[:, part]
        if not moved:
            break
    return groups


def spread(X: np.ndarray, labels: np.ndarray) -> float:
    """Return the sum of squared distances of rows to the mean of their cluster."""
    total = 0.0
    for label in np.unique(labels):
        rows = X[labels == label]
        total += float(((rows - rows.mean(0)) ** 2).sum())
    return total
