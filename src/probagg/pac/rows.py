"""The data of a sweep: scores of rows against every cluster, and the sums that give them.

`LinearRows` keeps the moments of K clusters, so a sweep costs O(NKD); `pairwise.PairwiseRows` keeps
all N^2 distances. Scores are laid out with clusters first, (K, rows), so that reductions over
clusters are vectorised.

Samples given by all N^2 distances, for metrics without a linear form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from probagg.aggregation import cluster_objectives, dual, largest_eigenvalue, lifted_growth
from probagg.pac.coordinates import Frame, chunks_of, linear_floor, linear_scores

KEPT_BYTES = 128 * 2**20  # the largest array that a sweep keeps for the next one


class Rows(Protocol):
    """What a sweep needs of its data. `rows` is what `each` passes on: places in its order."""

    X: Any
    unit: float  # a score of 1, in the user's units
    sample_weight: np.ndarray | None  # laid out like an arranged P

    def each(self, step: Callable[[Any], None], parts: Iterable[slice]) -> None:
        """Call `step` with each slice in turn, or with other indices of the same rows."""

    def parts(self) -> Iterator[slice]:
        """Return slices of all rows that are worth scoring at once."""

    def arrange(self, P: np.ndarray) -> np.ndarray:
        """Return P laid out for the sweeps."""

    def restore(self, P: np.ndarray) -> np.ndarray:
        """Return an arranged P in the order of X."""

    def index(self, rows: slice) -> Any:
        """Return the places of these rows in an arranged P."""

    def start(self, A: np.ndarray) -> None:
        """Set the sums to those of weights A (K, N), arranged like the transpose of P."""

    def scores(self, rows: slice) -> np.ndarray:
        """Return the sums of Eq. 8, (K, rows), as a new array."""

    def distances(self, rows: slice) -> np.ndarray:
        """Return the distances among these rows, (rows, rows)."""

    def absorb(self, rows: slice, dA: np.ndarray) -> None:
        """Add to the sums a change dA (K, rows) of the weights of these rows."""

    @property
    def floor(self) -> np.ndarray | float:
        """The rounding error of the scores; smaller scores are noise."""

    @property
    def mass(self) -> np.ndarray:
        """(K,) sums of A."""

    @property
    def objectives(self) -> np.ndarray:
        """(K,) sum_ij a_ik a_jk d_ij: the trace of Eq. 2 per cluster."""

    def growth(self) -> float:
        """Return lambda of `aggregation.critical_m`."""


def each_in_turn(step: Callable[[Any], None], parts: Iterable[slice]) -> None:
    """Call `step` with each slice."""
    for part in parts:
        step(part)


class LinearRows:
    """Rows under a linear metric. They act on scores through K moments, kept in float64.

    Rows that fit in `KEPT_BYTES` are lifted once, in the sweep's order, and P is arranged likewise.
    Larger data stays where it is, and every panel is gathered and lifted when it is swept.
    """

    def __init__(
        self, X: Any, weights: np.ndarray | None, order: np.ndarray | None, frame: Frame
    ) -> None:
        self.X, self.frame, self.order = X, frame, order
        self.unit = frame.scale**2
        self.sample_weight = self._file_weight = weights
        self._lifted: Any = None
        self._last: tuple[slice, Any] | None = None
        self._distances: dict[tuple[int, int], np.ndarray] = {}
        if sp.issparse(X):
            self._lifted = frame(X if order is None else X[order])
        elif X.shape[0] * (X.shape[1] + 2) * X.dtype.itemsize <= KEPT_BYTES:
            self._lifted = np.empty((X.shape[0], X.shape[1] + 2), X.dtype)
            for rows in chunks_of(X):
                self._lifted[rows] = frame(X[rows if order is None else order[rows]])
        if self._arranged and order is not None and weights is not None:
            self.sample_weight = weights[order]

    each = staticmethod(each_in_turn)

    def parts(self) -> Iterator[slice]:
        return chunks_of(self.X)

    @property
    def _arranged(self) -> bool:
        return self._lifted is not None

    def arrange(self, P: np.ndarray) -> np.ndarray:
        if not self._arranged:
            return P
        return np.asfortranarray(P if self.order is None else P[self.order])

    def restore(self, P: np.ndarray) -> np.ndarray:
        if not self._arranged or self.order is None:
            return np.ascontiguousarray(P)
        restored = np.empty(P.shape, P.dtype)
        restored[self.order] = P
        return restored

    def index(self, rows: slice) -> Any:
        return rows if self._arranged or self.order is None else self.order[rows]

    def sample(self, size: int, generator: np.random.Generator) -> LinearRows:
        """Return at most `size` random rows of positive weight, in the same frame."""
        weights = self._file_weight
        candidates = np.arange(self.X.shape[0]) if weights is None else np.flatnonzero(weights)
        chosen = generator.choice(candidates, min(size, len(candidates)), replace=False)
        weights = None if weights is None else weights[chosen]
        return LinearRows(self.X[chosen], weights, None, self.frame)

    def lifted(self, rows: slice) -> Any:
        if self._lifted is not None:
            return self._lifted[rows]
        if self._last is None or self._last[0] != rows:  # `absorb` follows `scores` on these rows
            self._last = rows, self.frame(self.X[self.index(rows)])
        return self._last[1]

    def start(self, A: np.ndarray) -> None:
        self.sums = np.zeros((A.shape[0], self.X.shape[1] + 2))
        for rows in self.parts():
            self.absorb(rows, A[:, self.index(rows)])

    def scores(self, rows: slice) -> np.ndarray:
        return linear_scores(self.lifted(rows), self.sums)

    def absorb(self, rows: slice, dA: np.ndarray) -> None:
        self.sums += dA @ self.lifted(rows)

    def distances(self, rows: slice) -> np.ndarray:
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
    def floor(self) -> np.ndarray:
        return linear_floor(self.sums, self.X.dtype)

    @property
    def mass(self) -> np.ndarray:
        return self.sums[:, -1]

    @property
    def objectives(self) -> np.ndarray:
        return cluster_objectives(self.sums)

    def growth(self) -> float:
        def blocks() -> Iterator[tuple[Any, Any]]:
            for rows in self.parts():
                w = self.sample_weight
                yield self.lifted(rows), 1.0 if w is None else w[self.index(rows)]

        return lifted_growth(blocks)


class PairwiseRows:
    """Samples given by their (N, N) distances X."""

    def __init__(self, X: np.ndarray, weights: np.ndarray | None, order: np.ndarray | None) -> None:
        self.X, self.order, self.unit = X, order, 1.0
        self.sample_weight = weights

    each = staticmethod(each_in_turn)

    def parts(self) -> Iterator[slice]:
        return chunks_of(self.X)

    def arrange(self, P: np.ndarray) -> np.ndarray:
        return P

    def restore(self, P: np.ndarray) -> np.ndarray:
        return P

    def index(self, rows: slice) -> Any:
        return rows if self.order is None else self.order[rows]

    def start(self, A: np.ndarray) -> None:
        self.A = np.array(A.T, self.X.dtype, order="C")
        parts = (self.A[rows] * (self.X[rows] @ self.A) for rows in self.parts())
        self.objectives = np.sum([part.sum(0, dtype=np.float64) for part in parts], axis=0)

    def scores(self, rows: slice) -> np.ndarray:
        self._before = np.ascontiguousarray((self.X[self.index(rows)] @ self.A).T)
        return self._before.copy()

    def distances(self, rows: slice) -> np.ndarray:
        index = self.index(rows)
        return self.X[index][:, index]

    def absorb(self, rows: slice, dA: np.ndarray) -> None:
        """Update A, and J by 2 dA . S + dA . D dA, with S the sums before."""
        self.objectives += (dA * (2.0 * self._before + dA @ self.distances(rows))).sum(1)
        self.A[self.index(rows)] += dA.T

    @property
    def floor(self) -> float:
        return float(np.finfo(self.X.dtype).tiny)

    @property
    def mass(self) -> np.ndarray:
        return self.A.sum(0, dtype=np.float64)

    def growth(self) -> float:
        w = self.sample_weight
        w = np.ones(len(self.X), self.X.dtype) if w is None else w
        R = self.X @ w
        if not R.max() > 0.0:
            return 0.0  # all samples coincide
        R = np.maximum(R, R.max() * np.finfo(R.dtype).eps)

        def update(V: np.ndarray) -> np.ndarray:
            return -(self.X @ (w[:, None] * V)) / R[:, None]

        return largest_eigenvalue(update, R[:, None])
