"""Known labels: the clusters of some rows, given by the user, as every estimator takes them."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from probagg.arrays import UNKNOWN, is_tensor, like, to_numpy
from probagg.errors import InputError

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
    found = _codes(known_labels, n_rows, "known_labels", "the cluster is unknown")
    if found.max() >= n_clusters:
        raise InputError(
            f"known_labels has {found.max()}, but n_clusters is {n_clusters}: cluster k is class "
            "k. Raise n_clusters, or number the classes from 0."
        )
    return found if (found != UNKNOWN).any() else None


def _codes(labels: Any, n_rows: int, name: str, meaning: str) -> np.ndarray:
    """Return whole numbers of at least -1, or codes of categories; what is missing is -1."""
    found = labels.compute() if hasattr(labels, "compute") else to_numpy(labels)
    found = getattr(found, "cat", found)  # of a pandas Series
    found = getattr(found, "codes", found)
    if np.ma.isMaskedArray(found):
        found = found.filled(UNKNOWN)
    elif hasattr(found, "isna") and found.isna().any():  # pandas' nullable numbers
        found = found.to_numpy(dtype=float, na_value=np.nan)
    found = np.asarray(found)
    if found.dtype.kind == "f":
        found = np.where(np.isnan(found), UNKNOWN, found)
        is_whole = bool((found == np.round(found)).all())
    else:
        is_whole = found.dtype.kind in "iu"
    if found.shape != (n_rows,) or not is_whole or found.min() < UNKNOWN:
        smallest = f" and smallest value {found.min()}" if is_whole else ""
        raise InputError(
            f"{name} is an array of {found.dtype} of shape {found.shape}{smallest}, but one whole "
            f"number for each of the {n_rows:,} rows is needed, -1 where {meaning}. Pass names as "
            "a categorical column: pandas.Categorical(names)."
        )
    return found.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows that are in one cluster: each group of them is one sample, at its mean."""

    sample: np.ndarray  # (N,) the sample that each row is part of
    n_samples: int

    @classmethod
    def of(cls, groups: Any, n_rows: int) -> Self | None:
        """Return groups of rows with the same number; a row of -1 is a sample by itself.

        >>> Groups.of([5, -1, 5, -1], 4).sample
        array([0, 1, 0, 2])
        """
        if groups is None:
            return None
        found = _codes(groups, n_rows, "groups", "a row is in no group")
        alone = found.max() + 1 + np.arange(n_rows)
        found = np.where(found == UNKNOWN, alone, found)
        _, first, sample = np.unique(found, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))
        return cls(order[sample], len(first))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of a number per row over the rows of each sample."""
        return np.bincount(self.sample, values, self.n_samples)

    def means(self, X: Any, weights: np.ndarray | None) -> tuple[Any, np.ndarray]:
        """Return the weighted mean row of each sample, and its weight."""
        w = np.ones(len(self.sample)) if weights is None else weights
        total = self.sums(w)
        share = np.where(total[self.sample] > 0.0, w / np.maximum(total, 1e-300)[self.sample], 0.0)
        entries = share.astype(X.dtype), (self.sample, np.arange(len(w)))
        mean = sp.csr_array(entries, shape=(self.n_samples, len(w))) @ X
        return mean, total.astype(X.dtype)

    def known(self, known: np.ndarray | None) -> np.ndarray | None:
        """Return the known cluster of each sample; two in one group are an error."""
        if known is None:
            return None
        rows = np.flatnonzero(known != UNKNOWN)
        found = np.full(self.n_samples, UNKNOWN)
        found[self.sample[rows]] = known[rows]
        if (differ := rows[found[self.sample[rows]] != known[rows]]).size:
            row = int(differ[0])
            other = int(rows[self.sample[rows] == self.sample[row]][-1])
            raise InputError(
                f"Rows {row} and {other} are in one group, but known_labels has {known[row]} and "
                f"{known[other]} for them. Correct one of both."
            )
        return found


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


def with_known(P: Any, known: Any, weight: float = 1.0) -> Any:
    """Return P (N, K), or labels (N,), with known rows set; in P they count `weight` rows.

    Where `known` is a tensor, P is not changed, and no shape depends on the labels: a step that is
    recorded as a CUDA graph may do this.
    """
    if known is None or P is None:
        return P
    if is_tensor(known):
        fixed = P.new_zeros(P.shape).scatter(1, known.clamp(min=0)[:, None], weight)
        return fixed.where(known[:, None] >= 0, P)
    rows = np.flatnonzero(known != UNKNOWN)
    if P.ndim == 1:
        P[like(rows, P)] = like(known[rows], P)
    elif sp.issparse(P):
        P = sp.diags_array((known == UNKNOWN).astype(P.dtype)) @ P
        P = sp.csr_array(P + weight * one_hot(known, P.shape[1], P.dtype))
        P.eliminate_zeros()
    else:
        P[like(rows, P)] = 0.0
        P[like(rows, P), like(known[rows], P)] = weight
    return P
