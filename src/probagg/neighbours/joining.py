"""Clusters of any shape: small parts of the rows, joined along the graph of neighbours.

PAC's clusters are compact. A class of another shape is cut, and its pieces are shared among
clusters. So k-means divides the rows into several parts per cluster, and the parts between which
the graph has many edges are joined until K groups are left.

Whether PAC's clusters, those of k-means or joined parts are taken, one score decides, without
labels: the fewer edges between clusters, the more equal their sizes and the smaller the spread of
their rows, the better. Each counts by its logarithm, so by ratios.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from probagg.arrays import UNKNOWN
from probagg.known import match_clusters
from probagg.neighbours.graph import kappa, mean_over, share_by_chance, without_themselves

PAC, KMEANS, PARTS = "PAC's clusters", "clusters of k-means", "joined parts"
# Rows are averaged so often over their neighbours before they are divided.
AVERAGED = 3
# Parts per cluster, the least rows of a part on average, and the most parts.
PER_CLUSTER, PER_PART, MOST_PARTS = 8, 20, 2_000
# Divisions by k-means, each from another start and on so many principal axes.
DIVISIONS, AXES = 4, 50
# What the mean logarithm of relative sizes counts beside that of the edges cut, at a balance of 1.
SIZES = 1.6
# How far, in score, other clusters must be ahead of PAC's.
AHEAD = 0.25
# What a part is that too few known rows are in for any of their classes, and how many would be one.
NEW, FEWEST = -2, 10
# From this agreement on, candidates are equal to the graph, and the most compact is taken.
SEPARATE = 0.995
# Below this adjusted Rand index clusters are other ones.
ALIKE = 0.85


@dataclass(frozen=True, eq=False)
class Grouping:
    """Clusters of rows, and how they agree with the graph of neighbours."""

    name: str
    labels: np.ndarray  # (N,)
    inside: float  # the share of edges with both ends in one cluster
    by_chance: float  # that of random labels of the same sizes
    spread: float  # the sum of squares within clusters, as a share of that of all rows
    wrong: float = 1.0  # the share of known labels that are other ones

    @classmethod
    def of(
        cls,
        name: str,
        labels: np.ndarray,
        near: np.ndarray,
        X: np.ndarray,
        known: np.ndarray | None = None,
    ) -> Grouping:
        """Return the grouping with these labels of the rows X of a graph.

        One label per cluster, half of them wrong, is added to the known ones, so that few decide
        little.
        """
        wrong = 1.0
        if known is not None:
            is_wrong, n_added = (labels != known)[known != UNKNOWN], int(labels.max()) + 1
            wrong = (n_added / 2.0 + is_wrong.sum()) / (n_added + len(is_wrong))
        inside = float((labels[near] == labels[:, None]).mean())
        compact = spread(X, labels) / max(spread(X, np.zeros_like(labels)), 1e-300)
        return cls(name, labels, inside, share_by_chance(labels), max(compact, 1e-9), wrong)

    @property
    def kappa(self) -> float:
        """The share of edges inside clusters, corrected for chance."""
        return kappa(self.inside, self.by_chance)

    @property
    def percent(self) -> str:
        """The share of edges inside clusters."""
        return f"{100 * self.inside:.1f} %"

    def __str__(self) -> str:
        sizes = np.sort(np.bincount(self.labels))[::-1].tolist()
        shown = "/".join(map(str, sizes[:6])) + "/…" * (len(sizes) > 6)
        return f"{self.name} of sizes {shown} ({self.percent} of neighbours share one)"

    def score(self, balance: float) -> float:
        """Return how well clusters fit: few edges cut, little spread and, by balance, equal sizes.

        Where labels are known, few of them are other ones. Ratios count, so all are logarithms. The
        share of edges cut is taken a standard error above what it is, so that a few edges decide
        nothing.
        """
        N, cut, sizes = len(self.labels), 1.0 - self.inside, np.bincount(self.labels).clip(1)
        most = (cut + (cut / N) ** 0.5 + 1.0 / N) / max(1.0 - self.by_chance, 1e-12)
        evenness = float(np.log(sizes / sizes.mean()).mean())
        found = SIZES * balance * evenness - np.log(most) - np.log(self.spread)
        return float(found - np.log(self.wrong)) + AHEAD * (self.name == PAC)


def choose_clusters(
    X: np.ndarray,
    near: np.ndarray,
    P: np.ndarray,
    smoothed: Callable[..., np.ndarray],
    balance: float = 1.0,
    random_state: int = 0,
    known: np.ndarray | None = None,
    joined: bool | None = None,
) -> tuple[Grouping | None, str, str | None]:
    """Return joined parts or the clusters of k-means, None where PAC's are kept; why; and a doubt.

    X (N, D) are rows in which distances are Euclidean, `near` (N, n) their neighbours, and P (N, K)
    PAC's probabilities. `smoothed` smooths probabilities over the graph: joined parts follow its
    edges, and can only be compared with clusters that do. `balance` is PAC's: how much clusters of
    equal size are preferred.

    Where clusters of rows are `known`, (N,) with -1 elsewhere, parts are joined with and without
    these labels. The labels count in the score by how many of them clusters contradict: where they
    are few, clusters that contradict one may fit the graph better. With `joined`, only joined parts
    are compared; False keeps PAC's clusters.
    """
    K = P.shape[1]
    if K < 2 or len(near) < PER_PART * K:
        return None, PAC, None
    others = without_themselves(near)
    candidates = [Grouping.of(PAC, smoothed(P).argmax(1), others, X, known)]
    for name, labels in () if joined is False else _candidates(X, others, K, random_state, known):
        labels = smoothed(np.eye(K)[labels]).argmax(1) if name == KMEANS else labels
        if len(np.unique(labels)) == K:
            candidates.append(Grouping.of(name, _numbered(labels, K, known), others, X, known))
    pac = candidates[0]
    if joined:
        candidates = [each for each in candidates if each.name == PARTS] or [pac]
    chosen = best_grouping(candidates, balance)
    reason = f"{chosen.name}: {chosen.percent} of neighbours share a cluster"
    if chosen is not pac:
        reason += f", in PAC's {pac.percent}"
    doubt = _doubt(chosen, best_grouping(candidates, balance / 2.0), balance)
    return (None if chosen is pac else chosen), reason, doubt


def best_grouping(candidates: list[Grouping], balance: float) -> Grouping:
    """Return the clusters with the highest score, or the most compact of those without a cut.

    Known labels count before compactness.
    """
    best = max(candidates, key=lambda each: each.score(balance))
    if best.kappa < SEPARATE:
        return best
    ties = [each for each in candidates if each.kappa >= SEPARATE]
    return min(ties, key=lambda each: (each.wrong, each.spread))


def _doubt(chosen: Grouping, rival: Grouping, balance: float) -> str | None:
    """Return a warning where less preference for equal sizes leads to other clusters."""
    from sklearn.metrics import adjusted_rand_score  # slow to import

    alike = 1.0 if rival is chosen else adjusted_rand_score(chosen.labels, rival.labels)
    if alike >= ALIKE:
        return None
    return (
        f"The sizes of the clusters are in doubt: {chosen} are used, but {rival} cut fewer "
        f"neighbours (the adjusted Rand index of both is {alike:.2f}). If groups may have very "
        f"different sizes, pass balance={balance / 2.0:g} or less, which takes the latter; look at "
        "samples that you know."
    )


def _candidates(
    X: np.ndarray, near: np.ndarray, K: int, random_state: int, known: np.ndarray | None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield labels of all rows, from k-means and from several divisions into parts."""
    N = len(X)
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
        edges = count_edges(near, parts, int(parts.max()) + 1)
        yield PARTS, refine(edges, join(edges, K, "modularity"))[parts]
        yield PARTS, join(edges, K, "ratio")[parts]
        if known is not None:
            parts, classes = part_classes(parts, K, known)
            edges = count_edges(near, parts, len(classes))
            yield PARTS, refine(edges, join(edges, K, "modularity", classes), classes)[parts]


def part_classes(
    parts: np.ndarray, n_clusters: int, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of each row, and the class that most known rows of each part have, or -1.

    A part with less than half of the known rows that a part of the class would have is of no class:
    a few rows may lie among those of a new one. Where classes are left to find, and a part of any
    known class would have at least FEWEST known rows, such a part is of a class to find, NEW. The
    known rows of a class that no part has are a part of their own.

    >>> part_classes(np.array([0, 0, 0, 1]), 3, np.array([2, 2, 1, -1]))
    (array([0, 0, 2, 1]), array([ 2, -1,  1]))
    """
    n_parts, parts = int(parts.max()) + 1, parts.copy()
    rows = np.flatnonzero(known != UNKNOWN)
    counts = np.zeros((n_parts, n_clusters), np.int64)
    np.add.at(counts, (parts[rows], known[rows]), 1)
    sizes, n_known = np.bincount(parts, minlength=n_parts), counts.sum(0)
    share = np.minimum(n_known * n_clusters / len(parts), 1.0)
    most = counts.argmax(1)
    classes = np.where(counts.max(1) > 0.5 * share[most] * sizes, most, UNKNOWN)
    if not n_known.all():
        expected = sizes * share[n_known > 0].min()
        classes[(classes == UNKNOWN) & (expected >= FEWEST)] = NEW
    without = np.setdiff1d(known[rows], classes)
    for number, label in enumerate(without.tolist()):
        parts[known == label] = n_parts + number
    return parts, np.append(classes, without)


def _numbered(labels: np.ndarray, K: int, known: np.ndarray | None) -> np.ndarray:
    """Return labels numbered as the known ones of some rows."""
    if known is None:
        return labels
    return np.argsort(match_clusters(np.eye(K)[labels], known))[labels]


def count_parts(n: int, n_clusters: int) -> int:
    """Return into how many parts n rows are divided.

    >>> count_parts(10_000, 10), count_parts(1000, 10)
    (90, 50)
    """
    return min(PER_CLUSTER * n_clusters + 10, n // PER_PART, max(MOST_PARTS, 2 * n_clusters))


def kmeans_labels(rows: Any, n_clusters: int, random_state: int, *, n_init: int) -> np.ndarray:
    """Return labels by k-means; equal rows may leave fewer than K clusters."""
    from sklearn.cluster import KMeans  # slow to import
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans = KMeans(n_clusters, n_init=n_init, random_state=random_state)
        return kmeans.fit_predict(rows)


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


def join(
    edges: np.ndarray, n_groups: int, by: str, classes: np.ndarray | None = None
) -> np.ndarray:
    """Return the group of each part, after joining two groups at a time.

    By "modularity" the two are those whose union gains most: edges inside, less those by chance. By
    "ratio" they are those with the most edges between them compared with the edges of either: a
    small group then joins its only neighbour, however large. Parts of one class, where `classes`
    (parts,) has it, are joined first, and never with parts of another; -1 is no class, and NEW is
    none of the known ones.

    >>> chain = np.diag([9.0] * 4) + np.diag([5.0, 1.0, 5.0], 1) + np.diag([5.0, 1.0, 5.0], -1)
    >>> join(chain, 2, "modularity").tolist(), join(chain, 2, "ratio").tolist()
    ([0, 0, 1, 1], [0, 0, 1, 1])
    >>> join(chain, 2, "ratio", np.array([0, 1, -1, 1])).tolist()
    [0, 1, 1, 1]
    """
    edges, total = edges.copy(), edges.sum()
    degrees = np.maximum(edges.sum(1), 1e-12)
    groups = np.arange(len(edges))
    left = np.ones(len(edges), bool)
    classes = np.full(len(edges), UNKNOWN) if classes is None else classes.copy()

    def gains(rows: slice) -> np.ndarray:
        if by == "ratio":
            found = edges[rows] / degrees[rows, None] + edges[rows] / degrees
        else:
            found = edges[rows] - degrees[rows, None] * degrees / total
        has_class = (classes[rows, None] != UNKNOWN) & (classes != UNKNOWN)
        same = classes[rows, None] == classes
        found[same & (classes >= 0)], found[has_class & ~same] = np.inf, -np.inf
        found[:, ~left] = -np.inf
        return found

    gain = gains(slice(None))
    np.fill_diagonal(gain, -np.inf)
    for _ in range(len(edges) - n_groups):
        first, second = sorted(divmod(int(gain.argmax()), len(edges)))
        edges[first] += edges[second]
        edges[:, first] += edges[:, second]
        degrees[first] += degrees[second]
        if classes[first] == UNKNOWN:
            classes[first] = classes[second]
        left[second] = False
        groups[groups == second] = first
        gain[second], gain[:, second] = -np.inf, -np.inf
        gain[first] = gain[:, first] = gains(slice(first, first + 1))[0]
        gain[first, first] = -np.inf
    return np.unique(groups, return_inverse=True)[1]


def refine(
    edges: np.ndarray, groups: np.ndarray, classes: np.ndarray | None = None, rounds: int = 50
) -> np.ndarray:
    """Return the groups after moves of single parts that gain modularity.

    A group keeps at least one part, and parts of a class, or of a new one, stay.

    >>> pairs = np.kron(np.eye(2), [[0.0, 5.0], [5.0, 0.0]]) + 1.0
    >>> refine(pairs, np.array([0, 1, 1, 1])).tolist()
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
            if sizes[own] == 1 or (classes is not None and classes[part] != UNKNOWN):
                continue
            others = mass.copy()
            others[own] -= degrees[part]
            gain = towards[part] - degrees[part] * others / total
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
