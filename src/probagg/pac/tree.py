"""A tree of clusters: which to merge, from the moments alone.

Merging clusters a and b adds n_a n_b / (n_a + n_b) |mu_a - mu_b|^2 to the sum of squares within
clusters (half of J at balance 0). Ward's tree merges the two that add least, again and again.
Masses and means of merged clusters follow from those of their parts, so no row is read again.
"""

from numbers import Integral

import numpy as np
from scipy.cluster.hierarchy import cut_tree
from sklearn.metrics.pairwise import euclidean_distances

from probagg.errors import InputError


def ward_linkage(means: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return the merges in SciPy's format, (K - 1, 4), in O(K^2) time and memory in most cases.

    A row has the numbers of two clusters, their distance sqrt(2 n_a n_b / (n_a + n_b)) |mu_a -
    mu_b|, and how many of the first K the new one has; it is the cluster with the next number.

    >>> ward_linkage(np.array([[0.0], [1.0], [9.0]]), np.array([1.0, 1.0, 1.0])).round(2)
    array([[0.  , 1.  , 1.  , 2.  ],
           [2.  , 3.  , 9.81, 3.  ]])
    """
    K = len(mass)
    means, mass = means.astype(np.float64), np.maximum(mass.astype(np.float64), 1e-300)
    costs = euclidean_distances(means, squared=True)
    costs *= 2.0 / (1.0 / mass + 1.0 / mass[:, None])
    np.fill_diagonal(costs, np.inf)
    nearest = costs.argmin(1)
    numbers, leaves, linkage = np.arange(K), np.ones(K), np.empty((K - 1, 4))
    for step in range(K - 1):
        a = int(costs[np.arange(K), nearest].argmin())
        b = int(nearest[a])
        pair = sorted((numbers[a], numbers[b]))
        linkage[step] = *pair, np.sqrt(costs[a, b]), leaves[a] + leaves[b]
        means[a] = (mass[a] * means[a] + mass[b] * means[b]) / (mass[a] + mass[b])
        mass[a] += mass[b]
        leaves[a] += leaves[b]
        numbers[a] = K + step
        costs[b], costs[:, b] = np.inf, np.inf
        merged = np.isinf(costs[a])
        costs[a] = ((means - means[a]) ** 2).sum(1) * 2.0 / (1.0 / mass + 1.0 / mass[a])
        costs[a, merged] = np.inf
        costs[:, a] = costs[a]
        # A merged cluster is never nearer to another than the nearer of its parts was.
        for k in np.flatnonzero((nearest == a) | (nearest == b)):
            nearest[k] = costs[k].argmin()
        nearest[a] = costs[a].argmin()
    return linkage


def clusters_at(linkage: np.ndarray, n: int) -> np.ndarray:
    """Return to which of n merged clusters each of the K belongs."""
    K = len(linkage) + 1
    if not isinstance(n, Integral) or not 1 <= n <= K:
        raise InputError(f"n is {n}, but a number from 1 to the {K} clusters is needed.")
    return np.zeros(1, np.int64) if K == 1 else cut_tree(linkage, n_clusters=n)[:, 0]
