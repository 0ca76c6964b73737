"""Known labels: the clusters of some rows, given by the user, as every estimator takes them."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from probagg.arrays import like, to_numpy
from probagg.errors import InputError

UNKNOWN = -1
LEAST = 1e-3  # the probability that a known row has in any cluster when clusters are matched


def check_known_labels(known_labels: Any, n_rows: int, n_clusters: int) -> np.ndarray | None:
    """Return the known cluster of each row as int64, -1 where unknown; None where all are.

    >>> import pandas as pd
    >>> check_known_labels([-1, 2, 0], 3, n_clusters=3)
    array([-1,  2,  0])
    >>> check_known_labels(pd.Categorical(["cat", None, "dog"]), 3, n_clusters=2)
    array([ 0, -1,  1])
    """
    if known_labels is None:
        return None
    found = _codes(known_labels)
    if found.dtype.kind == "f":  # as pandas' whole numbers with missing ones are
        found = np.where(np.isnan(found), UNKNOWN, found)
        is_whole = bool((found == np.round(found)).all())
    else:
        is_whole = found.dtype.kind in "iu"
    needed = f"one whole number for each of the {n_rows:,} rows, -1 where the cluster is unknown,"
    if found.shape != (n_rows,) or not is_whole:
        raise InputError(
            f"known_labels is an array of {found.dtype} of shape {found.shape}, but {needed} is "
            "needed. Pass names of classes as a categorical column: pandas.Categorical(names)."
        )
    if found.min() < UNKNOWN or found.max() >= n_clusters:
        wrong = found.min() if found.min() < UNKNOWN else found.max()
        raise InputError(
            f"known_labels has {int(wrong)}, but {needed} is needed, below n_clusters="
            f"{n_clusters}: cluster k is class k. Raise n_clusters, or number the classes from 0."
        )
    return found.astype(np.int64) if (found != UNKNOWN).any() else None


def _codes(known_labels: Any) -> np.ndarray:
    """Return the codes of categories, and other labels as they are; what is masked is unknown."""
    known = known_labels.compute() if hasattr(known_labels, "compute") else to_numpy(known_labels)
    known = getattr(known, "cat", known)  # of a pandas Series
    known = getattr(known, "codes", known)
    if np.ma.isMaskedArray(known):
        return known.filled(UNKNOWN)
    if hasattr(known, "isna") and known.isna().any():  # pandas' nullable numbers
        known = known.to_numpy(dtype=float, na_value=np.nan)
    return np.asarray(known)


def one_hot(known: np.ndarray, n_clusters: int, dtype: Any) -> sp.csr_array:
    """Return P (N, K) with 1 at known labels; rows of unknown ones are empty."""
    rows = np.flatnonzero(known != UNKNOWN)
    entries = np.ones(len(rows), dtype), (rows, known[rows])
    return sp.csr_array(entries, shape=(len(known), n_clusters))


def match_clusters(P: Any, known: np.ndarray) -> np.ndarray:
    """Return which cluster of P (N, K) takes the place of each class, then of each new cluster.

    Known rows are as probable as possible in the clusters of their classes.

    >>> P = np.array([[0.1, 0.9, 0.0], [0.0, 0.2, 0.8], [0.3, 0.3, 0.4]])
    >>> match_clusters(P, np.array([0, 1, -1]))
    array([1, 2, 0])
    """
    rows = np.flatnonzero(known != UNKNOWN)
    some = P[rows].toarray() if sp.issparse(P) else to_numpy(P[like(rows, P)])
    gain = one_hot(known[rows], P.shape[1], np.float64).T @ np.log(some + LEAST)
    return np.asarray(linear_sum_assignment(gain, maximize=True)[1])


def reorder_clusters(P: Any, order: np.ndarray) -> Any:
    """Return P with its columns in another order, and laid out as before."""
    return P[:, order] if sp.issparse(P) else P.T[like(order, P)].T


def with_known(P: Any, known: np.ndarray | None) -> Any:
    """Return P (N, K), or labels (N,), with known rows set."""
    if known is None or P is None:
        return P
    rows = np.flatnonzero(known != UNKNOWN)
    if P.ndim == 1:
        P[like(rows, P)] = like(known[rows], P)
    elif sp.issparse(P):
        P = sp.diags_array((known == UNKNOWN).astype(P.dtype)) @ P
        P = sp.csr_array(P + one_hot(known, P.shape[1], P.dtype))
        P.eliminate_zeros()
    else:
        P[like(rows, P)] = 0.0
        P[like(rows, P), like(known[rows], P)] = 1.0
    return P
