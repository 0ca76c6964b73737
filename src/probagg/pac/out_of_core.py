"""Sweeps over data too large to keep P, or to be in one place.

The data is divided into a few *parts*, each spread over all of it. A part keeps the sums of its own
rows, K (D + 2) numbers, instead of their probabilities. A sweep goes through the parts block by
block, as `sweeps.BlockSweeps` does: all rows of a block are scored against the same sums, what they
become is added, and their share of the part's old sums is taken away. At the end of each part the
sums count every row exactly once, with the probabilities it was given last. (With a part per block
this is incremental EM; Neal and Hinton, 1998.) The start is PAC on a sample in memory.

The state of a fit in parts, saved after each sweep so that an interrupted fit can resume.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.aggregation import Array, namespace
from probagg.errors import InputError, reading
from probagg.pac.coordinates import CHUNK_NUMBERS, Frame, chunks, is_tensor
from probagg.pac.rows import LinearRows
from probagg.pac.sweeps import Blocks, Update, assign_lifted, departure, read_out
from probagg.storage import read_safetensors, write_safetensors

PROBE_ROWS = 20_000  # of the sample, on which convergence is measured
PARTS = 16  # of the data, whose sums are kept


@dataclass(frozen=True)
class Survey:
    """One look at all rows: a sample of them, and the minima and maxima of the columns."""

    X: Array
    weights: Array | None
    bounds: tuple[Array, Array]
    n_rows: float  # the number of all rows, or the sum of their weights


class Chunks:
    """Rows that are read in parts, from a file, a Dask array or a large tensor."""

    shape: tuple[int, int]
    n_parts: int = PARTS
    layout: tuple[int, ...] = ()  # sizes of the chunks, where the rows of a part depend on them

    def survey(self, places: np.ndarray) -> Survey:
        """Read everything once, and return the rows at these sorted places as the sample."""
        raise NotImplementedError

    def blocks(self, part: int, size: int) -> Iterator[tuple[float, Any]]:
        """Yield the blocks of a part, of about `size` rows, each with its share of the part.

        Here a part is a stride of all rows, and a block a stride of the part: (first, step).
        """
        n = max(1, -(-self.shape[0] // (self.n_parts * size)))
        for number in range(n):
            yield 1.0 / n, (part + number * self.n_parts, self.n_parts * n)

    def sums(self, tally: Tally, block: Any) -> Array:
        """Return the tally, (K, D + 2), of the rows of one block."""
        raise NotImplementedError

    def sweep(self, tally: Tally, parts: list[Array], size: int) -> list[Array]:
        """Update every row once, in blocks of about `size`, and return the sums of each part.

        `tally` has the sums of all rows, and `parts` those of each part before the sweep. Without
        them, every row sees the same sums.
        """
        found = []
        for part in range(self.n_parts):
            new = tally.sums * 0.0
            for share, block in self.blocks(part, size):
                sums = self.sums(tally, block)
                new = new + sums
                if parts:
                    tally = tally.after(share, parts[part], sums)
            found.append(new)
        return found


class ArrayChunks(Chunks):
    """Rows in memory, whose P is not kept."""

    _chunk = 0  # rows that are scored at once, if not as many as `Tally` chooses

    def __init__(self, X: Array, weights: Array | None) -> None:
        self.X, self.weights, self.shape = X, weights, tuple(X.shape)

    def sums(self, tally: Tally, block: Any) -> Array:
        rows = slice(block[0], None, block[1])
        w = None if self.weights is None else self.weights[rows]
        return tally(self.X[rows], w, self._chunk)


@dataclass(frozen=True)
class Tally:
    """Assign rows to clusters by fixed sums, and return the sums of those assignments."""

    frame: Frame
    sums: Array
    update: Update

    def after(self, share: float, old: Array, new: Array) -> Tally:
        """Return the tally once a block is counted as `new` and not as its share of `old`."""
        return replace(self, sums=self.sums + (new - share * old))

    def __call__(self, X: Array, weights: Array | None = None, chunk: int = 0) -> Array:
        total = namespace(self.sums).zeros_like(self.sums)
        for part in chunks(X.shape[0], chunk or max(1, CHUNK_NUMBERS // self.sums.shape[1])):
            lifted = self.frame(X[part])
            P = assign_lifted(lifted, self.sums, self.update)
            total += self.update.weigh(P, None if weights is None else weights[part]) @ lifted
        return total


class PartSweeps:
    """Sweeps of data in parts. Convergence is measured on a probe, P of some rows before and after.

    `probe.sums` are those to start with.
    """

    def __init__(self, data: Chunks, probe: LinearRows, update: Update, blocks: Blocks) -> None:
        self.data, self.probe, self.update, self.blocks = data, probe, update, blocks
        self.parts: list[Array] = []  # the sums of each
        self.block = blocks.smallest
        self.total = probe.sums
        self.P = probe.arrange(_empty(probe.X, len(self.total)))
        read_out(probe, self.P, update)

    @property
    def state(self) -> Array:
        """(parts, K, D + 2): with `block`, all that a run needs to continue."""
        return namespace(self.total).stack(self.parts)

    def resume(self, state: Array, block: int) -> None:
        """Continue from the `state` of another run."""
        self.parts, self.block = list(state), block
        self.total = _sum(self.parts)
        self._read_probe()

    def sweep(self) -> tuple[float, float]:
        tally = Tally(self.probe.frame, self.total, self.update)
        size = self.block if self.parts else self.data.shape[0]
        self.parts = self.data.sweep(tally, self.parts, size)
        self.total = _sum(self.parts)  # without the rounding errors of updates
        change, departure = self._read_probe()
        softness = (1.0 - 1.0 / len(self.total)) * (1.0 - departure)
        self.block = self.blocks.choose(change, departure, softness)
        return change, departure

    def objective(self) -> float:
        return self.update.objective(self.total)

    def _read_probe(self) -> tuple[float, float]:
        before, self.P = self.P, self.probe.arrange(_empty(self.probe.X, len(self.total)))
        self.probe.sums = self.total
        read_out(self.probe, self.P, self.update)
        n, K = self.P.shape
        change, square = abs(self.P - before).sum(), (self.P * self.P).sum()
        return float(change) / n, departure(float(square) / n, K)


def _sum(parts: list[Array]) -> Array:
    """Return the sum in a fixed order."""
    return sum(parts[1:], parts[0])


def _empty(X: Array, K: int) -> Array:
    return namespace(X).empty((X.shape[0], K), dtype=X.dtype, device=X.device)


def look(X: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return some rows of a part of the data, and the minima and maxima of all its columns."""
    return X[places], *check_finite(X)


def check_finite(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the minima and maxima of the columns; missing or infinite values are an error."""
    bounds = X.min(0), X.max(0)
    if not np.isfinite(bounds).all():  # NaN spreads
        columns = np.flatnonzero(~np.isfinite(bounds).all(0))
        raise InputError(
            f"X has missing or infinite values, the first in column {columns[0]} (counted from 0). "
            "Fill them in or leave those rows out."
        )
    return bounds


FORMAT = "probagg.pac-checkpoint/1"


class Checkpoint:
    """One file: the sums of every part, the objectives so far, the seed, and which fit it is of.

    Without a path nothing is saved.
    """

    def __init__(self, path: str | PathLike[str] | None, seed: int) -> None:
        self.path, self.seed = None if path is None else Path(path), seed
        self.state: np.ndarray | None = None
        self.history: list[float] = []
        self.block = 0
        self.identity: dict[str, Any] = {}
        if self.path is not None and self.path.exists():
            tensors, found = read_safetensors(self.path, FORMAT)
            with reading(self.path, "Delete it to start over."):
                self.state, self.history = tensors["state"], [float(J) for J in found["history"]]
                self.block, self.seed = int(found["block"]), int(found["seed"])
                self.identity = dict(found["identity"])

    def match(self, identity: dict[str, Any]) -> None:
        """Raise an error if the file is of a fit with other settings or other data."""
        for name, value in identity.items():
            if self.state is not None and self.identity.get(name) != value:
                raise InputError(
                    f"{self.path} was written by another fit: its {name} is "
                    f"{self.identity.get(name)}, not {value}. Delete it, or pass another path as "
                    "checkpoint."
                )
        self.identity = identity

    def write(self, state: Array, block: int, history: list[float]) -> None:
        """Save the state after a sweep, in place of the one before."""
        if self.path is not None:
            arrays = {"state": state.cpu().numpy() if is_tensor(state) else state}
            description = {"identity": self.identity, "history": history, "seed": self.seed}
            description["block"] = block
            write_safetensors(self.path, FORMAT, arrays, description)

    def delete(self) -> None:
        """Remove the file of a fit that has ended."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
