"""Fitted clusters: what scores and assigns rows, is saved, and is loaded again.

`LinearClusters` are K moments, which represent the whole data set; `PairwiseClusters`, for other
metrics, keep the weights of all training rows. Linear ones form a tree: which to merge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.cluster.hierarchy import cut_tree
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import euclidean_distances

from probagg.aggregation import (
    Array,
    Moments,
    cluster_objectives,
    mass_factor,
    namespace,
    raise_to,
)
from probagg.arrays import chunks, is_tensor, like, to_numpy
from probagg.environment import blas_threads, one_blas_thread
from probagg.errors import InputError
from probagg.estimators import labels_of
from probagg.pac.assignment import (
    MANY,
    SPARSE,
    Update,
    assign_rows,
    kernels,
    labels_of_rows,
)
from probagg.pac.coordinates import (
    CHUNK_NUMBERS,
    TENSOR_NUMBERS,
    Coordinates,
    linear_floor,
    linear_scores,
)
from probagg.pac.rows import Metric, metric_options


@dataclass(frozen=True)
class Clusters(ABC):
    """Clusters that assign rows by Eq. 8; lazy results carry them, not the estimator.

    `update` has the m and the balance used, and `critical_m` is that of the fitted rows.
    """

    update: Update
    critical_m: float

    @property
    @abstractmethod
    def mass(self) -> Array:
        """(K,) sums of the weights of the rows."""

    @property
    @abstractmethod
    def floor(self) -> Array | float:
        """The rounding error of the sums of Eq. 8."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """A score of 1, in the user's units."""

    @property
    @abstractmethod
    def numbers_per_row(self) -> int:
        """About how many numbers in memory it takes to assign a row."""

    @property
    @abstractmethod
    def example(self) -> np.ndarray:
        """What stands for a row in `probabilities`, (1, features)."""

    @abstractmethod
    def like(self, X: Array) -> Clusters:
        """Return the clusters for rows of the kind of X: arrays, or tensors on its device."""

    @abstractmethod
    def distance_sums(self, X: Array) -> Array:
        """Return sum_j a_jk d_ij of Eq. 8, (K, rows)."""

    @abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save."""

    @property
    def n_clusters(self) -> int:
        return len(self.mass)

    def probabilities(self, X: Array) -> Array:
        """Return P, (rows, K)."""
        found = self.like(X)
        return self.update.assign(found.distance_sums(X), found.mass, found.floor).T

    def labels(self, X: Array) -> Array:
        """Return the most probable cluster of each row."""
        return labels_of(self.probabilities(X))

    def scores(self, X: Array) -> Array:
        """Return the scores of Eq. 8, (rows, K), in the units of X."""
        found = self.like(X)
        return self.update.scale(found.distance_sums(X).clip(0.0), found.mass).T * self.unit

    def objectives(self, X: Array) -> Array:
        """Return sum_k a_ik s_ik of each row, in float64."""
        J = (self.update.weigh(self.probabilities(X)) * self.scores(X)).sum(1)
        return J.double() if is_tensor(J) else J.astype(np.float64)

    def top(self, X: Array, k: int) -> Array:
        """Return the k most probable clusters and their probabilities, (rows, 2 k) in float64."""
        P = self.probabilities(X)
        if is_tensor(P):
            values, clusters = P.topk(k, 1)
            return namespace(P).concatenate([clusters.double(), values.double()], 1)
        clusters = np.sort(np.argpartition(-P, k - 1, axis=1)[:, :k], axis=1)
        values = np.take_along_axis(P, clusters, 1)
        order = np.argsort(-values, axis=1, kind="stable")
        return np.hstack([np.take_along_axis(found, order, 1) for found in (clusters, values)])

    @staticmethod
    def restored(arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Clusters:
        """Return the clusters of `to_arrays`, and of the estimator with this description."""
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("some of its numbers are not finite")
        params, learned = description["params"], description["learned"]
        update = Update(learned["m_"], params["aggregate"], params["balance"])
        kind = LinearClusters if "sums" in arrays else PairwiseClusters
        return kind.of_arrays(update, learned["critical_m_"], params["metric"], arrays)


@dataclass(frozen=True)
class LinearClusters(Clusters):
    """K moments: K (D + 2) numbers that represent the whole data set."""

    coordinates: Coordinates
    sums: Array  # (K, D + 2) of lifted rows

    @property
    def mass(self) -> Array:
        return self.sums[:, -1]

    @property
    def floor(self) -> Array:
        return linear_floor(self.sums, self.coordinates.center.dtype)

    @property
    def unit(self) -> float:
        return self.coordinates.scale**2

    @property
    def numbers_per_row(self) -> int:
        return self.sums.shape[1]

    @property
    def example(self) -> np.ndarray:
        return self.coordinates.center[None]

    @property
    def objective(self) -> float:
        """J of the rows as they were added, in their units."""
        return self.update.objective(self.sums) * self.unit

    @property
    def means(self) -> Array:
        """(K, D) cluster means in the user's units; for cosine, of rows of length 1."""
        mass = 1.0 / mass_factor(self.mass, 0.0)[:, None]  # at least a rounding error
        center, scale = self.coordinates.center, self.coordinates.scale
        means = self.sums[:, :-2] / mass * scale + center
        return means * 2.0**0.5 if self.coordinates.metric == "cosine" else means

    @property
    def moments(self) -> Moments:
        """The moments in the user's units, for `aggregate(X, moments, metric)`."""
        scale, lifted = self.coordinates.scale, Moments.of_sums(self.sums)
        center = namespace(self.sums).asarray(self.coordinates.center, dtype=self.sums.dtype)
        mass, shifted = self.mass, scale * lifted.first
        second = scale**2 * lifted.second + 2.0 * shifted @ center + mass * (center @ center)
        return Moments(mass, shifted + mass[:, None] * center, second)

    def placed(self, numbers: np.ndarray, n_clusters: int) -> LinearClusters:
        """Return these clusters with other numbers; no row is in the rest of `n_clusters`.

        An empty cluster would score 0 and take every row, so the rest are spread without bounds.
        """
        sums = np.zeros((n_clusters, self.sums.shape[1]), self.sums.dtype)
        mass, second = 10.0 * self.sums[:, -1].max(), 1e5 * self.sums[:, -2:].max()
        sums[:, -2:] = second, mass
        sums[numbers] = self.sums
        return replace(self, sums=sums)

    def like(self, X: Array) -> LinearClusters:
        return replace(self, coordinates=self.coordinates.like(X), sums=like(self.sums, X))

    def distance_sums(self, X: Array) -> Array:
        return linear_scores(self.coordinates.lift(X), self.sums)

    def assign(self, lifted: Array) -> Array:
        """Return P, (K, rows), of lifted rows."""
        S = linear_scores(lifted, self.sums)
        return self.update.assign(S, self.mass, linear_floor(self.sums, lifted.dtype))

    def sums_of(self, rows: slice, X: Array, weights: Array | None = None) -> Array:
        """Return the sums of some rows of X, (K, D + 2), as these clusters assign them."""
        X, weights = X[rows], None if weights is None else weights[rows]
        if is_tensor(X) and X.is_cuda and kernels() and kernels().takes(X, self.n_clusters):
            return kernels().sums_of(self, X, weights)
        total, (K, width) = namespace(self.sums).zeros_like(self.sums), self.sums.shape
        size = TENSOR_NUMBERS // (K + width - 2) if is_tensor(X) else CHUNK_NUMBERS // width
        is_sparse = K >= MANY and not is_tensor(X)
        for chunk in chunks(X.shape[0], max(1, size)):
            lifted = self.coordinates.lift(X[chunk])
            w = None if weights is None else weights[chunk]
            if is_sparse:
                P = assign_rows(lifted, self.sums, self.update).T
                is_sparse = P.nnz <= SPARSE * K * P.shape[1]
            else:
                P = self.assign(lifted)
            total += self.update.weigh(P, w) @ lifted
        return total

    def typicality(self, X: Array) -> Array:
        """Return minus the mean distance to the row's cluster, over that within the cluster."""
        found = self.like(X)
        S = found.distance_sums(X).clip(0.0)
        rows = namespace(S).arange(S.shape[1], device=S.device)
        own = labels_of(self.update.assign(1.0 * S, found.mass, found.floor).T)
        within = cluster_objectives(found.sums) * mass_factor(found.mass, 0.0)
        within = namespace(S).asarray(raise_to(within, found.floor[:, 0]), dtype=S.dtype)
        return -S[own, rows] / within[own]

    def nearest(self, X: Array) -> Array:
        """Return P, (rows, K): a CSR array without its tails where clusters are many."""
        if is_tensor(X) or self.n_clusters < MANY:
            return self.probabilities(X)
        n_threads, size = blas_threads(), CHUNK_NUMBERS // self.sums.shape[1] + 1
        with one_blas_thread():
            found = [
                assign_rows(self.coordinates.lift(X[some]), self.sums, self.update, n_threads)
                for some in chunks(X.shape[0], size)
            ]
        return sp.vstack(found, "csr")

    def labels(self, X: Array) -> Array:
        return labels_of_rows(self.nearest(X))

    def replaced(self, share: float, old: Array, new: Array) -> LinearClusters:
        """Return the clusters once some rows count as `new` and not as their share of `old`."""
        return replace(self, sums=self.sums + (new - share * old))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            "sums": to_numpy(self.sums),
            "center": to_numpy(self.coordinates.center),
            "scale": np.array([self.coordinates.scale]),
        }

    @classmethod
    def of_arrays(
        cls, update: Update, critical_m: float, metric: str, arrays: dict[str, np.ndarray]
    ) -> LinearClusters:
        """Return what `to_arrays` saved."""
        sums, center, scale = arrays["sums"], arrays["center"], arrays["scale"]
        if sums.ndim != 2 or center.shape != (sums.shape[1] - 2,) or scale.shape != (1,):
            raise ValueError("its arrays do not belong together")
        return cls(update, critical_m, Coordinates(metric, center, float(scale[0])), sums)


@dataclass(frozen=True)
class PairwiseClusters(Clusters):
    """The weights A (N, K) of the training rows, and the rows unless distances are precomputed."""

    metric: Metric
    A: np.ndarray
    X: Array | None = None

    @property
    def mass(self) -> np.ndarray:
        return self.A.sum(0)

    @property
    def floor(self) -> float:
        return float(np.finfo(self.A.dtype).tiny)

    @property
    def unit(self) -> float:
        return 1.0

    @property
    def numbers_per_row(self) -> int:
        return 16 * len(self.A)

    @property
    def example(self) -> np.ndarray:
        return np.zeros((1, len(self.A)), self.A.dtype) if self.X is None else self.X[:1]

    def like(self, X: Array) -> PairwiseClusters:
        return self

    def distance_sums(self, X: Array) -> np.ndarray:
        D = X
        if self.X is not None:
            D = pairwise_distances(X, self.X, self.metric, **self._options)
        return np.ascontiguousarray((D.astype(X.dtype, copy=False) @ self.A).T)

    @cached_property
    def _options(self) -> dict[str, Any]:
        return metric_options(self.X, self.metric)

    def to_arrays(self) -> dict[str, np.ndarray]:
        if callable(self.metric) or sp.issparse(self.X):
            what = "a metric given as a function" if callable(self.metric) else "sparse rows"
            raise InputError(
                f"A PAC with {what} cannot be saved without pickle. Use a metric by name on dense "
                "rows, or metric='precomputed' and compute the distances yourself."
            )
        return {"A": self.A} if self.X is None else {"A": self.A, "X": np.ascontiguousarray(self.X)}

    @classmethod
    def of_arrays(
        cls, update: Update, critical_m: float, metric: str, arrays: dict[str, np.ndarray]
    ) -> PairwiseClusters:
        """Return what `to_arrays` saved."""
        A, X = arrays["A"], arrays.get("X")
        if A.ndim != 2 or (X is not None and (X.ndim != 2 or len(X) != len(A))):
            raise ValueError("its arrays do not belong together")
        return cls(update, critical_m, metric, A, X)


def ward_linkage(means: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return Ward's tree in SciPy's format, (K - 1, 4), in O(K^2) time and memory in most cases.

    Merging clusters a and b adds n_a n_b / (n_a + n_b) |mu_a - mu_b|^2 to the sum of squares within
    clusters (half of J at balance 0); the two that add least merge, again and again.
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
