"""The data of a sweep: scores of rows against every cluster, and the sums that give them.

`LinearRows` keeps the moments of K clusters, so a sweep costs O(NKD); `PairwiseRows`, for metrics
without a linear form, keeps all N^2 distances. Scores are laid out with clusters first, (K, rows),
so that reductions over clusters are vectorised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances

from probagg.aggregation import (
    Array,
    cluster_objectives,
    dual,
    largest_eigenvalue,
    lifted_growth,
)
from probagg.arrays import chunks
from probagg.environment import check_memory, one_blas_thread
from probagg.errors import InputError
from probagg.pac.coordinates import Coordinates, chunks_of, linear_floor, linear_scores

if TYPE_CHECKING:
    from probagg.pac.assignment import Update

KEPT_BYTES = 128 * 2**20  # the largest array that a sweep keeps for the next one

Metric: TypeAlias = str | Callable[..., float]
Index: TypeAlias = slice | Array  # a slice of rows, or their numbers


class SweptRows:
    """The data of a sweep. `rows` are a chunk or a panel, in the order of the sweep."""

    X: Array
    unit: float  # a score of 1, in the user's units
    fixed: Array | float = 0.0  # what rows whose P stays as it is add to the sums
    order: Any  # in which the sweep visits the rows of X; None for their own
    sample_weight: Array | None  # in the order of the sweep

    def chunks(self) -> Iterator[slice]:
        """Return slices of all rows that are worth scoring at once."""
        return chunks_of(self.X)

    def panels(self, size: int) -> Iterator[Index]:
        """Yield panels of `size` rows."""
        return chunks(self.X.shape[0], size)

    def sweep(self, P: Array, update: Update, block: int) -> Array:
        """Update P in place as `BlockSweeps` does, or return None."""
        return None


class LinearRows(SweptRows):
    """Rows under a linear metric. They act on scores through K moments, kept in float64.

    Rows that fit in `KEPT_BYTES` are lifted once, in the sweep's order, and P is arranged likewise.
    Larger data stays where it is, and every panel is gathered and lifted when it is swept.
    """

    def __init__(
        self,
        X: Array,
        weights: Array | None,
        order: np.ndarray | None,
        coordinates: Coordinates,
    ) -> None:
        self.X, self.coordinates, self.order = X, coordinates, order
        self.unit = coordinates.scale**2
        self.sample_weight = self._weight_of_X = weights
        self._lifted: Array = None
        self._last: tuple[Index, Array] | None = None
        self._distances: dict[tuple[int, int], np.ndarray] = {}
        self._lift_all()
        if order is not None and weights is not None:
            self.sample_weight = weights[self.order]

    def _lift_all(self) -> None:
        X, order, lift = self.X, self.order, self.coordinates.lift
        if sp.issparse(X):
            self._lifted = lift(X if order is None else X[order])
        elif X.shape[0] * (X.shape[1] + 2) * X.dtype.itemsize <= KEPT_BYTES:
            self._lifted = np.empty((X.shape[0], X.shape[1] + 2), X.dtype)
            for rows in chunks_of(X):
                self._lifted[rows] = lift(X[rows if order is None else order[rows]])

    def arrange(self, P: Array) -> Array:
        """Return P in the order of the sweep."""
        return np.asfortranarray(P if self.order is None else P[self.order])

    def restore(self, P: Array) -> Array:
        """Return an arranged P in the order of X."""
        if self.order is not None:
            P = P[np.argsort(self.order)]
        return P if sp.issparse(P) else np.ascontiguousarray(P)

    def sample(self, size: int, generator: np.random.Generator) -> LinearRows:
        """Return at most `size` random rows of positive weight, in the same coordinates."""
        weights = self._weight_of_X
        candidates = np.arange(self.X.shape[0]) if weights is None else np.flatnonzero(weights)
        chosen = generator.choice(candidates, min(size, len(candidates)), replace=False)
        weights = None if weights is None else weights[chosen]
        return LinearRows(self.X[chosen], weights, None, self.coordinates)

    def lifted(self, rows: Index) -> Array:
        if self._lifted is not None:
            return self._lifted[rows]
        # `absorb` follows `scores` on these rows.
        if self._last is None or self._last[0] is not rows:
            index = rows if self.order is None else self.order[rows]
            self._last = rows, self.coordinates.lift(self.X[index])
        return self._last[1]

    def start(self, A: Array) -> None:
        """Set the sums to `fixed` and those of weights A (K, N), arranged like P's transpose."""
        self.sums = np.zeros((A.shape[0], self.X.shape[1] + 2)) + self.fixed
        with one_blas_thread():
            for rows in self.chunks():
                self.absorb(rows, A[:, rows])

    def fix(self) -> None:
        """Keep the present sums as those of rows that are fixed."""
        self.fixed = 1.0 * self.sums  # a copy

    def scores(self, rows: Index) -> Array:
        """Return the sums of Eq. 8, (K, rows), as a new array."""
        return linear_scores(self.lifted(rows), self.sums)

    def absorb(self, rows: Index, dA: Array) -> None:
        """Add to the sums a change dA (K, rows) of the weights of these rows."""
        self.sums += dA @ self.lifted(rows)

    def distances(self, rows: Index) -> Array:
        """Return the distances among these rows, (rows, rows)."""
        key = rows.start, rows.stop
        if key in self._distances:
            return self._distances[key]
        lifted = self.lifted(rows)
        if sp.issparse(lifted):
            side = [-2.0 * lifted[:, :-2], lifted[:, [-1]], lifted[:, [-2]]]
            D = (lifted @ sp.hstack(side, format="csr").T).toarray().clip(0.0)
        else:
            D = (lifted @ dual(lifted).T).clip(0.0)
        np.fill_diagonal(D, 0.0)
        if self.X.shape[0] * D.shape[1] * D.itemsize <= KEPT_BYTES:
            self._distances[key] = D
        return D

    @property
    def floor(self) -> Array:
        """The rounding error of the scores; smaller scores are noise."""
        return linear_floor(self.sums, self.X.dtype)

    @property
    def mass(self) -> Array:
        return self.sums[:, -1]

    @property
    def objectives(self) -> Array:
        """(K,) sum_ij a_ik a_jk d_ij: the trace of Eq. 2 per cluster."""
        return cluster_objectives(self.sums)

    def growth(self) -> float:
        """Return lambda of `aggregation.critical_m`."""

        def weighted() -> Iterator[tuple[Array, Array]]:
            for rows in self.chunks():
                w = self.sample_weight
                yield self.lifted(rows), 1.0 if w is None else w[rows]

        with one_blas_thread():
            return lifted_growth(weighted)


class PairwiseRows(SweptRows):
    """Samples given by their (N, N) distances X."""

    def __init__(self, X: np.ndarray, weights: np.ndarray | None, order: np.ndarray | None) -> None:
        self.X, self.unit, self._weight_of_X = X, 1.0, weights
        self.order = np.arange(len(X)) if order is None else order
        self.sample_weight = None if weights is None else weights[self.order]

    def arrange(self, P: np.ndarray) -> np.ndarray:
        return P[self.order]

    def restore(self, P: np.ndarray) -> np.ndarray:
        return P[np.argsort(self.order)]

    def start(self, A: np.ndarray) -> None:
        self.A = np.array(self.restore(A.T), self.X.dtype, order="C") + self.fixed
        terms = (self.A[rows] * (self.X[rows] @ self.A) for rows in self.chunks())
        self._objectives = np.sum([term.sum(0, dtype=np.float64) for term in terms], axis=0)

    def fix(self) -> None:
        self.fixed = self.A.copy()

    def scores(self, rows: Index) -> np.ndarray:
        self._before = np.ascontiguousarray((self.X[self.order[rows]] @ self.A).T)
        return self._before.copy()

    def distances(self, rows: Index) -> np.ndarray:
        index = self.order[rows]
        return self.X[index][:, index]

    def absorb(self, rows: Index, dA: np.ndarray) -> None:
        """Update A, and J by 2 dA . S + dA . D dA, with S the sums before."""
        self._objectives += (dA * (2.0 * self._before + dA @ self.distances(rows))).sum(1)
        self.A[self.order[rows]] += dA.T

    @property
    def floor(self) -> float:
        return float(np.finfo(self.X.dtype).tiny)

    @property
    def objectives(self) -> np.ndarray:
        return self._objectives

    @property
    def mass(self) -> np.ndarray:
        return self.A.sum(0, dtype=np.float64)

    def growth(self) -> float:
        w = self._weight_of_X
        w = np.ones(len(self.X), self.X.dtype) if w is None else w
        R = self.X @ w
        if not R.max() > 0.0:
            return 0.0  # all samples coincide
        R = np.maximum(R, R.max() * np.finfo(R.dtype).eps)

        def update(V: np.ndarray) -> np.ndarray:
            return -(self.X @ (w[:, None] * V)) / R[:, None]

        return largest_eigenvalue(update, R[:, None])


Rows: TypeAlias = LinearRows | PairwiseRows


def training_distances(X: Array, metric: Metric) -> np.ndarray:
    """Return all (N, N) distances, or raise an error if they would not fit in memory."""
    options = check_pairwise_metric(X, metric)
    N, dtype = X.shape[0], X.dtype
    check_memory(
        float(N) * N * dtype.itemsize,
        f"metric={metric!r}, which keeps all {N} x {N} distances,",
        "Use 'sqeuclidean' or 'cosine', which need no distance matrix, or fit a sample of the rows "
        "and predict the rest.",
    )
    D = np.empty((N, N), dtype)
    for rows in chunks(N, max(1, 2**22 // N)):
        D[rows] = pairwise_distances(X[rows], X, metric, **options)
    np.fill_diagonal(D, 0.0)
    if np.isnan(D.max()):
        raise InputError(
            f"metric={metric!r} gives distances that are NaN. Check what it does with these rows; "
            "'seuclidean' divides by the variance of each column, which must not be constant."
        )
    check_sums(D)
    return D


def check_pairwise_metric(X: Array, metric: Metric) -> dict[str, Any]:
    """Return the options of a metric for the rows X; raise where it cannot compare them."""
    try:
        options = metric_options(X, metric)
        pairwise_distances(X[:1], X[:1], metric, **options)
    except ValueError as error:
        raise InputError(
            f"metric={metric!r} cannot be used here: {error} Use 'sqeuclidean', 'cosine', "
            "'precomputed', or a metric of sklearn.metrics.pairwise_distances."
        ) from error
    return options


def metric_options(X: Array, metric: Metric) -> dict[str, Any]:
    """Return what two of scikit-learn's metrics estimate from all training rows."""
    if metric == "seuclidean":
        return {"V": np.var(X, axis=0, ddof=1)}
    if metric == "mahalanobis":
        return {"VI": np.linalg.inv(np.cov(X.T)).T}
    return {}


def check_sums(D: np.ndarray) -> None:
    """Raise an error where sums of all distances are not finite."""
    with np.errstate(over="ignore"):
        largest = float(D.max()) * D.shape[0] ** 2
    if not largest <= np.finfo(D.dtype).max:
        raise InputError(
            f"The largest distance is {D.max():.3g}: sums of distances overflow. Divide X by a "
            "constant: assignments do not depend on the unit."
        )
