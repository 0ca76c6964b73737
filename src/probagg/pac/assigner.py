"""What a fitted PAC computes for some rows: functions of a model and its update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from probagg.aggregation import Array, namespace
from probagg.estimators import labels_of
from probagg.pac.frame import is_tensor
from probagg.pac.model import LinearModel, Model
from probagg.pac.sweeps import Update


@dataclass(frozen=True)
class Assigner:
    """Clusters that assign rows; lazy results carry it, not the estimator."""

    model: Model
    update: Update

    @property
    def n_clusters(self) -> int:
        return len(self.model.mass)

    @property
    def cost(self) -> int:
        """How many numbers in memory a row needs, about."""
        if isinstance(self.model, LinearModel):
            return self.model.moments.sums.shape[1]
        return 16 * len(self.model.A)

    def probabilities(self, X: Any) -> Array:
        """Return P, (rows, K)."""
        model = self.model.like(X)
        return self.update.assign(model.scores(X), model.mass, model.floor).T

    def labels(self, X: Any) -> Array:
        """Return the most probable cluster of each row."""
        return labels_of(self.probabilities(X))

    def scores(self, X: Any) -> Array:
        """Return the scores of Eq. 8, (rows, K), in the units of X."""
        model = self.model.like(X)
        return self.update.scale(model.scores(X).clip(0.0), model.mass).T * model.unit

    def objectives(self, X: Any) -> Array:
        """Return sum_k a_ik s_ik of each row, in float64."""
        J = (self.update.weigh(self.probabilities(X)) * self.scores(X)).sum(1)
        return J.double() if is_tensor(J) else J.astype(np.float64)

    def top(self, X: Any, k: int) -> Array:
        """Return the k most probable clusters and their probabilities, (rows, 2 k) in float64."""
        P = self.probabilities(X)
        if is_tensor(P):
            values, clusters = P.topk(k, 1)
            return namespace(P).concatenate([clusters.double(), values.double()], 1)
        clusters = np.sort(np.argpartition(-P, k - 1, axis=1)[:, :k], axis=1)
        values = np.take_along_axis(P, clusters, 1)
        order = np.argsort(-values, axis=1, kind="stable")
        return np.hstack([np.take_along_axis(part, order, 1) for part in (clusters, values)])
