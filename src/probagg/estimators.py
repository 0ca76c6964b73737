"""What the estimators share beyond scikit-learn: parameter constraints, labels, saved settings."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from probagg.errors import InputError

Estimator = TypeVar("Estimator", bound=BaseEstimator)

CONSTRAINTS: dict[str, list[Any]] = {
    "n_clusters": [Interval(Integral, 1, None, closed="left")],
    "m": [Interval(Real, 1.0, None, closed="neither")],
    "balance": [Interval(Real, 0.0, 2.0, closed="both")],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


def check_parameters(estimator: BaseEstimator) -> None:
    """Raise an error if a parameter cannot be used; "auto", which `cluster` accepts, is explained.

    The other errors are scikit-learn's.
    """
    if isinstance(estimator.n_clusters, str):
        raise InputError(
            f"n_clusters is {estimator.n_clusters!r}, but {type(estimator).__name__} needs a "
            "number. select_n_clusters(X).n_clusters chooses one."
        )
    estimator._validate_params()


def check_n_samples(n_samples: int, n_clusters: int) -> None:
    """Raise an error if there are fewer samples than clusters."""
    if n_samples < n_clusters:
        raise InputError(
            f"n_samples={n_samples} should be >= n_clusters={n_clusters}. Pass more samples or "
            "reduce n_clusters."
        )


def draw_seed(random_state: Any) -> int:
    """Return a seed below 2^31, drawn from what scikit-learn accepts as `random_state`."""
    return int(check_random_state(random_state).randint(2**31))


def labels_of(P: Any) -> Any:
    """Return the most probable cluster of each row of P, as int64 on every platform.

    >>> labels_of(np.array([[0.1, 0.9], [0.8, 0.2]]))
    array([1, 0])
    """
    labels = P.argmax(1)  # a tensor's are int64
    return labels.astype(np.int64, copy=False) if isinstance(labels, np.ndarray) else labels


def describe_estimator(
    estimator: BaseEstimator, learned: Sequence[str], **changed: Any
) -> dict[str, Any]:
    """Return parameters and learned attributes for `rebuild_estimator`, in types that JSON has.

    `changed` replaces parameters that JSON lacks a type for. A random state is kept as an integer
    only: drawing from an instance has changed it.
    """
    params = estimator.get_params() | changed
    if not isinstance(params.get("random_state", 0), Integral):
        params["random_state"] = None
    values = {name: getattr(estimator, name) for name in learned}
    if hasattr(estimator, "feature_names_in_"):
        values["feature_names_in_"] = estimator.feature_names_in_.tolist()
    return {"params": params, "learned": values}


def rebuild_estimator(
    kind: type[Estimator], description: dict[str, Any], learned: Sequence[str]
) -> Estimator:
    """Return an estimator from what `describe_estimator` gave; the caller adds its arrays."""
    estimator = kind(**description["params"])
    found = dict(description["learned"])
    names = found.pop("feature_names_in_", None)
    for name in found.keys() & set(learned):  # whatever else a file may name
        setattr(estimator, name, found[name])
    if names is not None:
        if len(names) != found["n_features_in_"] or not all(isinstance(n, str) for n in names):
            raise ValueError("the names of its features do not fit their number")
        estimator.feature_names_in_ = np.array(names, object)
    return estimator
