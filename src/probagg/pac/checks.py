"""What PAC and `select_n_clusters` accept: parameters, rows and distances."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from probagg.aggregation import LINEAR_METRICS
from probagg.errors import InputError
from probagg.estimators import CONSTRAINTS as SHARED
from probagg.pac.frame import chunks_of
from probagg.pac.model import check_sums

CONSTRAINTS: dict[str, list[Any]] = SHARED | {
    "m": [*SHARED["m"], StrOptions({"auto"})],
    "metric": [str, callable],
    "balance": [*SHARED["balance"], StrOptions({"auto"})],
    "init": [StrOptions({"auto", "uniform", "annealed"}), "array-like"],
    "block_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "shuffle": ["boolean"],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0.0, None, closed="left")],
    "n_init": [Interval(Integral, 1, None, closed="left")],
    "aggregate": [StrOptions({"p", "p_m"})],
    "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
    "checkpoint": [str, PathLike, None],
}

ROWS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}  # check_array's


@contextmanager
def explained(X: Any) -> Iterator[None]:
    """Replace scikit-learn's error by one that says what to do, if X cannot be read as numbers."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if isinstance(X, str | PathLike):
            problem = f"X is the path {str(X)!r}. Pass rows: np.load(path, mmap_mode='r')."
        elif hasattr(X, "collect"):
            problem = f"X is a {type(X).__name__}, which is not computed yet. Pass X.collect()."
        elif others := [str(n) for n in getattr(X, "columns", ()) if not _is_numeric(X[n])]:
            problem = (
                f"X has columns that are not numbers: {', '.join(others)}. Leave them out, encode "
                "them, for instance with OneHotEncoder in a ColumnTransformer, or pass the table "
                "to probagg.cluster, which prepares columns."
            )
        else:
            raise
        raise InputError(problem) from error


def _is_numeric(column: Any) -> bool:
    values = np.asarray(column)
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return values.dtype.kind not in "mM"  # dates and durations


def check_sparse(X: Any, metric: Any) -> Any:
    """Return X, a sparse matrix as a CSR array; raise an error where the metric needs it dense."""
    if not sp.issparse(X):
        return X
    if metric == "precomputed":
        raise InputError(
            "metric='precomputed' needs every distance, and a sparse X leaves most out. Pass a "
            "dense array: X.toarray()."
        )
    return sp.csr_array(X)


def check_streamable(metric: Any, init: Any, balance: Any) -> None:
    """Raise an error unless rows can be clustered as a stream with these parameters."""
    if metric not in LINEAR_METRICS:
        raise InputError(
            f"partial_fit needs metric='sqeuclidean' or 'cosine', but metric={metric!r}, which "
            "compares every row with all others. Change the metric, or fit all rows at once."
        )
    if not isinstance(init, str):
        raise InputError(
            "partial_fit cannot use an array as init: it has one row per sample, and the samples "
            "of a stream are not known. Pass init='auto', or fit first and then call partial_fit."
        )
    if balance == "auto":
        raise InputError(
            "partial_fit cannot choose the balance: that takes several runs over the same rows. "
            "Pass a number, for instance the balance_ of a PAC fitted to some rows."
        )


def check_distances(D: np.ndarray) -> np.ndarray:
    """Return a usable (N, N) distance matrix, or raise an error that says what is wrong with it.

    Rounding errors, as in 1 - U @ U.T, are corrected in a copy.
    """
    if D.shape[0] != D.shape[1]:
        raise InputError(
            f"metric='precomputed' needs the square matrix of all distances, but X has shape "
            f"{D.shape}. Pass pairwise_distances(X) or another metric."
        )
    check_sums(D)
    problem, rounding = None, 100.0 * np.finfo(D.dtype).eps * np.abs(D).max()
    if D.min() < -rounding:
        problem = f"a negative distance ({D.min():.3g})"
    elif np.abs(np.diagonal(D)).max() > rounding:
        problem = f"a non-zero diagonal ({np.abs(np.diagonal(D)).max():.3g})"
    elif any(np.abs(D[r] - D[:, r].T).max() > rounding for r in chunks_of(D)):
        problem = "different distances from i to j and from j to i"
    if problem:
        raise InputError(
            f"The precomputed X has {problem}. PAC needs symmetric distances, zero from a row to "
            "itself: for instance (D + D.T) / 2 with its diagonal set to 0, or 1 - similarity."
        )
    if D.min() < 0.0 or np.diagonal(D).any():
        D = np.maximum(D, 0.0)
        np.fill_diagonal(D, 0.0)
    return D
