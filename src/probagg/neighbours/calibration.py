"""Memberships softened until they are as confident as neighbours agree, without labels."""

from collections.abc import Callable

import numpy as np

from probagg.aggregation import Array
from probagg.arrays import to_numpy
from probagg.errors import InputError
from probagg.neighbours.graph import nearest_rows
from probagg.neighbours.smoothing import find_power, to_power

NEIGHBOURS = 10
# The agreement of neighbours is the mean over at most so many rows.
SAMPLE = 2_000
# Memberships that were rounded to zero can still be softened.
SMALLEST = 1e-30


def calibrate(
    P: Array, X: Array, *, metric: str | Callable[..., float] = "sqeuclidean"
) -> np.ndarray:
    """Return P raised to the power that makes its mean confidence the agreement of neighbours.

    The confidence of a row is its largest membership. At PAC's default m it is close to 1 for most
    rows, also where the clusters are cut through dense regions. The agreement of neighbours is how
    often the 10 nearest rows of a row are in its cluster. Labels do not change, and neither does
    the order of the confidences within a pair of clusters.

    What this cannot see are clusters that are not the groups you look for, so the result still
    tends to be too confident. On 23 sets with known classes the expected calibration error falls on
    all, from 0.24 to 0.16 in the mean (docs/trust.md).

    Parameters
    ----------
    P : array of shape (n_samples, n_clusters)
        `probabilities_` or `predict_proba(X)`.
    X : array of shape (n_samples, n_features)
        The rows of P; some hundreds at least.
    metric : str or callable, default="sqeuclidean"
        That of the clustering.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from probagg import PAC, calibrate
    >>> X = load_digits().data
    >>> P = PAC(10, random_state=0).fit(X).probabilities_
    >>> print(f"{P.max(1).mean():.2f} {calibrate(P, X).max(1).mean():.2f}")
    0.96 0.90
    """
    memberships = np.maximum(np.asarray(to_numpy(P), np.float64), SMALLEST)
    if memberships.ndim != 2 or len(memberships) != X.shape[0]:
        raise InputError(
            f"P has the shape {memberships.shape} and X {X.shape[0]} rows, but a row of P for each "
            "row of X is needed. Pass predict_proba(X)."
        )
    labels = memberships.argmax(1)
    rows = np.random.default_rng(0).permutation(len(labels))[:SAMPLE]
    near = to_numpy(nearest_rows(X[rows], min(NEIGHBOURS + 1, len(labels)), metric, among=X))
    others = near != rows[:, None]
    same = (labels[near] == labels[rows][:, None]) & others
    agreement = same.sum() / max(1, others.sum())
    return to_power(memberships, find_power(memberships, agreement))
