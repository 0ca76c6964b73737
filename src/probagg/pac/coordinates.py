"""The coordinates PAC computes in: rows centred, scaled and lifted, NumPy, CSR or torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from probagg.aggregation import Array, dual, embed, namespace, raise_to
from probagg.arrays import chunks, is_tensor, like
from probagg.errors import InputError

# A value farther from the median has a square that is not finite.
LARGEST = 1e152
# The numbers of a chunk in which rows are prepared and scored: what fits in a processor's cache.
CHUNK_NUMBERS = 2**18
# The same for tensors: 512 MiB.
TENSOR_NUMBERS = 2**27


@dataclass(frozen=True)
class Coordinates:
    """The map from a user's rows to the lifted rows PAC computes with.

    Scores depend on differences only and assignments on ratios of scores, so rows are centred and
    divided by a power of two near their size: an offset of 1e8 or a unit of 1e150 loses no digits.
    CSR rows are not centred, as that would make them dense.
    """

    metric: str
    center: Array  # (D,)
    scale: float

    @classmethod
    def of(cls, X: Array, metric: str, bounds: tuple[Array, Array] | None = None) -> Coordinates:
        """Return those for the rows X, or for more rows with these minima and maxima."""
        if sp.issparse(X):
            spread = abs(X).max() if metric == "sqeuclidean" else 1.0
            return cls(metric, np.zeros(X.shape[1], X.dtype), _power_of_two(spread, X.dtype))
        xp = namespace(X)
        # Any centre near the bulk of the data will do; the median of some rows ignores outliers.
        some = embed(X[:: 1 + len(X) // 512], metric)
        median = np.median(some if xp is np else some.cpu().numpy(), axis=0)
        center = xp.asarray(median, dtype=some.dtype, device=some.device)
        if metric == "cosine":
            return cls(metric, center, 1.0)
        low, high = bounds or (xp.amin(X, 0), xp.amax(X, 0))
        with np.errstate(over="ignore"):  # `_power_of_two` refuses what overflows
            spread = xp.maximum(high - center, center - low).max()
        return cls(metric, center, _power_of_two(spread, center.dtype))

    @cached_property
    def offset(self) -> float:
        """How far the origin of the rows is from the centre, the largest of the columns."""
        return float(abs(self.center).max()) / self.scale

    def lift(self, X: Array) -> Array:
        """Return the lifted rows of X, dense or CSR as X is."""
        if sp.issparse(X) and self.center.any():
            X = X.toarray()  # new rows for clusters of dense ones; one chunk at a time
        if sp.issparse(X):
            X = _embed_sparse(X, self.metric) * X.dtype.type(1.0 / self.scale)
            squares = X.multiply(X).sum(1)[:, None]
            return sp.hstack([X, squares, np.ones_like(squares)], format="csr", dtype=X.dtype)
        X, D, xp = embed(X, self.metric), X.shape[1], namespace(X)
        dtype = xp.result_type(X, self.center)
        lifted = xp.empty((X.shape[0], D + 2), dtype=dtype, device=X.device)
        rows = lifted[:, :D]
        xp.subtract(X, self.center, out=rows)
        rows *= 1.0 / self.scale
        if xp is np:
            np.einsum("ij,ij->i", rows, rows, out=lifted[:, D])  # without a temporary array
        else:
            lifted[:, D] = (rows * rows).sum(1)
        if not xp.isfinite(lifted[:, D]).all():
            raise InputError(_not_finite(float(abs(X).max())))
        lifted[:, D + 1] = 1.0
        return lifted

    def like(self, X: Array) -> Coordinates:
        """Return those for rows of the kind of X: arrays, or tensors on its device."""
        return replace(self, center=like(self.center, X))


def chunks_of(X: Array) -> Iterator[slice]:
    """Return slices of the rows of X that fit in the processor's cache."""
    width = X.nnz // max(1, X.shape[0]) if sp.issparse(X) else X.shape[1]
    return chunks(X.shape[0], max(1, CHUNK_NUMBERS // (width + 2)))


def _power_of_two(size: Array | float, dtype: object) -> float:
    """Return the power of two above a size whose square and whose reciprocal are finite."""
    size = float(size)
    if not size <= LARGEST:
        raise InputError(
            f"Values of X are up to {size:.3g} away from their median, and sums of squared "
            f"distances overflow from {LARGEST:.0e} on. Divide X by a constant: assignments do not "
            "depend on the unit."
        )
    smallest = (
        2.0**-1022 if np.dtype(str(dtype).removeprefix("torch.")).itemsize == 8 else 2.0**-126
    )
    return max(float(2.0 ** np.frexp(size)[1]), smallest) if size > 0 else 1.0


def _not_finite(largest: float) -> str:
    """Return why squares of rows with this largest value are not finite, and what to do."""
    if not np.isfinite(largest):
        return "X has missing or infinite values. Fill them in or leave those rows out."
    return (
        f"A row of X is so far from the rows that were fitted ({largest:.3g}) that its squared "
        "distances overflow. Check its unit, or leave it out."
    )


def _embed_sparse(X: sp.csr_array, metric: str) -> sp.csr_array:
    """Return what `aggregation.embed` returns, for CSR rows."""
    if metric == "sqeuclidean":
        return X
    tiny = np.finfo(X.dtype).tiny
    X = sp.diags_array(1.0 / np.maximum(abs(X).max(axis=1).toarray(), tiny)) @ X
    lengths = np.sqrt(np.maximum(2.0 * X.multiply(X).sum(1), tiny))
    return (sp.diags_array(1.0 / lengths) @ X).tocsr()


def linear_scores(lifted: Array, sums: Array) -> Array:
    """Return the sums of Eq. 8 for lifted rows, (K, rows): `dual(sums) @ rows.T` in their dtype."""
    if is_tensor(lifted):
        return dual(sums).to(lifted.dtype) @ lifted.T
    return np.ascontiguousarray((lifted @ linear_side(sums, lifted.dtype).T).T)


def linear_side(sums: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Return `dual(sums)` in a dtype."""
    side = np.empty(sums.shape, dtype)
    np.multiply(sums[:, :-2], -2.0, out=side[:, :-2], casting="same_kind")
    side[:, -2:] = sums[:, :-3:-1]
    return side


def linear_floor(sums: Array, dtype: object) -> Array:
    """Return the rounding errors of these sums, (K, 1): about eps sum_j p_jk |x_j|^2."""
    xp, info = namespace(sums), namespace(sums).finfo(dtype)
    floor = sums[:, -2:-1] * float(info.eps)
    return xp.asarray(raise_to(floor, 0.0) + float(info.tiny), dtype=dtype)
