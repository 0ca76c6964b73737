"""Rows whose cluster is known: their P stays one-hot in every sweep.

What such rows add to the sums of their clusters is constant. So it is added once (`fix_rows`), and
sweeps visit these rows with a weight of zero: no sweep has to know which they are.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from probagg.aggregation import Array
from probagg.arrays import UNKNOWN, chunks, is_tensor, like, numpy_dtype
from probagg.known import one_hot, with_known
from probagg.pac.coordinates import Coordinates
from probagg.pac.dask import DaskArray, is_dask
from probagg.pac.out_of_core import Chunks
from probagg.pac.rows import LinearRows, Rows

# A known row counts as up to so many rows, but those of a class as no more than this share of the
# mean cluster, unless they are more rows than that.
PULL, SHARE = 10.0, 0.2
FIXED_NUMBERS = 2**27  # of known rows out of core that are in memory at once


def pulls(known: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return (K,) as how many rows a known row of each class counts.

    >>> pulls(np.array([0] * 10 + [1] * 1 + [-1] * 100), 2)
    array([ 1., 10.])
    """
    mean_size = np.count_nonzero(known == UNKNOWN) / n_clusters
    sizes = np.bincount(known[known != UNKNOWN], minlength=n_clusters)
    return np.clip(SHARE * mean_size / np.maximum(sizes, 1), 1.0, PULL)


def without_known(weights: Array | None, known: np.ndarray | None, X: Array) -> Array | None:
    """Return the weights of rows X with 0 for known ones, so that sweeps leave them alone."""
    if known is None:
        return weights
    if is_dask(X):
        free = like_dask(known, X) == UNKNOWN
        return free.astype(X.dtype) if weights is None else weights * free
    ones = like(np.ones(len(known), numpy_dtype(X)), X) if weights is None else weights
    return ones * like(known == UNKNOWN, X)


def known_weights(known: np.ndarray, n_clusters: int, dtype: Any) -> sp.csr_array:
    """Return the weights A (K, N) of known rows in their clusters, before any sample weights."""
    A = sp.diags_array(pulls(known, n_clusters)) @ one_hot(known, n_clusters, np.float64).T
    return A.astype(dtype)


def fix_rows(rows: Rows, known: np.ndarray, n_clusters: int) -> None:
    """Keep known rows in their clusters: their sums are constant, and their weight is 0.

    `known` is in the order of the sweep.
    """
    A: Array = known_weights(known, n_clusters, numpy_dtype(rows.X))
    if is_tensor(rows.X) or not isinstance(rows, LinearRows):
        A = like(A.toarray(), rows.X)
    rows.start(A if rows.sample_weight is None else A * rows.sample_weight)
    rows.fix()
    rows.sample_weight = without_known(rows.sample_weight, known, rows.X)


def fixed_sums(
    data: Chunks, weights: Array | None, known: np.ndarray, n_clusters: int, at: Coordinates
) -> Array:
    """Return the sums of known rows out of core, (K, D + 2), some of them read at a time."""
    A, numbers, total = (
        known_weights(known, n_clusters, np.float64),
        np.flatnonzero(known != UNKNOWN),
        0.0,
    )
    for some in chunks(len(numbers), max(1, FIXED_NUMBERS // data.shape[1])):
        rows = numbers[some]
        lifted = at.lift(data.sample(rows).X)
        w = weights_of(weights, rows, lifted)
        part: Array = A[:, rows]
        if is_tensor(lifted):
            part = like(part.toarray(), lifted).to(lifted.dtype)
        total = total + (part if w is None else part * w) @ lifted
    return total


def weights_of(weights: Array | None, rows: np.ndarray, X: Array) -> Array | None:
    """Return the sample weights of some rows, in memory, in the kind of X."""
    if weights is None:
        return None
    some = weights[rows].compute() if is_dask(weights) else weights[like(rows, weights)]
    return like(some, X)


def like_dask(known: np.ndarray, X: DaskArray) -> DaskArray:
    """Return known labels as a Dask array with the chunks of X."""
    import dask.array as da

    return da.from_array(known, chunks=(X.chunks[0],))


def keep_known(P: Array, known: np.ndarray | None) -> Array:
    """Return P or labels, which may be lazy, with known rows set."""
    if known is None or not is_dask(P):
        return with_known(P, known)
    labels = like_dask(known, P)
    return P.map_blocks(_with_known, labels if P.ndim == 1 else labels[:, None], dtype=P.dtype)


def _with_known(P: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return a chunk of P or of labels with known rows set."""
    return with_known(P.copy(), known if known.ndim == 1 else known[:, 0])
