"""Probabilities that are computed where they are read."""

from __future__ import annotations

from typing import Any

import numpy as np


class Predicted:
    """P (n, K) of many rows by a fitted model; what is not being read is not in memory."""

    def __init__(self, model: Any, X: Any) -> None:
        self.model, self.X = model, X
        self.shape = X.shape[0], int(model.n_clusters)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        X = self.X[rows]
        return self.model.predict_proba(np.asarray(X) if isinstance(X, np.memmap) else X)
