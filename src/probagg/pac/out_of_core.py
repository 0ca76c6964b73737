"""Sweeps over rows that are too many to keep P, or to be in one place.

A sweep goes through the rows in a few *rounds*. The rows of a round are spread over all of the data
and always the same, and their sums, K (D + 2) numbers, are kept instead of their probabilities. In
a round rows are updated block by block, as in `sweeps.BlockSweeps`: all rows of a block are scored
against the same sums, what they become is added, and their share of the round's old sums is taken
away. At the end of each round the sums count every row exactly once, with the probabilities it was
given last. (With a round per block this is incremental EM; Neal and Hinton, 1998.) The start is PAC
on a sample in memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from probagg.aggregation import Array
from probagg.arrays import to_numpy
from probagg.errors import InputError, reading
from probagg.pac.clusters import LinearClusters
from probagg.pac.sweeps import Blocks, Sweeps
from probagg.storage import read_safetensors, write_safetensors

TRACKED_ROWS = 20_000
ROUNDS = 16
FORMAT = "probagg.pac-checkpoint/1"

Block: TypeAlias = Sequence[tuple[int, slice]]  # numbers of chunks, and which of their rows


@dataclass(frozen=True)
class RowSample:
    """Some rows, and what is known of all: the minima and maxima of the columns, the weight."""

    X: Array
    weights: Array | None
    bounds: tuple[Array, Array]
    total_weight: float  # the number of all rows, or the sum of their weights


class Chunks:
    """Rows that are read in chunks, from a file, a Dask array or a large tensor."""

    shape: tuple[int, int]
    n_rounds: int = ROUNDS
    layout: tuple[int, ...] = ()  # sizes of the chunks, where the rows of a round depend on them

    def sample(self, indices: np.ndarray) -> RowSample:
        """Read everything once, and return the rows with these sorted numbers."""
        raise NotImplementedError

    def chunk(self, number: int) -> tuple[Array, Array | None]:
        """Return the rows and the weights of one chunk."""
        raise NotImplementedError

    def blocks(self, round: int, size: int) -> Iterator[tuple[float, Block]]:
        """Yield the blocks of a round, of about `size` rows, each with its share of the round.

        Here all rows are one chunk, a round is a stride of them, and a block a stride of the round.
        """
        n = max(1, -(-self.shape[0] // (self.n_rounds * size)))
        for number in range(n):
            yield 1.0 / n, [(0, slice(round + number * self.n_rounds, None, self.n_rounds * n))]

    def read_blocks(
        self, round: int, size: int
    ) -> Iterator[tuple[float, Iterator[tuple[slice, Array, Array | None]]]]:
        """Yield the share of each block of a round, and its rows: which of an array, with weights.

        The rows of a block are read before the next block is asked for.
        """
        for share, block in self.blocks(round, size):
            yield share, ((rows, *self.chunk(number)) for number, rows in block)

    def sweep(self, clusters: LinearClusters, kept: list[Array], size: int) -> list[Array]:
        """Update every row once, in blocks of about `size`, and return the sums of each round.

        `clusters` have the sums of all rows, and `kept` are those of each round before the sweep.
        Without them, every row sees the same sums.
        """
        found = []
        for round in range(self.n_rounds):
            new = clusters.sums * 0.0
            for share, block in self.read_blocks(round, size):
                sums: Array = 0.0
                for rows, X, weights in block:
                    sums = sums + clusters.sums_of(rows, X, weights)
                new = new + sums
                if kept:
                    clusters = clusters.replaced(share, kept[round], sums)
            found.append(new)
        return found


class ArrayChunks(Chunks):
    """Rows in memory, whose P is not kept: a single chunk."""

    def __init__(self, X: Array, weights: Array | None) -> None:
        self.X, self.weights, self.shape = X, weights, tuple(X.shape)

    def chunk(self, number: int) -> tuple[Array, Array | None]:
        return self.X, self.weights


class ChunkSweeps(Sweeps):
    """Sweeps of rows out of core. Convergence is measured on tracked rows, some of the sample.

    With the sums `kept` of another run and its `block`, sweeps continue where it ended. `fixed` are
    sums of rows that keep their P, which have no weight in `data`.
    """

    def __init__(
        self,
        data: Chunks,
        tracked: Array,
        clusters: LinearClusters,
        block_size: int | str,
        kept: Sequence[Array] = (),
        block: int | None = None,
        fixed: Array | float = 0.0,
    ) -> None:
        self.data, self.tracked, self.kept, self.fixed = data, tracked, list(kept), fixed
        self.clusters = replace(clusters, sums=self._sums()) if self.kept else clusters
        self.update, self.unit = clusters.update, clusters.unit
        K = clusters.n_clusters
        self.blocks = Blocks.out_of_core(block_size, data.shape[0], K, self.update.m)
        self.block = self.blocks.smallest if block is None else block
        self.P = self.clusters.nearest(tracked)

    def sweep(self) -> tuple[float, float]:
        size = self.block if self.kept else self.data.shape[0]
        self.kept = self.data.sweep(self.clusters, self.kept, size)
        self.clusters = replace(self.clusters, sums=self._sums())  # without rounding errors
        before, self.P = self.P, self.clusters.nearest(self.tracked)
        (n, K), P = self.P.shape, self.P
        return self.measure(float(abs(P - before).sum()), float((P * P).sum()), n, K)

    def objective(self) -> float:
        return self.update.objective(self.clusters.sums)

    def _sums(self) -> Array:
        """Return the sums of all rows, added up in a fixed order."""
        return sum(self.kept[1:], self.kept[0]) + self.fixed


def sample_chunk(X: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return some rows of a chunk, and the minima and maxima of all its columns."""
    return X[indices], *finite_bounds(X)


def finite_bounds(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the minima and maxima of the columns; missing or infinite values are an error."""
    bounds = (X.min(0), X.max(0)) if isinstance(X, np.ndarray) else (X.data.min(), X.data.max())
    if not np.isfinite(bounds).all():  # NaN spreads
        columns = np.flatnonzero(~np.isfinite(bounds).all(0))
        raise InputError(
            f"X has missing or infinite values, the first in column {columns[0]} (counted from 0). "
            "Fill them in or leave those rows out."
        )
    return bounds


class FitCheckpoint:
    """The state of a fit out of core after a sweep, in one file, so that it can be resumed.

    The file holds the sums of every round, the objectives so far, the seed, and which fit it is of.
    Without a path nothing is saved.
    """

    def __init__(self, path: str | PathLike[str] | None, seed: int) -> None:
        self.path, self.seed = None if path is None else Path(path), seed
        self.kept: np.ndarray | None = None
        self.history: list[float] = []
        self.block: int | None = None
        self.identity: dict[str, Any] = {}
        if self.path is not None and self.path.exists():
            tensors, found = read_safetensors(self.path, FORMAT)
            with reading(self.path, "Delete it to start over."):
                self.kept, self.history = tensors["state"], [float(J) for J in found["history"]]
                self.block, self.seed = int(found["block"]), int(found["seed"])
                self.identity = dict(found["identity"])

    def match(self, identity: dict[str, Any]) -> None:
        """Raise an error if the file is of a fit with other settings or other data."""
        for name, value in identity.items():
            if self.kept is not None and self.identity.get(name) != value:
                raise InputError(
                    f"{self.path} was written by another fit: its {name} is "
                    f"{self.identity.get(name)}, not {value}. Delete it, or pass another path as "
                    "checkpoint."
                )
        self.identity = identity

    def write(self, kept: Sequence[Array], block: int, history: list[float]) -> None:
        """Save the state after a sweep, in place of the one before."""
        if self.path is not None:
            description = {"identity": self.identity, "history": history, "seed": self.seed}
            description["block"] = block
            state = np.stack([to_numpy(sums) for sums in kept])
            write_safetensors(self.path, FORMAT, {"state": state}, description)

    def delete(self) -> None:
        """Remove the file of a fit that has ended."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
