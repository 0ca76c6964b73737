"""The data of a sweep: scores of rows against every cluster, and the sums that give them.

`LinearRows` keeps the moments of K clusters, so a sweep costs O(NKD). `PairwiseRows` keeps all N^2
distances, for metrics without a linear form. Scores are laid out with clusters first, (K, rows), so
that reductions over clusters are vectorised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from probagg.aggregation import (
    cluster_objectives,
    dual,
    embed,
    largest_eigenvalue,
    lifted_growth,
)

KEPT_BYTES = 128 * 2**20  # the largest array that a sweep keeps for the next one
CHUNK_NUMBERS = 2**18  # per chunk in which rows are prepared and scored


@dataclass(frozen=True)
class Frame:
    """The map from a user's rows to the lifted rows PAC computes with.

    Scores depend on differences only and assignments on ratios of scores, so rows are centred and
    divided by a power of two near their size: an offset of 1e8 or a unit of 1e150 loses no digits.
    CSR rows are not centred, as that would make them dense.
    """

    metric: str
    center: np.ndarray
    scale: float

    @classmethod
    def of(cls, X: Any, metric: str) -> Frame:
        """Return the frame for the rows X."""
        if sp.issparse(X):
            spread = abs(X).max() if metric == "sqeuclidean" else 1.0
            return cls(metric, np.zeros(X.shape[1], X.dtype), _power_of_two(spread))
        # Any centre near the bulk of the data will do; the median of some rows ignores outliers.
        center = np.median(embed(X[:: 1 + len(X) // 512], metric), axis=0).astype(X.dtype)
        if metric == "cosine":
            return cls(metric, center, 1.0)
        spread = np.maximum(X.max(0) - center, center - X.min(0)).max()
        return cls(metric, center, _power_of_two(spread))

    def __call__(self, X: Any) -> Any:
        """Return the lifted rows of X, dense or CSR as X is."""
        D = X.shape[1]
        if sp.issparse(X) and self.center.any():
            X = X.toarray()  # new rows for a model of dense ones; one chunk at a time
        if sp.issparse(X):
            X = _embed_sparse(X, self.metric) * X.dtype.type(1.0 / self.scale)
            squares = X.multiply(X).sum(1)[:, None]
            return sp.hstack([X, squares, np.ones_like(squares)], format="csr", dtype=X.dtype)
        lifted = np.empty((len(X), D + 2), np.result_type(X, self.center))
        rows = lifted[:, :D]
        np.subtract(embed(X, self.metric), self.center, out=rows)
        rows *= 1.0 / self.scale
        np.einsum("ij,ij->i", rows, rows, out=lifted[:, D])
        lifted[:, D + 1] = 1.0
        return lifted


def chunks(n_rows: int, size: int) -> Iterator[slice]:
    """Return slices of at most `size` that cover `n_rows`."""
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def chunks_of(X: Any) -> Iterator[slice]:
    """Return slices of the rows of X that fit in the processor's cache."""
    width = X.nnz // max(1, X.shape[0]) if sp.issparse(X) else X.shape[1]
    return chunks(X.shape[0], max(1, CHUNK_NUMBERS // (width + 2)))


def _power_of_two(size: float) -> float:
    return float(2.0 ** np.frexp(float(size))[1]) if size > 0 else 1.0


def _embed_sparse(X: Any, metric: str) -> Any:
    """Return what `aggregation.embed` returns, for CSR rows."""
    if metric == "sqeuclidean":
        return X
    tiny = np.finfo(X.dtype).tiny
    X = sp.diags_array(1.0 / np.maximum(abs(X).max(axis=1).toarray(), tiny)) @ X
    lengths = np.sqrt(np.maximum(2.0 * X.multiply(X).sum(1), tiny))
    return (sp.diags_array(1.0 / lengths) @ X).tocsr()


def linear_scores(lifted: Any, sums: np.ndarray) -> np.ndarray:
    """Return the sums of Eq. 8 for lifted rows, (rows, K): `rows @ dual(sums).T` in their dtype."""
    side = np.empty(sums.shape, lifted.dtype)
    np.multiply(sums[:, :-2], -2.0, out=side[:, :-2], casting="same_kind")
    side[:, -2:] = sums[:, :-3:-1]
    return lifted @ side.T


def linear_floor(sums: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the rounding errors of these sums, (K, 1): about eps sum_j p_jk |x_j|^2."""
    info = np.finfo(dtype)
    return (np.maximum(sums[:, -2:-1], 0.0) * info.eps + info.tiny).astype(dtype)


class Rows(Protocol):
    """What a sweep needs of its data. `rows` is always a slice of the sweep's order."""

    X: Any
    unit: float  # a score of 1, in the user's units
    sample_weight: np.ndarray | None  # laid out like an arranged P

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
        for rows in chunks_of(self.X):
            self.absorb(rows, A[:, self.index(rows)])

    def scores(self, rows: slice) -> np.ndarray:
        return np.ascontiguousarray(linear_scores(self.lifted(rows), self.sums).T)

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
            for rows in chunks_of(self.X):
                w = self.sample_weight
                yield self.lifted(rows), 1.0 if w is None else w[self.index(rows)]

        return lifted_growth(blocks)


class PairwiseRows:
    """Samples given by their (N, N) distances X."""

    def __init__(self, X: np.ndarray, weights: np.ndarray | None, order: np.ndarray | None) -> None:
        self.X, self.order, self.unit = X, order, 1.0
        self.sample_weight = weights

    def arrange(self, P: np.ndarray) -> np.ndarray:
        return P

    def restore(self, P: np.ndarray) -> np.ndarray:
        return P

    def index(self, rows: slice) -> Any:
        return rows if self.order is None else self.order[rows]

    def start(self, A: np.ndarray) -> None:
        self.A = np.array(A.T, self.X.dtype, order="C")
        parts = (self.A[rows] * (self.X[rows] @ self.A) for rows in chunks_of(self.X))
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
