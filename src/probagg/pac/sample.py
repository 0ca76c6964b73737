"""A random sample of a stream of rows, for :mod:`probagg.pac.stream`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


class Sample:
    """A weighted random sample of a stream: priority sampling (Duffield, Lund and Thorup, 2007).

    A row of weight w has priority w / u, with u uniform in (0, 1); the `size` rows of highest
    priority are kept. Each stands for the weight max(w, tau), tau the highest priority among the
    rows left out, which makes every sum over the sample unbiased. Decay of all earlier weights does
    not change their order, so it is applied as growth of later weights, in logarithms.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.n_rows = 0
        self._X: Any = None
        self._log_weight = self._log_priority = np.empty(0)
        self._log_tau = -np.inf

    def offer(self, X: Any, log_weight: np.ndarray, generator: np.random.Generator) -> None:
        """Take in a random part of the rows X."""
        log_priority = log_weight - np.log1p(-generator.random(len(log_weight)))
        priority = np.concatenate([self._log_priority, log_priority])
        weight = np.concatenate([self._log_weight, log_weight])
        old = self.n_rows
        kept = np.arange(len(priority))
        if len(priority) > self.size:
            order = np.argpartition(priority, len(priority) - self.size)
            dropped, kept = order[: -self.size], np.sort(order[-self.size :])
            self._log_tau = max(self._log_tau, priority[dropped].max())
            new = kept[kept >= old]
            kept = np.arange(self.size)  # rows that stay keep their places
            kept[old:] = new[: self.size - old]
            kept[dropped[dropped < old]] = new[self.size - old :]
        self._log_priority, self._log_weight = priority[kept], weight[kept]
        self.n_rows = len(kept)
        self._place(X, kept, old)

    def _place(self, X: Any, kept: np.ndarray, old: int) -> None:
        """Set row i to row kept[i] of the old rows followed by X."""
        if sp.issparse(X):
            self._X = sp.vstack([self._X, X], "csr")[kept] if old else X[kept]
            return
        if self._X is None or not np.can_cast(X.dtype, self._X.dtype):
            before = self._X[:old] if old else X[:0]
            self._X = np.empty((self.size, X.shape[1]), X.dtype)
            self._X[:old] = before
        places = np.flatnonzero(kept >= old)
        self._X[places] = X[kept[places] - old]

    @property
    def X(self) -> Any:
        return self._X[: self.n_rows]

    def like(self, X: Any) -> Any:
        """Return X sparse or dense as the rows of the sample are."""
        if self._X is None or sp.issparse(X) == sp.issparse(self._X):
            return X
        return X.toarray() if sp.issparse(X) else sp.csr_array(X)

    def weights(self, log_growth: float) -> np.ndarray:
        """Return the weight that each row stands for, after decay by exp(-log_growth)."""
        return np.exp(np.maximum(self._log_weight, self._log_tau) - log_growth)
