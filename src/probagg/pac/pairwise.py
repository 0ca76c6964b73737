"""Samples given by all N^2 distances, for metrics without a linear form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from probagg.aggregation import largest_eigenvalue
from probagg.pac.frame import chunks_of
from probagg.pac.rows import each_in_turn


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
