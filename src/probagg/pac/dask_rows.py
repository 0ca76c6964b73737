"""Dask arrays and DataFrames: a task per chunk and block, reduced in a fixed order."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np

from probagg.aggregation import Array
from probagg.errors import InputError
from probagg.pac.parts import Chunks, Survey, Tally, look

FAN_IN = 8  # sums that one task adds up


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask array or DataFrame, without importing Dask."""
    return hasattr(X, "__dask_graph__")


def open_dask(X: Any) -> Any:
    """Return a Dask array of floats with known chunks of whole rows, or raise an error."""
    if hasattr(X, "to_dask_array") and X.ndim == 2:
        others = [str(name) for name, kind in X.dtypes.items() if kind.kind not in "fiub"]
        if others:
            raise InputError(
                f"The Dask DataFrame has columns that are not numbers: {', '.join(others)}. Leave "
                f"them out: X.drop(columns={others})."
            )
        X = X.to_dask_array(lengths=True)
    if getattr(X, "ndim", 0) != 2 or X.dtype.kind not in "fiub":
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
        meta = np.empty(0, dtype)
        return X.map_blocks(function, dtype=dtype, drop_axis=1, meta=meta, token="pac")
    chunks, meta = (X.chunks[0], (width,)), np.empty((0, 0), dtype)
    return X.map_blocks(function, dtype=dtype, chunks=chunks, meta=meta, token="pac")


def check_dask_weights(weights: Any, X: Any) -> Any:
    """Return one weight of at least 0 per row of X, as a Dask array with chunks like those of X.

    Weights in memory go to the workers once, instead of with every task.
    """
    import dask
    import dask.array as da

    if hasattr(weights, "to_dask_array"):
        weights = weights.to_dask_array(lengths=True)
    w = weights if is_dask(weights) else da.from_array(np.asarray(weights))
    if w.shape != X.shape[:1] or w.dtype.kind not in "fiub":
        raise InputError(
            f"sample_weight is an array of {w.dtype} of shape {w.shape}, but one number for each "
            f"of the {X.shape[0]} rows is needed."
        )
    w = w.astype(X.dtype).rechunk((X.chunks[0],))
    w = w if is_dask(weights) else w.persist()
    smallest, total = dask.compute(w.min(), w.sum())
    if not (smallest >= 0 and 0 < total < np.inf):
        raise InputError(
            f"sample_weight has the smallest value {smallest} and the sum {total}, but weights of "
            "at least 0 with a positive sum are needed."
        )
    return w


class DaskChunks(Chunks):
    """A Dask array, in strides of its rows, wherever the chunks begin.

    Sums are added up in the order of the chunks, `FAN_IN` at a time, whichever worker they come
    from, so the result does not depend on the workers.
    """

    def __init__(self, X: Any, weights: Any = None) -> None:
        import dask

        self.shape = X.shape
        self._arrays = dask.optimize(X, *([] if weights is None else [weights]))
        sizes, ends = X.chunks[0], np.cumsum(X.chunks[0])
        self._filled = [i for i, size in enumerate(sizes) if size]
        self._starts = [int(ends[i]) - sizes[i] for i in self._filled]

    def survey(self, places: np.ndarray) -> Survey:
        import dask

        X, *w = self._arrays
        inside = np.split(places, np.searchsorted(places, self._starts[1:]))
        inside = [part - start for part, start in zip(inside, self._starts, strict=True)]
        tasks = map(dask.delayed(look), X.to_delayed().ravel()[self._filled], inside)
        n_rows, weights, *found = dask.compute(
            w[0].sum(dtype=float) if w else self.shape[0], w[0][places] if w else None, *tasks
        )
        sample, low, high = zip(*found, strict=True)
        return Survey(
            X=np.concatenate(sample),
            weights=weights,
            bounds=(np.min(low, axis=0), np.max(high, axis=0)),
            n_rows=float(n_rows),
        )

    def sums(self, tally: Tally, block: Any) -> Array:
        # The graph is written down directly, as `dask.delayed` takes longer than the tasks. The
        # tally is part of it: scattered data would be lost with its worker.
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph
        from dask.task_spec import DataNode, List, Task, TaskRef

        X, *w = self._arrays
        name = f"pac-{uuid4().hex}"
        shared, keys = f"tally-{name}", [(name, 0, i) for i in self._filled]
        tasks: dict[Any, Any] = {shared: DataNode(shared, tally)}
        for key, i, start in zip(keys, self._filled, self._starts, strict=True):
            rows, weights = TaskRef((X.name, i, 0)), TaskRef((w[0].name, i)) if w else None
            stride = (block[0] - start) % block[1], block[1]
            tasks[key] = Task(key, _sums_of_stride, rows, weights, TaskRef(shared), *stride)
        while len(keys) > 1:
            groups = [keys[i : i + FAN_IN] for i in range(0, len(keys), FAN_IN)]
            keys = [(name, keys[0][1] + 1, i) for i in range(len(groups))]
            for key, group in zip(keys, groups, strict=True):
                tasks[key] = Task(key, sum, List(*map(TaskRef, group)))
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=self._arrays)
        return Delayed(keys[0], graph, layer=name).compute()


def _sums_of_stride(X: np.ndarray, w: Any, tally: Tally, first: int, step: int) -> np.ndarray:
    rows = slice(first, None, step)
    return tally(X[rows], None if w is None else w[rows])
