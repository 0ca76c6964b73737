"""Dask arrays and DataFrames: a task per chunk and round, reduced in a fixed order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from probagg.aggregation import Array
from probagg.errors import InputError
from probagg.pac.rounds import Chunks, Survey, Tally, look

FAN_IN = 8  # sums that one task adds up


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask array or DataFrame, without importing Dask."""
    return hasattr(X, "__dask_graph__")


def open_dask(X: Any) -> Any:
    """Return a Dask array of floats with known chunks of whole rows, or raise an error."""
    if hasattr(X, "to_dask_array"):
        others = [str(name) for name, kind in X.dtypes.items() if kind.kind not in "fiu"]
        if others:
            raise InputError(
                f"The Dask DataFrame has columns that are not numbers: {', '.join(others)}. Leave "
                f"them out: X.drop(columns={others})."
            )
        X = X.to_dask_array(lengths=True)
    if getattr(X, "ndim", 0) != 2 or X.dtype.kind not in "fiu":
        raise InputError(
            f"X is a Dask {type(X).__name__} of {getattr(X, 'dtype', 'objects')} with "
            f"{getattr(X, 'ndim', 0)} dimensions, but numbers of shape (n_samples, n_features) "
            "are needed."
        )
    if np.isnan(X.shape).any() or np.isnan(X.chunks[0]).any():
        raise InputError(
            "The chunk sizes of the Dask array are unknown. Compute them first: "
            "X = X.compute_chunk_sizes()."
        )
    if len(X.chunks[1]) > 1:
        raise InputError(
            f"The Dask array has {len(X.chunks[1])} chunks along the columns, but each chunk must "
            "hold whole rows: X = X.rechunk({1: -1})."
        )
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float32 if X.dtype.itemsize <= 2 else np.float64)
    return X


def map_dask(X: Any, function: Any, *, width: int | None, dtype: Any) -> Any:
    """Return a lazy Dask array of the results of a function of rows."""
    if width is None:
        return X.map_blocks(function, dtype=dtype, drop_axis=1, meta=np.empty(0, dtype))
    chunks = (X.chunks[0], (width,))
    return X.map_blocks(function, dtype=dtype, chunks=chunks, meta=np.empty((0, 0), dtype))


class DaskChunks(Chunks):
    """The rounds of a Dask array: every n-th row of each chunk.

    Sums are added up in the order of the chunks, `FAN_IN` at a time, whichever worker they come
    from, so the result does not depend on the workers.
    """

    def __init__(self, X: Any, weights: Any = None) -> None:
        self.shape = X.shape
        starts = np.cumsum([0, *X.chunks[0]])
        kept = [i for i, size in enumerate(X.chunks[0]) if size]
        blocks = X.to_delayed().ravel()
        self._blocks = [blocks[i] for i in kept]
        self._spans = [(int(a), int(b)) for a, b in pairwise(starts)]
        self._spans = [self._spans[i] for i in kept]
        self._weights = [None if weights is None else weights[a:b] for a, b in self._spans]
        self._n_rows = X.shape[0] if weights is None else float(weights.sum())

    def survey(self, places: np.ndarray) -> Survey:
        import dask

        parts = [np.searchsorted(places, span) for span in self._spans]
        inside = [places[a:b] - span[0] for (a, b), span in zip(parts, self._spans, strict=True)]
        tasks = map(dask.delayed(look), self._blocks, inside)
        sample, low, high = zip(*dask.compute(*tasks), strict=True)
        weights = None
        if self._weights[0] is not None:
            weights = np.concatenate([w[p] for w, p in zip(self._weights, inside, strict=True)])
        return Survey(
            X=np.concatenate(sample),
            weights=weights,
            bounds=(np.min(low, axis=0), np.max(high, axis=0)),
            n_rows=self._n_rows,
        )

    def sums(self, tally: Tally, number: int, n_rounds: int) -> Array:
        import dask

        shared = dask.delayed(tally)
        stride = dask.delayed(_sums_of_stride)
        sums = [
            stride(block, w, shared, number, n_rounds)
            for block, w in zip(self._blocks, self._weights, strict=True)
        ]
        add = dask.delayed(sum)
        while len(sums) > 1:
            sums = [add(sums[i : i + FAN_IN]) for i in range(0, len(sums), FAN_IN)]
        return sums[0].compute()


def _sums_of_stride(X: np.ndarray, w: Any, tally: Tally, number: int, n_rounds: int) -> np.ndarray:
    rows = slice(number, None, n_rounds)
    return tally(X[rows], None if w is None else w[rows])
