"""What X may be, opened and checked once: computation follows the array that holds the rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.preprocessing import normalize
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    validate_data,
)

from probagg.aggregation import LINEAR_METRICS, Array, namespace
from probagg.arrays import check_stored, chunks, is_tensor, like, numpy_dtype, to_numpy
from probagg.environment import check_memory
from probagg.errors import InputError
from probagg.estimators import CONSTRAINTS as SHARED
from probagg.known import Groups
from probagg.pac.assignment import MANY
from probagg.pac.coordinates import CHUNK_NUMBERS, TENSOR_NUMBERS, chunks_of
from probagg.pac.dask import (
    DaskArray,
    DaskChunks,
    check_dask_weights,
    is_dask,
    map_dask,
    open_dask,
)
from probagg.pac.files import FileChunks, FileRows, is_file_source, is_mapped, open_file
from probagg.pac.on_device import DeviceChunks, DeviceRows
from probagg.pac.out_of_core import Chunks
from probagg.pac.rows import KEPT_BYTES as KEPT_LIFTED
from probagg.pac.rows import Metric, check_sums
from probagg.pac.solver import is_large
from probagg.pac.tensors import check_tensor

RowSource: TypeAlias = Array | FileRows | DaskArray  # what `open_rows` returns

CONSTRAINTS: dict[str, list[Any]] = SHARED | {
    "m": [*SHARED["m"], StrOptions({"auto"})],
    "metric": [str, callable],
    "init": [StrOptions({"auto", "uniform", "annealed"}), "array-like"],
    "block_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "shuffle": ["boolean"],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0.0, None, closed="left")],
    "n_init": [Interval(Integral, 1, None, closed="left")],
    "aggregate": [StrOptions({"p", "p_m"})],
    "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
    "checkpoint": [str, PathLike, None],
    "device": [str, None],
}
ROWS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}  # check_array's
# P is kept as a dense array up to this size, or up to that of X.
KEPT_BYTES = 2**30
# From about so many scores on, at m = 1.03, sweeps keep the entries of P.
MANY_SCORES = 2**21


def open_rows(
    estimator: BaseEstimator, X: Any, *, reset: bool, device: str | None = None
) -> RowSource:
    """Return valid rows: an array, a CSR array, a tensor, `FileRows` or a Dask array.

    As scikit-learn's `validate_data`, it sets or checks `n_features_in_` of the estimator. With a
    device, rows of arrays and files are `DeviceRows`.
    """
    rows = _open_rows(estimator, X, reset=reset)
    if device is None:
        return rows
    if estimator.metric in LINEAR_METRICS and isinstance(rows, np.ndarray | FileRows):
        return DeviceRows(rows, device)
    raise InputError(
        f"device={device!r} is for metric='sqeuclidean' or 'cosine' and for a dense array or a "
        f"file, but metric={estimator.metric!r} and X is a {type(X).__name__}. Leave device out; a "
        "tensor is computed on its own device (X.to(device))."
    )


def _open_rows(estimator: BaseEstimator, X: Any, *, reset: bool) -> RowSource:
    names, is_linear = None, estimator.metric in LINEAR_METRICS
    if is_dask(X):
        names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        rows = open_dask(X)
    elif is_tensor(X):
        rows = check_tensor(X)
    elif is_file_source(X) and (is_linear or not is_mapped(X)):
        rows = open_file(X)
        names = rows.columns
    else:
        check_stored(X)
        with explained(X):
            checked = validate_data(estimator, X, reset=reset, **ROWS)
        return check_sparse(checked, estimator.metric)
    if not is_linear:
        raise InputError(
            f"metric={estimator.metric!r} is for arrays in memory. Use 'sqeuclidean' or 'cosine', "
            "or pass X as a NumPy array."
        )
    _check_n_features(estimator, rows, reset=reset)
    _check_names(estimator, names, reset)
    return rows


def _check_names(estimator: BaseEstimator, names: list[str] | None, reset: bool) -> None:
    if names is None:
        _check_feature_names(estimator, np.empty((0, 0)), reset=reset)
    elif reset:
        estimator.feature_names_in_ = np.array(names, object)
    elif hasattr(estimator, "feature_names_in_"):
        fitted = estimator.feature_names_in_.tolist()
        for number, (was, is_now) in enumerate(zip(fitted, names, strict=True)):
            if was != is_now:
                raise InputError(
                    f"PAC was fitted with the column {was!r} where X has {is_now!r} (column "
                    f"{number}, counted from 0). Pass the same columns in the same order."
                )


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


def check_sparse(X: Array, metric: Metric) -> Array:
    """Return X, a sparse matrix as a CSR array; raise an error where the metric needs it dense."""
    if not sp.issparse(X):
        return X
    if metric == "precomputed":
        raise InputError(
            "metric='precomputed' needs every distance, and a sparse X leaves most out. Pass a "
            "dense array: X.toarray()."
        )
    return sp.csr_array(X)


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


def check_weights(rows: RowSource, sample_weight: Any) -> Array | None:
    """Return one weight of at least 0 per row, in the kind of the rows, or None."""
    if sample_weight is None:
        return None
    if is_dask(rows):
        return check_dask_weights(sample_weight, rows)
    given = sample_weight.compute() if is_dask(sample_weight) else to_numpy(sample_weight)
    w = _check_sample_weight(
        given, _Shaped(rows.shape), dtype=numpy_dtype(rows), ensure_non_negative=True
    )
    return like(w, rows)


def check_some_weights(rows: RowSource, sample_weight: Any) -> Array | None:
    """Return what `check_weights` does; raise an error if every weight is zero."""
    weights = check_weights(rows, sample_weight)
    if weights is not None and not weights.any():
        raise InputError("Every sample_weight is zero. Pass a positive weight for some.")
    return weights


class _Shaped:
    """What scikit-learn needs to know of rows to check their weights."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]


def to_solve(rows: RowSource, weights: Array | None, metric: Metric, K: int) -> Array | Chunks:
    """Return rows as the solver takes them: in memory, or in `Chunks` where they are many."""
    if isinstance(rows, FileRows):
        if not is_large(rows.shape[0], K) or (isinstance(rows, DeviceRows) and rows.fits):
            return rows.load()
        kind = DeviceChunks if isinstance(rows, DeviceRows) else FileChunks
        return kind(rows, weights)
    if is_dask(rows):
        return DaskChunks(rows, weights, K)
    if isinstance(rows, np.ndarray):
        _check_room(rows, K)
    return check_distances(rows) if metric == "precomputed" else rows


def _check_room(X: np.ndarray, K: int) -> None:
    """Raise an error before the first sweep where PAC of an array needs more memory than is free.

    A dense P is there twice at the end: as arranged for the sweeps, and in the order of X. For many
    scores sweeps keep its entries (see `sweeps`), and `is_large` rows have none: it is there once,
    where `probabilities_` are kept.
    """
    N, D = X.shape
    lifted = N * (D + 2) * X.itemsize
    kept = lifted if lifted <= KEPT_LIFTED else 0
    has_entries = is_large(N, K) or (K >= MANY and N * K >= MANY_SCORES)
    copies = int(keeps_probabilities(X, K)) if has_entries else 2
    check_memory(
        float(copies) * N * K * X.itemsize + kept,
        f"PAC of {N:,} rows and {K:,} clusters",
        "Use fewer clusters, or a .npy or .parquet file or a memory map, which is read in chunks.",
    )


def join_groups(
    rows: RowSource, weights: Array | None, metric: Metric, groups: Groups
) -> tuple[Array, Array]:
    """Return a row per sample of the groups, and its weight."""
    is_array = isinstance(rows, np.ndarray | sp.csr_array)
    if metric not in LINEAR_METRICS or not is_array:
        raise InputError(
            "groups are for metric='sqeuclidean' or 'cosine' and for a NumPy or sparse array in "
            f"memory, but metric={metric!r} and X is a {type(rows).__name__}. Pass such an array, "
            "or the groups as known_labels."
        )
    return groups.means(normalize(rows) if metric == "cosine" else rows, weights)


def in_memory(rows: RowSource) -> np.ndarray | sp.csr_array:
    """Return rows as a NumPy or CSR array."""
    if is_dask(rows):
        raise InputError(
            "partial_fit takes rows in memory. Pass X.compute(), or cluster the Dask array by fit."
        )
    return rows.load() if isinstance(rows, FileRows) else to_numpy(rows)


def check_streamable(metric: Metric, init: Any) -> None:
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


def keeps_probabilities(rows: RowSource, K: int) -> bool:
    """Return whether P is kept as a dense array: lazily, or if small enough."""
    if isinstance(rows, FileRows) and not (isinstance(rows, DeviceRows) and rows.in_memory):
        return False
    if is_dask(rows):
        return True
    size = rows.data.nbytes if sp.issparse(rows) else rows.nbytes
    return 4 * rows.shape[0] * K <= max(size, KEPT_BYTES)


def float_type(rows: RowSource) -> Any:
    """Return the type of the probabilities of these rows."""
    if is_tensor(rows):
        return rows.dtype if rows.dtype.itemsize >= 4 else namespace(rows).float32
    return np.result_type(rows.dtype, np.float32)


def map_rows(
    rows: RowSource,
    function: Callable[[Array], Array],
    numbers_per_row: int,
    *,
    width: int | None = None,
    dtype: Any = None,
) -> Array | DaskArray:
    """Return the results of a function of rows, joined: a number or `width` numbers per row.

    The function is called with as many rows at a time as it has memory for, by the numbers per row
    that it computes with. By default results have the type of the rows' probabilities.
    """
    in_chunks = _InChunks(function, numbers_per_row)
    dtype = float_type(rows) if dtype is None else dtype
    if is_dask(rows):
        return map_dask(rows, in_chunks, width=width, dtype=dtype)
    if isinstance(rows, FileRows):
        return rows.map(in_chunks, width=width, dtype=dtype)
    return in_chunks(rows)


class _InChunks:
    """A function of rows, called with some at a time, which Dask can send to its workers."""

    def __init__(self, function: Callable[[Array], Array], numbers_per_row: int) -> None:
        self.function, self.numbers_per_row = function, numbers_per_row

    def __call__(self, rows: Array) -> Array:
        numbers = TENSOR_NUMBERS if is_tensor(rows) else CHUNK_NUMBERS
        slices = list(chunks(rows.shape[0], max(1, numbers // self.numbers_per_row)))
        if len(slices) <= 1:
            return self.function(rows)
        found: Array = None  # a part at a time: joining all would have them in memory twice
        for some in slices:
            part = self.function(rows[some])
            if found is None:
                shape = (rows.shape[0], *part.shape[1:])
                found = namespace(part).empty(shape, dtype=part.dtype, device=part.device)
            found[some] = part
        return found
