"""Probabilities that are computed where they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from probagg.app.run.duplicates import Duplicates


class Predicted:
    """P (n, K) of many rows by a fitted model; what is not being read is not in memory."""

    def __init__(self, model: Any, X: Any) -> None:
        self.model, self.X = model, X
        self.shape = X.shape[0], int(model.n_clusters)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        X = self.X[rows]
        return self.model.predict_proba(np.asarray(X) if isinstance(X, np.memmap) else X)


def fitted_probabilities(model: Any, X: Any) -> Any:
    """Return P of the rows that a model was fitted on; PAC does not keep it where X is large."""
    kept = getattr(model, "probabilities_", None)
    return Predicted(model, X) if kept is None else kept


def probabilities_of_all(P: Any, model: Any, X: Any, duplicates: Duplicates) -> Any:
    """Return P of all rows from P of the representatives among them."""
    if isinstance(P, Predicted):
        return Predicted(model, X[duplicates.representative])
    return P[duplicates.places]
