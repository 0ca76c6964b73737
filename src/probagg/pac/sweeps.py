"""Sweeps: Algorithm 1, one block of rows at a time.

Algorithm 1 updates one row after the other, each seeing all changes before it. A *block* of rows is
updated at once. If it is small enough (see `Blocks`), sweeps end in the same solutions; updating
all rows at once would put them into one cluster. Small blocks are slow by themselves, so several
form a *panel*: its scores come from one large matrix product, and the effect of its earlier blocks
on later ones from the distances within it. That is exact for any block size. (A panel needs a word
of its own: it is neither stored as one, as a chunk is, nor updated as one.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from probagg.aggregation import TAIL, Array, namespace
from probagg.arrays import chunks, is_tensor, like, numpy_dtype, to_numpy
from probagg.environment import blas_threads, one_blas_thread
from probagg.errors import InputError
from probagg.pac.assignment import (
    DENSE,
    MANY,
    SPARSE,
    Counted,
    Entries,
    Update,
    assign_entries,
    counted,
    entries_of,
    first_rows,
    of_counted,
    without_tails,
)
from probagg.pac.rows import LinearRows, Rows
from probagg.progress import log_progress

LARGEST_BLOCK = 4096  # rows; larger blocks do not fit in the processor's cache
# The scores of a settled block from which on P may be kept as entries: fewer take less time than
# the calls.
LEAST_SCORES = 2**14
# A row moves where its probabilities change by so much in a sweep. After a sweep over all rows, so
# many sweeps visit only those that move.
MOVING = 1e-3
# A block may change the mass of a cluster by this share of the mean.
MOST_FLOW = 0.25
PARTIAL_SWEEPS = 3
PANEL = 256  # rows; blocks of less than half of it form panels
# Once a sweep changes P by less than this share of its departure from uniform, the next one sees
# the means of clusters so much further on their way.
FEW_MOVE = 0.1
MOMENTUM = 0.3


@dataclass(frozen=True)
class Blocks:
    """How many rows to update at once: a fixed number, or the largest that is safe.

    While assignments form, a block must not fill a cluster by itself: a quarter of the mean cluster
    size is safe, and above 0.7 of it runs collapse. Nor may it overshoot: the rows of a block react
    to a cluster's mass without seeing each other, with gain alpha * softness * block / N, where
    softness, the mean of 1 - sum_k p_ik^2, is near 1 at first. A gain of 1 is safe while
    assignments form. Once few rows move, blocks grow at a gain of 1/4, up to the mean cluster size;
    those of rows out of core up to alpha * block / N = 1/4 if that is more, as long as no more rows
    of a block move than of a safe one. (A cluster that many rows belong to a little has softness 1,
    whatever the mean is: with larger blocks it fills and empties for ever.) With sample weights, N
    is (sum w)^2 / sum w^2.
    """

    smallest: int
    largest: int
    n_rows: int
    m: float

    @classmethod
    def of(cls, block_size: int | str, rows: Rows, K: int, m: float) -> Blocks:
        """Return the blocks for rows in memory."""
        N_eff = N = rows.X.shape[0]
        if rows.sample_weight is not None and rows.sample_weight.any():
            w = rows.sample_weight / rows.sample_weight.max()  # whose squares are finite
            N_eff = int(float(w.sum()) ** 2 / float((w * w).sum()))
        blocks = cls.out_of_core(block_size, N if block_size != "auto" else N_eff, K, m)
        if block_size != "auto":
            return blocks
        smallest = min(blocks.smallest, LARGEST_BLOCK)
        return replace(blocks, smallest=smallest, largest=min(4 * smallest, LARGEST_BLOCK))

    @classmethod
    def out_of_core(cls, block_size: int | str, N: int, K: int, m: float) -> Blocks:
        """Return the blocks for N rows whose P is not kept."""
        if block_size != "auto":
            return cls(min(int(block_size), N), min(int(block_size), N), N, m)
        smallest = max(1, min(N // (4 * K), int(N * (m - 1.0))))
        return cls(smallest, max(4 * smallest, int(0.25 * N * (m - 1.0))), N, m)

    def choose(self, change: float, departure: float, softness: float) -> int:
        """Return the block size of the next sweep, from change and departure of the last one."""
        if change > 0.3 * departure:
            return self.smallest
        gain_of_a_row = softness / ((self.m - 1.0) * self.n_rows) + 1e-12
        as_many_move = 4 * self.smallest * 0.3 * departure / (change + 1e-12)
        return int(np.clip(min(0.25 / gain_of_a_row, as_many_move), self.smallest, self.largest))

    @property
    def settled(self) -> int:
        """The block size for rows most of which stay: a gain of 1/4 at softness 1."""
        return max(1, min(int(0.25 * self.n_rows * (self.m - 1.0)), LARGEST_BLOCK))

    def panel(self, block: int) -> int:
        """Return the number of rows scored at once; it is the same for all small blocks."""
        return block if 2 * block > PANEL else self.largest * -(-PANEL // self.largest)


def near_uniform(X: Array, K: int, generator: np.random.Generator) -> Array:
    """Return the paper's start for rows X: every p_ik is 1/K plus about 2 % of noise."""
    shape, dtype = (X.shape[0], K), numpy_dtype(X)
    if is_tensor(X) and X.device.type == "cuda":  # drawn there: copying P takes longer
        torch = namespace(X)
        on_device = torch.Generator(X.device).manual_seed(int(generator.integers(2**31)))
        P = torch.rand(shape, generator=on_device, device=X.device)
    else:
        P = like(generator.random(shape, dtype), X)
    P *= 0.02
    P += 1.0
    P /= P.sum(1)[:, None]
    return P


def given_start(init: Any, X: Array, K: int) -> Array:
    """Return the start that a user passed as `init` for rows X, with rows scaled to sum to 1."""
    init = init.toarray() if sp.issparse(init) else to_numpy(init)
    P = check_array(init, dtype=numpy_dtype(X), copy=True, input_name="init")
    if P.shape != (X.shape[0], K) or P.min() < 0 or not P.sum(1).min() > 0:
        raise InputError(
            f"init has shape {P.shape} and smallest value {P.min():.3g}, but probabilities of "
            f"shape (n_samples, n_clusters) = {(X.shape[0], K)} are needed, with a positive sum in "
            "each row. Pass such an array, or init='uniform'."
        )
    return like(P / P.sum(1, keepdims=True), X)


class Sweeps(ABC):
    """What `converge` repeats."""

    update: Update
    unit: float  # an objective of 1, in the user's units
    blocks: Blocks
    block: int  # the number of rows that the next sweep updates at once
    # The rows that the next sweep visits. Where that is all, for None, it may be the last.
    visited: np.ndarray | None = None

    @abstractmethod
    def sweep(self) -> tuple[float, float]:
        """Update rows once, and return the change and the departure.

        The change is the mean over rows of sum_k |p_ik - old p_ik|, the departure that of P from
        uniform: 0 there, 1 for hard assignments.
        """

    @abstractmethod
    def objective(self) -> float:
        """Return the current objective."""

    def measure(self, change: float, square: float, N: int, K: int) -> tuple[float, float]:
        """Return change and departure from sums over N rows, and choose the next block by them."""
        share = 1.0 - 1.0 / K
        departure = (square / N - 1.0 / K) / share if K > 1 else 1.0
        self.block = self.blocks.choose(change / N, departure, share * (1.0 - departure))
        return change / N, departure


def may_be_sparse(rows: Rows, K: int, blocks: Blocks) -> bool:
    """Return whether P may be kept as entries, which pays for many clusters and large blocks."""
    is_array = isinstance(rows, LinearRows) and not is_tensor(rows.X)
    return is_array and K >= MANY and K * blocks.settled >= LEAST_SCORES


class BlockSweeps(Sweeps):
    """Sweeps of a P in memory, in the order of the sweep, in blocks that grow as it settles.

    P is a CSR array where few of many clusters have a share of a row (see `assignment`). The last
    sweeps change P by a nearly constant share of the change before, so they have momentum: rows see
    clusters whose means have moved on by 0.3 of what the last sweep moved them. (Masses have not:
    rows overreact to them as it is.) Neither Algorithm 1, a block of one row, nor the descent by
    p^m has momentum.
    """

    def __init__(
        self, rows: Rows, P: Array, update: Update, block_size: int | str = "auto"
    ) -> None:
        self.rows, self.P, self.update, self.unit = rows, P, update, rows.unit
        self.blocks = Blocks.of(block_size, rows, P.shape[1], update.m)
        self.block = self.blocks.smallest
        self._may_be_sparse = block_size == "auto" and may_be_sparse(rows, P.shape[1], self.blocks)
        self._n_partial = 0  # sweeps in a row that did not visit all rows
        self._has_momentum = block_size == "auto" and update.aggregate == "p"
        self._means: Array = None  # of the clusters before the last sweep, where few rows moved
        rows.start(update.weigh(P.T, rows.sample_weight))

    def sweep(self) -> tuple[float, float]:
        (N, K), is_sparse = self.P.shape, sp.issparse(self.P)
        n_threads = blas_threads() if is_sparse else 1
        rows, ahead, means = self.rows, 0.0, None
        if self._has_momentum and isinstance(rows, LinearRows):
            mass = rows.mass[:, None] + 1e-300
            means = rows.sums / mass
            ahead = 0.0 if self._means is None else MOMENTUM * mass * (means - self._means)
            rows.sums += ahead
        with one_blas_thread():
            if is_sparse:
                change = self._sweep_nearest(n_threads)
                square, n_entries = float(np.vdot(self.P.data, self.P.data)), self.P.nnz
            else:
                change, square, n_entries = self._sweep_all()
        if isinstance(rows, LinearRows):
            rows.sums -= ahead
        largest = (DENSE if is_sparse else SPARSE) * N * K
        if self._may_be_sparse and (n_entries <= largest) != is_sparse:
            self.P = self.P.toarray(order="F") if is_sparse else without_tails(self.P)
            self.visited = None
            rows.start(self.update.weigh(self.P.T, rows.sample_weight))
        change, departure = self.measure(change, square, N, K)
        self._means = means if change < FEW_MOVE * departure else None
        return change, departure

    def _sweep_all(self) -> list[float]:
        """Update P in place; return the sums of changes, of squares, and of entries that matter.

        The scores of a panel lack the changes of its own earlier blocks. These are added to those
        of each block: dA, the change of what a score sums, times the distances.
        """
        rows, P, update, block = self.rows, self.P, self.update, self.block
        found = rows.sweep(P, update, block)
        if found is not None:
            return [*found.tolist(), 0.0]
        xp, K, weights = namespace(P), P.shape[1], rows.sample_weight
        totals, floor = xp.zeros(3, dtype=xp.float64, device=P.device), rows.floor
        for panel in rows.panels(self.blocks.panel(block)):
            old = P[panel].T
            new = rows.scores(panel)  # overwritten by probabilities, block by block
            mass = rows.mass
            D = rows.distances(panel) if block < new.shape[1] else None
            w = None if weights is None else weights[panel]
            dA = xp.empty_like(new)
            for some in chunks(new.shape[1], block):
                if D is not None and some.start:
                    new[:, some] += dA[:, : some.start] @ D[: some.start, some]
                update.assign(new[:, some], mass, floor)
                v = None if w is None else w[some]
                before, after = update.weigh(old[:, some], v), update.weigh(new[:, some], v)
                xp.subtract(after, before, out=dA[:, some])
                if update.balance != 1.0:
                    mass = mass + dA[:, some].sum(1)
            is_weighed = update.aggregate == "p_m" or w is not None
            totals[0] += abs(new - old if is_weighed else dA).sum()
            totals[1] += np.vdot(new, new) if xp is np else (new * new).sum()
            if self._may_be_sparse:
                totals[2] += np.count_nonzero(new >= TAIL / K)
            P[panel] = new.T
            rows.absorb(panel, dA)
        return totals.tolist()

    def _sweep_nearest(self, n_threads: int) -> float:
        """Replace the entries of P, block by block, and return the sum of changes.

        Few rows move, so blocks are large (see `Blocks.settled`). But a cluster that is nearly
        empty attracts every row around it, and the rows of a block do not see each other: a block
        ends before it changes the mass of a cluster by a quarter of the mean. Rows that stay are
        visited in every fourth sweep only.
        """
        rows, P, update, visited = self.rows, self.P, self.update, self.visited
        (N, K), weights = P.shape, rows.sample_weight
        assert isinstance(rows, LinearRows)
        limit = MOST_FLOW * float(rows.mass.sum()) / K
        numbers, before = (np.arange(N), P) if visited is None else (visited, P[visited])
        size, n_visited = self.blocks.settled, len(numbers)
        zeros, change = np.zeros(size * K, P.dtype), np.zeros(n_visited)
        found: list[Counted] = []
        start = 0
        while start < n_visited:
            stop = min(start + size, n_visited)
            block = slice(start, stop) if visited is None else visited[start:stop]
            new = assign_entries(rows.lifted(block), rows.sums, update, n_threads)
            old = entries_of(before, slice(start, stop))
            w = None if weights is None else weights[block]
            dA, dP = differences(new, old, K, update, w, zeros)
            if (n := rows_within(limit, dA, (stop - start, K))) < stop - start:
                new, dA, dP = (first_rows(n, entries) for entries in (new, dA, dP))
                stop = start + n
                block = slice(start, stop) if visited is None else visited[start:stop]
            rows.absorb(block, sp.coo_array((dA[2], (dA[1], dA[0])), shape=(K, stop - start)))
            change[start:stop] = np.bincount(dP[0], abs(dP[2]), stop - start)
            found.append(counted(stop - start, new))
            start = stop
        # Memory may not hold the old P beside the new one and what it is made of.
        if visited is None:
            del P, before
            self.P = None
        self.P = of_counted(found, K)
        if visited is not None:
            place = np.arange(N)
            place[visited] = N + np.arange(len(visited))
            self.P = sp.vstack([P, self.P], "csr")[place]
        moving = numbers[change > MOVING]
        self._n_partial = 0 if visited is None else self._n_partial + 1
        is_over = self._n_partial >= PARTIAL_SWEEPS or 2 * len(moving) > N
        self.visited = None if is_over or change.sum() < MOVING * N else moving
        return float(change.sum())

    def objective(self) -> float:
        return self.update.total(self.rows.objectives, self.rows.mass)


def differences(
    new: Entries, old: Entries, K: int, update: Update, w: Array | None, zeros: np.ndarray
) -> tuple[Entries, Entries]:
    """Return how weights and probabilities change, as entries: all of `new`, then those of `old`.

    `zeros` has a number for each of the block; it is used, and zero again at the end.
    """
    (rows, clusters, P), (old_rows, old_clusters, old_P) = new, old
    places, old_places = rows * K + clusters, old_rows * K + old_clusters
    every_row, every_cluster = np.append(rows, old_rows), np.append(clusters, old_clusters)

    def change(after: np.ndarray, before: np.ndarray) -> Entries:
        zeros[old_places] = before
        changed = after - zeros[places]
        zeros[places] = 0.0
        left = -zeros[old_places]  # 0 where `new` has the entry too
        zeros[old_places] = 0.0
        return every_row, every_cluster, np.append(changed, left)

    dP = change(P, old_P)
    if update.aggregate == "p" and w is None:
        return dP, dP
    v, old_v = (None, None) if w is None else (w[rows], w[old_rows])
    return change(update.weigh(P, v), update.weigh(old_P, old_v)), dP


def rows_within(limit: float, dA: Entries, shape: tuple[int, int]) -> int:
    """Return how many rows can be updated before the mass of a cluster changes by the limit."""
    rows, clusters, values = dA
    beyond = np.flatnonzero(abs(np.bincount(clusters, values, shape[1])) > limit)
    if not len(beyond):
        return shape[0]
    flow = sp.coo_array((values, (rows, clusters)), shape=shape).tocsc()[:, beyond].toarray()
    return max(1, int((abs(np.cumsum(flow, 0)) > limit).any(1).argmax()))


@dataclass
class SweepResult:
    """How sweeps went."""

    history: list[float]  # the objective after each sweep
    converged: bool
    departure: float


def converge(
    sweeps: Sweeps,
    *,
    max_iter: int,
    tol: float,
    critical_m: float = np.inf,
    name: str = "run",
    verbose: int = 0,
    history: Sequence[float] = (),
    after_sweep: Callable[[list[float]], None] = lambda history: None,
) -> SweepResult:
    """Sweep until P converges, or `max_iter` sweeps with those of the `history` are done.

    Near the uniform start P hardly changes although no cluster has formed, so the change has to be
    small relative to the departure from uniform. At or above the critical m, sweeps end once P is
    uniform up to rounding.
    """
    result = SweepResult(list(history), False, 0.0)
    while not result.converged and len(result.history) < max_iter:
        may_converge = sweeps.visited is None
        change, result.departure = sweeps.sweep()
        result.history.append(sweeps.objective())
        n, J = len(result.history), result.history[-1] * sweeps.unit
        log_progress(verbose >= 2, "%s, sweep %d: J %.6g, change %.2g", name, n, J, change)
        after_sweep(result.history)
        result.converged = may_converge and change < tol * result.departure
        if sweeps.update.m >= critical_m and result.departure < 1e-6:
            break
    n, J = len(result.history), result.history[-1] * sweeps.unit
    log_progress(verbose >= 1, "%s: %d sweeps, J %.6g", name, n, J)
    return result


def read_out(rows: Rows, P: Array, update: Update) -> Array:
    """Return P, dense or CSR as it is, with every row set from the current sums of `rows`."""
    if not sp.issparse(P):
        with one_blas_thread():
            for chunk in rows.chunks():
                P[chunk] = update.assign(rows.scores(chunk), rows.mass, rows.floor).T
        return P
    assert isinstance(rows, LinearRows)
    found = []
    for chunk in rows.chunks():
        entries = assign_entries(rows.lifted(chunk), rows.sums, update)
        found.append(counted(chunk.stop - chunk.start, entries))
    return of_counted(found, P.shape[1])
