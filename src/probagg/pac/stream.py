"""PAC on a stream of rows, each seen once: what `PAC.partial_fit` keeps between calls.

Moments add up, so new rows are assigned to the clusters and added to them. But the rows before were
assigned when less was known, and where many rows of one kind arrive, as in a stream sorted by
class, their cluster grows so heavy that Eq. 8 empties it. So sweeps over a random sample of the
stream correct the clusters: from the present ones as soon as masses have moved, and from a new
start when half of the weight is new. Without forgetting both happen O(log N) times in N rows.

A random sample of a stream of rows, for :mod:`probagg.pac.stream`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from probagg.aggregation import Moments
from probagg.errors import InputError
from probagg.pac.advice import problems
from probagg.pac.clusters import LinearModel, Model
from probagg.pac.coordinates import Frame, chunks
from probagg.pac.rows import LinearRows
from probagg.pac.solver import Solver
from probagg.pac.sweeps import LARGEST_BLOCK, Blocks, Update, assign_lifted, run_sweeps
from probagg.progress import log_progress

SAMPLE_ROWS = 5_000  # kept of a stream, or 100 per cluster where that is more
MOVED = 0.02  # share of the mass that has moved between clusters, to refine them on the sample
SWEEPS = 5  # to refine clusters; what they leave, the next ones correct
NEW = 0.5  # share of new weight, to cluster the sample from a new start
GAIN = 0.01  # by which the objective of a new start must be lower to replace the clusters
COVERED = 0.8  # share of the weight that the sample must represent to correct a fit before it
WIDEST = 2.0**40  # squared norm of a row in its frame, above which the frame is widened


@dataclass(frozen=True)
class Clusters:
    """What assigns rows: moments in a frame, and the update with its m."""

    model: LinearModel
    update: Update
    critical_m: float

    def at(self, frame: Frame, sums: np.ndarray) -> Clusters:
        """Return clusters with other moments."""
        return replace(self, model=LinearModel(frame, Moments.of_sums(sums)))

    def assign(self, lifted: Any) -> np.ndarray:
        """Return P (K, rows) of lifted rows by Eq. 8."""
        return assign_lifted(lifted, self.model.moments.sums, self.update)

    def decay(self, factor: float) -> Clusters:
        """Return clusters with their masses multiplied by `factor`."""
        return self.at(self.model.frame, self.model.moments.sums * factor)

    def lift(self, X: Any) -> tuple[Clusters, Any]:
        """Return the lifted rows of X, and the clusters in the frame in which they are lifted.

        Far outside the frame squares would overflow or drown the rest, so its scale grows.
        """
        frame, sums = self.model.frame, self.model.moments.sums
        with np.errstate(over="ignore"):
            lifted = frame(X)
        if lifted[:, [-2]].max() < WIDEST:
            return self, lifted
        size = float(abs(X).max()) + float(np.abs(frame.center).max())
        wide = replace(frame, scale=float(2.0 ** np.frexp(size)[1]))
        factor = frame.scale / wide.scale
        powers = np.r_[np.full(sums.shape[1] - 2, factor), factor**2, 1.0]
        return self.at(wide, sums * powers), wide(X)

    @property
    def objective(self) -> float:
        """J of the rows as they were added, in their units."""
        return self.update.objective(self.model.moments.sums) * self.model.unit


class Stream:
    """The clusters of the rows seen so far, in memory that does not grow with their number."""

    def __init__(self, n_clusters: int, generator: np.random.Generator) -> None:
        self.clusters: Clusters | None = None
        self.sample = Sample(max(SAMPLE_ROWS, 100 * n_clusters))
        self.n_chunks = 0
        self._generator = generator
        self._log_growth = 0.0  # of a new row's weight over that of a row of the first chunk
        self._weight = 0.0  # of all rows, after decay
        self._fitted = 0.0  # of the rows of a fit before the stream
        self._started = 0.0  # of all rows at the last new start
        self._masses = np.zeros(0)  # of the clusters when they were last corrected

    def start_from(self, model: LinearModel, update: Update, critical_m: float) -> None:
        """Continue with the clusters of a fit; their mass counts as rows seen."""
        model = model.like(np.empty(0))  # of tensors
        self.clusters, self._masses = Clusters(model, update, critical_m), model.mass.copy()
        self._weight = self._fitted = self._started = float(self._masses.sum())

    def add(
        self, X: Any, weights: np.ndarray | None, solver: Solver, forgetting: float
    ) -> list[str]:
        """Add a chunk of rows after decay of all before; return problems, each with advice."""
        self._decay(forgetting)
        X = self.sample.like(X)
        weights = np.ones(X.shape[0]) if weights is None else weights.astype(np.float64)
        order = np.flatnonzero(weights)
        order = self._generator.permutation(order) if solver.shuffle else order
        found: list[str] = []
        for part in chunks(len(order), self.sample.size):
            rows, w = X[order[part]], weights[order[part]]
            if self.clusters is not None:
                self.clusters = add_rows(self.clusters, rows, w, self._weight, solver)
            self._weight += w.sum()
            self.sample.offer(rows, np.log(w) + self._log_growth, self._generator)
            found += self._correct(solver)
        return found

    def _decay(self, factor: float) -> None:
        self.n_chunks += 1
        self._log_growth -= np.log(factor)
        self._weight *= factor
        self._fitted *= factor
        self._started *= factor
        self._masses = self._masses * factor
        if self.clusters is not None:
            self.clusters = self.clusters.decay(factor)

    def _correct(self, solver: Solver) -> list[str]:
        """Cluster the sample if enough has changed; return problems, each with advice."""
        sampled = self._weight - self._fitted
        if self.sample.n_rows < solver.n_clusters or sampled < COVERED * self._weight:
            return []
        new = self._weight - self._started >= NEW * self._weight
        if not (new or self._moved() >= MOVED * self._weight):
            return []
        X, w = self.sample.X, self.sample.weights(self._log_growth)
        weights, found = w.astype(X.dtype), list[str]()
        if self.clusters is not None:
            sweeps = solver.max_iter if new else min(solver.max_iter, SWEEPS)
            self.clusters = self._refine(self.clusters, X, weights, solver, sweeps)
        if new:
            self.clusters, found = self._restart(X, weights, solver)
            self._started = self._weight
        assert self.clusters is not None
        self.clusters = self.clusters.decay(self._weight / w.sum())
        self._masses = self.clusters.model.mass.copy()
        return found

    def _moved(self) -> float:
        """Return the mass that new rows have moved between clusters, as against growing all."""
        assert self.clusters is not None  # before the first ones, all weight is new
        mass = self.clusters.model.mass
        return float(np.abs(mass - self._masses * (mass.sum() / self._masses.sum())).sum() / 2.0)

    def _refine(
        self, clusters: Clusters, X: Any, w: np.ndarray, solver: Solver, sweeps: int
    ) -> Clusters:
        """Return clusters after some sweeps over the sample."""
        order = self._generator.permutation(len(w)) if solver.shuffle else None
        rows = LinearRows(X, w, order, Frame.of(X, solver.metric))
        clusters, lifted = clusters.lift(X)
        P = rows.arrange(clusters.assign(lifted).T)
        blocks = Blocks.of(solver.block_size, rows, solver.n_clusters, clusters.update.m)
        run_sweeps(rows, P, clusters.update, blocks, max_iter=sweeps, tol=solver.tol)
        return self._log(solver, "refined", clusters.at(rows.frame, rows.sums))

    def _restart(self, X: Any, w: np.ndarray, solver: Solver) -> tuple[Clusters, list[str]]:
        """Return the clusters of a new start, or the present ones where they are about as good."""
        seed, old = int(self._generator.integers(2**31)), self.clusters
        solution = replace(solver, random_state=seed).solve(X, w)
        assert isinstance(solution.model, LinearModel)
        new = Clusters(solution.model, solution.update, solution.critical_m)
        found = problems(solution) if len(w) >= 10 * solver.n_clusters else []
        if old is None:
            return self._log(solver, "first", new), found
        if new.objective >= (1.0 - GAIN) * old.objective:
            return replace(new, model=old.model), found
        order = match(old.assign(old.model.frame(X)), solution.P.T, w)
        new = new.at(new.model.frame, new.model.moments.sums[order])
        return self._log(solver, "new", new), found

    def _log(self, solver: Solver, kind: str, clusters: Clusters) -> Clusters:
        message = "stream, chunk %d: %s clusters from a sample of %d rows, J %.6g"
        n, J = self.sample.n_rows, clusters.objective
        log_progress(solver.verbose >= 1, message, self.n_chunks, kind, n, J)
        return clusters


def check_continues(model: Model, solver: Solver) -> LinearModel:
    """Return the model, or raise an error if the solver's parameters are for other clusters."""
    if not isinstance(model, LinearModel) or model.frame.metric != solver.metric:
        other = f"another metric than {solver.metric!r}"
    elif len(model.mass) != solver.n_clusters:
        other = f"n_clusters={len(model.mass)}, not {solver.n_clusters}"
    else:
        return model
    raise InputError(
        f"The clusters were fitted with {other}, so partial_fit cannot continue them. Set the "
        "parameter back, or start again: with fit, or with partial_fit of a clone."
    )


def add_rows(
    clusters: Clusters, X: Any, weights: np.ndarray, before: float, solver: Solver
) -> Clusters:
    """Return clusters to which rows were assigned and added, block by block."""
    clusters, lifted = clusters.lift(X)
    sums = clusters.model.moments.sums.copy()
    clusters = clusters.at(clusters.model.frame, sums)
    w = weights.astype(lifted.dtype)
    for block in growing_blocks(weights, before, solver, clusters.update.m):
        P = clusters.assign(lifted[block])
        sums += clusters.update.weigh(P, w[block]) @ lifted[block]
    return clusters


def growing_blocks(weights: np.ndarray, before: float, solver: Solver, m: float) -> Iterator[slice]:
    """Return blocks of rows that are small beside the weight before them.

    The limits are those of `sweeps.Blocks`, for a number of samples that grows.
    """
    total = np.cumsum(weights) + before
    share = min(1.0 / (4 * solver.n_clusters), m - 1.0)
    start = 0
    while start < len(weights):
        if solver.block_size == "auto":
            limit = (total[start] - weights[start]) * (1.0 + share)
            size = max(1, min(int(np.searchsorted(total, limit, "right")) - start, LARGEST_BLOCK))
        else:
            size = int(solver.block_size)
        yield slice(start, min(start + size, len(weights)))
        start += size


def match(P: np.ndarray, Q: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return which cluster of Q (K, rows) takes the place of each of P: the largest overlap."""
    overlap = (P * weights) @ Q.T
    return np.asarray(linear_sum_assignment(overlap, maximize=True)[1])


class Sample:
    """A weighted random sample of a stream: priority sampling (Duffield, Lund and Thorup, 2007).

    A row of weight w has priority w / u, with u uniform in (0, 1); the `size` rows of highest
    priority are kept. Each stands for the weight max(w, tau), tau the highest priority among the
    rows left out, which makes every sum over the sample unbiased. Decay of all earlier weights does
    not change their order, so it is applied as growth of later weights, in logarithms.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.n_rows = 0
        self._X: Any = None
        self._log_weight = self._log_priority = np.empty(0)
        self._log_tau = -np.inf

    def offer(self, X: Any, log_weight: np.ndarray, generator: np.random.Generator) -> None:
        """Take in a random part of the rows X."""
        log_priority = log_weight - np.log1p(-generator.random(len(log_weight)))
        priority = np.concatenate([self._log_priority, log_priority])
        weight = np.concatenate([self._log_weight, log_weight])
        old = self.n_rows
        kept = np.arange(len(priority))
        if len(priority) > self.size:
            order = np.argpartition(priority, len(priority) - self.size)
            dropped, kept = order[: -self.size], np.sort(order[-self.size :])
            self._log_tau = max(self._log_tau, priority[dropped].max())
            new = kept[kept >= old]
            kept = np.arange(self.size)  # rows that stay keep their places
            kept[old:] = new[: self.size - old]
            kept[dropped[dropped < old]] = new[self.size - old :]
        self._log_priority, self._log_weight = priority[kept], weight[kept]
        self.n_rows = len(kept)
        self._place(X, kept, old)

    def _place(self, X: Any, kept: np.ndarray, old: int) -> None:
        """Set row i to row kept[i] of the old rows followed by X."""
        if sp.issparse(X):
            self._X = sp.vstack([self._X, X], "csr")[kept] if old else X[kept]
            return
        if self._X is None or not np.can_cast(X.dtype, self._X.dtype):
            before = self._X[:old] if old else X[:0]
            self._X = np.empty((self.size, X.shape[1]), X.dtype)
            self._X[:old] = before
        places = np.flatnonzero(kept >= old)
        self._X[places] = X[kept[places] - old]

    @property
    def X(self) -> Any:
        return self._X[: self.n_rows]

    def like(self, X: Any) -> Any:
        """Return X sparse or dense as the rows of the sample are."""
        if self._X is None or sp.issparse(X) == sp.issparse(self._X):
            return X
        return X.toarray() if sp.issparse(X) else sp.csr_array(X)

    def weights(self, log_growth: float) -> np.ndarray:
        """Return the weight that each row stands for, after decay by exp(-log_growth)."""
        return np.exp(np.maximum(self._log_weight, self._log_tau) - log_growth)
