"""Dask arrays and DataFrames: a graph per sweep, reduced in a fixed order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
from numpy.typing import DTypeLike

from probagg.aggregation import Array
from probagg.errors import InputError
from probagg.pac.clusters import LinearClusters
from probagg.pac.out_of_core import ROUNDS, ArrayChunks, Block, Chunks, RowSample, sample_chunk

FAN_IN = 8  # sums that one task adds up
SMALL = 2**24  # numbers of an array that is swept by one worker: tasks would take longer
JOINED = 2**21  # numbers of chunks that are joined to one
# A round takes every n-th chunk. n is prime, as those of one worker may be every 2nd or 8th.
STRIDES = (13, 7, 5, 1)


DaskArray: TypeAlias = Any  # whose package may not be installed


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask array or DataFrame, without importing Dask."""
    return hasattr(X, "__dask_graph__")


def open_dask(X: DaskArray) -> DaskArray:
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
    return X.map_blocks(_as_declared, dtype=X.dtype, meta=X._meta, token="pac-rows")


def _as_declared(chunk: np.ndarray, block_info: Any = None) -> np.ndarray:
    """Return a chunk; one of another shape than the array states is an error."""
    stated = tuple(block_info[None]["chunk-shape"])
    if chunk.shape != stated:
        raise InputError(
            f"A chunk of the Dask array has the shape {chunk.shape}, but {stated} is stated. "
            "Correct the function that makes it, or its `chunks`."
        )
    return chunk


def map_dask(
    X: DaskArray,
    function: Callable[[np.ndarray], np.ndarray],
    *,
    width: int | None,
    dtype: DTypeLike,
) -> DaskArray:
    """Return a lazy Dask array of the results of a function of rows."""
    if width is None:
        meta = np.empty(0, dtype)
        return X.map_blocks(function, dtype=dtype, drop_axis=1, meta=meta, token="pac")
    chunks, meta = (X.chunks[0], (width,)), np.empty((0, 0), dtype)
    return X.map_blocks(function, dtype=dtype, chunks=chunks, meta=meta, token="pac")


def check_dask_weights(weights: Any, X: DaskArray) -> DaskArray:
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
    """A Dask array. A round takes every n-th chunk, or a stride of the rows of these.

    A block is a stride of the rows of its round, and its share of the round's sums is close to what
    its rows had in them, however the rows are sorted. Sums are added up in the order of the chunks,
    whichever worker they come from, so the result does not depend on the workers.
    """

    def __init__(self, X: DaskArray, weights: DaskArray | None, K: int) -> None:
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
        self.n_rounds = n * (ROUNDS // n)
        self.layout = self._sizes if n > 1 else ()

    def sample(self, indices: np.ndarray) -> RowSample:
        import dask

        X, *w = self._arrays
        starts = np.cumsum([0, *self._sizes[:-1]])
        inside = np.split(indices, np.searchsorted(indices, starts[1:]))
        inside = [some - start for some, start in zip(inside, starts, strict=True)]
        tasks = map(dask.delayed(sample_chunk), X.to_delayed().ravel(), inside)
        total_weight, weights, *found = dask.compute(
            w[0].sum(dtype=float) if w else self.shape[0], w[0][indices] if w else None, *tasks
        )
        sample, low, high = zip(*found, strict=True)
        return RowSample(
            X=np.concatenate(sample),
            weights=weights,
            bounds=(np.min(low, axis=0), np.max(high, axis=0)),
            total_weight=float(total_weight),
        )

    def blocks(self, round: int, size: int) -> Iterator[tuple[float, Block]]:
        n = len(self._chunks)
        chunks, strides = self._chunks[round % n], self.n_rounds // n
        *starts, n_rows = np.cumsum([0, *(self._sizes[i] for i in chunks)]).tolist()
        n_blocks = max(1, -(-n_rows // (strides * size)))
        for number in range(n_blocks):
            first, step = round // n + number * strides, strides * n_blocks
            slices = [slice((first - start) % step, None, step) for start in starts]
            yield 1.0 / n_blocks, list(zip(chunks, slices, strict=True))

    def sweep(self, clusters: LinearClusters, kept: list[Array], size: int) -> list[Array]:
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

        state, old = add(DataNode, clusters), [add(DataNode, sums) for sums in kept]
        found: list[Any] = []
        for round in range(self.n_rounds if len(self._sizes) > 1 else 0):
            new: list[Any] = []
            for share, block in self.blocks(round, size):
                sums = [
                    add(Task, LinearClusters.sums_of, state, rows, *chunk(i)) for i, rows in block
                ]
                while len(sums) > FAN_IN:
                    several = [sums[i : i + FAN_IN] for i in range(0, len(sums), FAN_IN)]
                    sums = [add(Task, sum, List(*some)) for some in several]
                new = [add(Task, sum, List(*new, *sums))]
                if kept:
                    state = add(Task, _replace, state, share, old[round], List(*sums))
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


def _sweep(
    clusters: LinearClusters,
    kept: list[Array],
    size: int,
    X: np.ndarray,
    w: np.ndarray | None = None,
) -> list[Array]:
    return ArrayChunks(X, w).sweep(clusters, kept, size)


def _replace(
    clusters: LinearClusters, share: float, old: Array, sums: list[Array]
) -> LinearClusters:
    return clusters.replaced(share, old, sum(sums))
