"""Sweeps over data too large to keep P, or to be in one place: rounds.

A *round* is a block of rows that may lie anywhere: a share of every file or of every Dask chunk.
All rows of a round are scored against the same sums, and the round keeps the sums of its own rows,
K (D + 2) numbers. A sweep replaces the sums of one round after the other, so the total always
counts every row once, with the probabilities it was given last. P is not stored (this is
incremental EM; Neal and Hinton, 1998). The start is PAC on a sample in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from probagg.aggregation import Array, namespace
from probagg.errors import InputError
from probagg.pac.frame import CHUNK_NUMBERS, Frame, chunks, linear_floor, linear_scores
from probagg.pac.rows import LinearRows
from probagg.pac.sweeps import Update, departure, read_out

PROBE_ROWS = 20_000  # of the sample, on which convergence is measured
FEWEST, ROWS_PER_CLUSTER = 4, 60  # rounds; rows of the sample that make few rounds safe


@dataclass(frozen=True)
class Survey:
    """One look at all rows: a sample of them, and the minima and maxima of the columns."""

    X: Array
    weights: Array | None
    bounds: tuple[Array, Array]
    n_rows: float  # the number of all rows, or the sum of their weights


class Chunks(ABC):
    """Rows that are read in parts, from a file, a Dask array or a large tensor."""

    shape: tuple[int, int]

    @abstractmethod
    def survey(self, places: np.ndarray) -> Survey:
        """Read everything once, and return the rows at these sorted places as the sample."""

    def n_rounds(self, wanted: int) -> int:
        """Return the number of rounds, of at least as many as `wanted`, that suits this data."""
        return wanted

    @abstractmethod
    def sums(self, tally: Tally, number: int, n_rounds: int) -> Array:
        """Return the tally, (K, D + 2), of the rows of one round."""


@dataclass(frozen=True)
class Tally:
    """Assign rows to clusters by fixed sums, and return the sums of those assignments."""

    frame: Frame
    sums: Array
    update: Update

    def __call__(self, X: Array, weights: Array | None = None, chunk: int | None = None) -> Array:
        total = namespace(self.sums).zeros_like(self.sums)
        for part in chunks(X.shape[0], chunk or max(1, CHUNK_NUMBERS // self.sums.shape[1])):
            lifted = self.frame(X[part])
            P = self.assign(lifted)
            total += self.update.weigh(P, None if weights is None else weights[part]) @ lifted
        return total

    def assign(self, lifted: Array) -> Array:
        """Return P, (K, rows), of lifted rows."""
        floor = linear_floor(self.sums, lifted.dtype)
        return self.update.assign(linear_scores(lifted, self.sums), self.sums[:, -1], floor)


class RoundSweeps:
    """Sweeps of rounds. Convergence is measured on a probe: P of some rows, before and after."""

    def __init__(self, data: Chunks, probe: LinearRows, update: Update, n_rounds: int) -> None:
        self.data, self.probe, self.update, self.n_rounds = data, probe, update, n_rounds
        self.parts: list[Array] = []  # the sums of each round
        self.total = self.probe.sums  # before the first sweep, those of the sample
        K = len(self.total)
        self.P = probe.arrange(_empty(probe.X, K))
        read_out(probe, self.P, update)

    @property
    def state(self) -> Array:
        """(rounds, K, D + 2): all that a run needs to continue."""
        return namespace(self.total).stack(self.parts)

    @classmethod
    def resumed(cls, data: Chunks, probe: LinearRows, update: Update, state: Array) -> RoundSweeps:
        """Return sweeps that continue from the `state` of others."""
        parts = list(state)
        probe.sums = _sum(parts)
        sweeps = cls(data, probe, update, len(parts))
        sweeps.parts = parts
        return sweeps

    def sweep(self) -> tuple[float, float]:
        if self.parts:
            for number, before in enumerate(self.parts):
                self.parts[number] = self._round(number)
                self.total = self.total + (self.parts[number] - before)
        else:  # every row sees the sums of the sample
            self.parts = [self._round(number) for number in range(self.n_rounds)]
        self.total = _sum(self.parts)  # without the rounding errors of updates
        return self._read_probe()

    def objective(self) -> float:
        return self.update.objective(self.total)

    def _round(self, number: int) -> Array:
        return self.data.sums(
            Tally(self.probe.frame, self.total, self.update), number, self.n_rounds
        )

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


def choose_rounds(block_size: int | str, N: int, n_sample: int, m: float, P: Array) -> int:
    """Return the number of rounds of a sweep, from P (n, K) of the sample.

    The rules are those of `sweeps.Blocks`. A sample of 60 rows per cluster has formed the clusters,
    so what matters is the gain, alpha * softness / rounds, and 1/4 is safe. Where the sample is
    smaller, a round is also at most a quarter of the mean cluster size.
    """
    if block_size != "auto":
        return max(1, -(-N // int(block_size)))
    softness = 1.0 - float((P * P).sum()) / len(P)
    rounds = max(FEWEST, int(np.ceil(4.0 * softness / (m - 1.0))))
    if n_sample < ROWS_PER_CLUSTER * P.shape[1]:
        rounds = max(rounds, 4 * P.shape[1])
    return min(rounds, N)


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
