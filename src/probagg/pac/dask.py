"""Dask arrays and DataFrames: a graph per sweep, reduced in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from probagg.aggregation import Array
from probagg.errors import InputError
from probagg.pac.out_of_core import PARTS, ArrayChunks, Chunks, Survey, Tally, look

FAN_IN = 8  # sums that one task adds up
SMALL = 2**24  # numbers of an array that is swept by one worker: tasks would take longer
JOINED = 2**21  # numbers of chunks that are joined to one
STRIDES = (13, 7, 5, 1)  # of chunks: prime, as the chunks of one worker may be every 2nd or 8th


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
    if not isinstance(X._meta, np.ndarray):
        raise InputError(
            f"The chunks of the Dask array are of type {type(X._meta).__name__}, but NumPy arrays "
            "are needed. Convert sparse ones: X = X.map_blocks(lambda chunk: chunk.toarray())."
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
    """A Dask array. A part is every n-th chunk, or a stride of the rows of these.

    A block is a stride of the rows of its part, and its share of the part's sums is close to what
    its rows had in them, however the rows are sorted. Sums are added up in the order of the chunks,
    whichever worker they come from, so the result does not depend on the workers.
    """

    def __init__(self, X: Any, weights: Any, K: int) -> None:
        import dask

        self.shape, is_small = X.shape, X.size <= SMALL
        self._sizes = _join(X.chunks[0], X.shape[0] if is_small else JOINED // X.shape[1])
        arrays = [X] if weights is None else [X, weights]
        arrays = [array.rechunk({0: self._sizes}, method="tasks") for array in arrays]
        self._arrays = dask.persist(*arrays) if is_small else dask.optimize(*arrays)
        # Of sorted rows, few chunks have few of the clusters, whose gain (see `Blocks`) is higher.
        n_chunks, least = len(self._sizes), max(6, K / 4)
        n = next(n for n in STRIDES if n * least <= n_chunks or n == 1)
        self._chunks = [range(first, n_chunks, n) for first in range(n)]
        self.n_parts = n * (PARTS // n)
        self.layout = self._sizes if n > 1 else ()

    def survey(self, places: np.ndarray) -> Survey:
        import dask

        X, *w = self._arrays
        starts = np.cumsum([0, *self._sizes[:-1]])
        inside = np.split(places, np.searchsorted(places, starts[1:]))
        inside = [part - start for part, start in zip(inside, starts, strict=True)]
        tasks = map(dask.delayed(look), X.to_delayed().ravel(), inside)
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

    def blocks(self, part: int, size: int) -> Iterator[tuple[float, Any]]:
        n = len(self._chunks)
        chunks, strides = self._chunks[part % n], self.n_parts // n
        *starts, n_rows = np.cumsum([0, *(self._sizes[i] for i in chunks)]).tolist()
        n_blocks = max(1, -(-n_rows // (strides * size)))
        for number in range(n_blocks):
            first, step = part // n + number * strides, strides * n_blocks
            slices = [slice((first - start) % step, None, step) for start in starts]
            yield 1.0 / n_blocks, zip(chunks, slices, strict=True)

    def sweep(self, tally: Tally, parts: list[Array], size: int) -> list[Array]:
        # The graph is written down directly, as `dask.delayed` takes longer than the tasks. The
        # sums are part of it: scattered data would be lost with its worker.
        import dask
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph
        from dask.task_spec import DataNode, List, Task, TaskRef

        name = f"pac-{uuid4().hex}"
        tasks: dict[Any, Any] = {}

        def add(kind: Any, *arguments: Any) -> Any:
            key = (name, len(tasks))
            tasks[key] = kind(key, *arguments)
            return TaskRef(key)

        def chunk(i: int) -> list[Any]:
            return [TaskRef((array.name, i, *[0] * (array.ndim - 1))) for array in self._arrays]

        state, old = add(DataNode, tally), [add(DataNode, part) for part in parts]
        found: list[Any] = []
        for part in range(self.n_parts if len(self._sizes) > 1 else 0):
            new: list[Any] = []
            for share, block in self.blocks(part, size):
                sums = [add(Task, _sums, state, rows, *chunk(i)) for i, rows in block]
                while len(sums) > FAN_IN:
                    several = [sums[i : i + FAN_IN] for i in range(0, len(sums), FAN_IN)]
                    sums = [add(Task, sum, List(*some)) for some in several]
                new = [add(Task, sum, List(*new, *sums))]
                if parts:
                    state = add(Task, _after, state, share, old[part], List(*sums))
            found += new
        if found:
            last = add(Task, list, List(*found))
        else:
            last = add(Task, _sweep, state, List(*old), size, *chunk(0))
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=self._arrays)
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return Delayed(last.key, graph, layer=name).compute()


def _join(sizes: Sequence[int], largest: int) -> tuple[int, ...]:
    """Return the sizes of chunks after joining neighbours up to a largest size."""
    joined: list[int] = []
    for size in filter(None, sizes):
        if joined and joined[-1] + size <= largest:
            joined[-1] += size
        else:
            joined.append(size)
    return tuple(joined)


def _sums(tally: Tally, rows: slice, X: np.ndarray, w: Any = None) -> Array:
    return tally(X[rows], None if w is None else w[rows])


def _sweep(tally: Tally, parts: list[Array], size: int, X: np.ndarray, w: Any = None) -> Any:
    return ArrayChunks(X, w).sweep(tally, parts, size)


def _after(tally: Tally, share: float, old: Array, sums: list[Array]) -> Tally:
    return tally.after(share, old, sum(sums))
