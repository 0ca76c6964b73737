"""What a fitted PAC keeps to score new rows, and how it is saved.

What a fitted PAC computes for some rows: functions of a model and its update.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances

from probagg.aggregation import Array, Moments, mass_factor, namespace
from probagg.environment import check_memory
from probagg.errors import InputError, reading
from probagg.estimators import labels_of
from probagg.pac.coordinates import Frame, chunks, is_tensor, like, linear_floor, linear_scores
from probagg.pac.sweeps import Update
from probagg.storage import RESTORE, read_safetensors, write_safetensors

FORMAT = "probagg.pac/1"


@dataclass(frozen=True)
class LinearModel:
    """K moments in a frame: K (D + 2) numbers that represent the whole data set."""

    frame: Frame
    moments: Moments

    @property
    def mass(self) -> np.ndarray:
        return self.moments.mass

    @property
    def floor(self) -> np.ndarray:
        return linear_floor(self.moments.sums, self.frame.center.dtype)

    @property
    def unit(self) -> float:
        """A score of 1, in the user's units."""
        return self.frame.scale**2

    @property
    def means(self) -> np.ndarray:
        """(K, D) cluster means in the user's units; for cosine, of rows of length 1."""
        mass = 1.0 / mass_factor(self.mass, 0.0)[:, None]  # at least a rounding error
        means = self.moments.first / mass * self.frame.scale + self.frame.center
        return means * 2.0**0.5 if self.frame.metric == "cosine" else means

    @property
    def user_moments(self) -> Moments:
        """The moments in the user's units, for `aggregate(X, moments, metric)`."""
        scale, sums = self.frame.scale, self.moments.sums
        center = namespace(sums).asarray(self.frame.center, dtype=sums.dtype)
        mass, shifted = self.mass, scale * self.moments.first
        second = scale**2 * self.moments.second + 2.0 * shifted @ center + mass * (center @ center)
        return Moments(mass, shifted + mass[:, None] * center, second)

    def scores(self, X: Any) -> Array:
        """Return the sums of Eq. 8 for some rows, (K, rows)."""
        return linear_scores(self.frame(X), self.moments.sums)

    def like(self, X: Any) -> LinearModel:
        """Return the model for rows of the kind of X: arrays, or tensors on its device."""
        return LinearModel(self.frame.like(X), Moments.of_sums(like(self.moments.sums, X)))

    def tensors(self) -> dict[str, np.ndarray]:
        model = self.like(np.empty(0))
        return {
            "sums": model.moments.sums,
            "center": model.frame.center,
            "scale": np.array([model.frame.scale]),
        }

    @classmethod
    def from_tensors(cls, metric: str, tensors: dict[str, np.ndarray]) -> LinearModel:
        sums, center, scale = tensors["sums"], tensors["center"], tensors["scale"]
        if sums.ndim != 2 or center.shape != (sums.shape[1] - 2,) or scale.shape != (1,):
            raise ValueError("its arrays do not belong together")
        return cls(Frame(metric, center, float(scale[0])), Moments.of_sums(sums))

    @property
    def example(self) -> np.ndarray:
        """A row that the model can score, (1, D)."""
        return self.frame.center[None]


@dataclass(frozen=True)
class PairwiseModel:
    """The weights A (N, K) of the training rows, and the rows unless distances are precomputed."""

    metric: Any
    A: np.ndarray
    X: Any = None
    unit: float = 1.0

    @property
    def floor(self) -> float:
        return float(np.finfo(self.A.dtype).tiny)

    @property
    def mass(self) -> np.ndarray:
        return self.A.sum(0)

    def scores(self, X: Any) -> np.ndarray:
        """Return the sums of Eq. 8 for some rows, (K, rows)."""
        D = X
        if self.X is not None:
            D = pairwise_distances(X, self.X, self.metric, **self._options)
        return np.ascontiguousarray((D.astype(X.dtype, copy=False) @ self.A).T)

    @cached_property
    def _options(self) -> dict[str, Any]:
        return _metric_options(self.X, self.metric)

    def like(self, X: Any) -> PairwiseModel:
        """Return this model, which is for arrays only."""
        return self

    def tensors(self) -> dict[str, np.ndarray]:
        if callable(self.metric) or sp.issparse(self.X):
            what = "a metric given as a function" if callable(self.metric) else "sparse rows"
            raise InputError(
                f"A PAC with {what} cannot be saved without pickle. Use a metric by name on dense "
                "rows, or metric='precomputed' and compute the distances yourself."
            )
        return {"A": self.A} if self.X is None else {"A": self.A, "X": np.ascontiguousarray(self.X)}

    @classmethod
    def from_tensors(cls, metric: str, tensors: dict[str, np.ndarray]) -> PairwiseModel:
        A, X = tensors["A"], tensors.get("X")
        if A.ndim != 2 or (X is not None and (X.ndim != 2 or len(X) != len(A))):
            raise ValueError("its arrays do not belong together")
        return cls(metric, A, X)

    @property
    def example(self) -> np.ndarray:
        """A row that the model can score, or the distances of one, (1, D)."""
        return np.zeros((1, len(self.A)), self.A.dtype) if self.X is None else self.X[:1]


Model = LinearModel | PairwiseModel


def save_model(path: str | PathLike[str], model: Model, description: dict[str, Any]) -> None:
    """Write the model's arrays and `description` to one file."""
    write_safetensors(path, FORMAT, model.tensors(), description)


def load_model(path: str | PathLike[str]) -> tuple[Model, dict[str, Any]]:
    """Return the model and the description that `save_model` wrote."""
    tensors, description = read_safetensors(path, FORMAT)
    kind = LinearModel if "sums" in tensors else PairwiseModel
    with reading(path, RESTORE):
        if not all(np.isfinite(array).all() for array in tensors.values()):
            raise ValueError("some of its numbers are not finite")
        return kind.from_tensors(description["params"]["metric"], tensors), description


def check_metric(X: Any, metric: Any) -> dict[str, Any]:
    """Return the options of a metric for the rows X; raise where it cannot compare them."""
    try:
        options = _metric_options(X, metric)
        pairwise_distances(X[:1], X[:1], metric, **options)
    except ValueError as error:
        raise InputError(
            f"metric={metric!r} cannot be used here: {error} Use 'sqeuclidean', 'cosine', "
            "'precomputed', or a metric of sklearn.metrics.pairwise_distances."
        ) from error
    return options


def training_distances(X: Any, metric: Any) -> np.ndarray:
    """Return all (N, N) distances, or raise an error if they would not fit in memory."""
    options = check_metric(X, metric)
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


def check_sums(D: np.ndarray) -> None:
    """Raise an error where sums of all distances are not finite."""
    with np.errstate(over="ignore"):
        largest = float(D.max()) * D.shape[0] ** 2
    if not largest <= np.finfo(D.dtype).max:
        raise InputError(
            f"The largest distance is {D.max():.3g}: sums of distances overflow. Divide X by a "
            "constant: assignments do not depend on the unit."
        )


def _metric_options(X: Any, metric: Any) -> dict[str, Any]:
    """Return what two of scikit-learn's metrics estimate from all training rows."""
    if metric == "seuclidean":
        return {"V": np.var(X, axis=0, ddof=1)}
    if metric == "mahalanobis":
        return {"VI": np.linalg.inv(np.cov(X.T)).T}
    return {}


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
