"""The solver under PAC, the selection of K and DPAC's start: rows in, P and moments out.

It expects valid rows and settings and never warns: `estimator.PAC` validates and warns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from probagg.aggregation import LINEAR_METRICS, Array, Moments, critical_m_from_growth
from probagg.errors import InputError
from probagg.estimators import draw_seed
from probagg.pac.clusters import Assigner, LinearModel, Model, PairwiseModel, training_distances
from probagg.pac.coordinates import Frame, is_tensor, like
from probagg.pac.out_of_core import PROBE_ROWS, Checkpoint, Chunks, PartSweeps, Survey
from probagg.pac.rows import LinearRows, PairwiseRows
from probagg.pac.sweeps import (
    Blocks,
    Run,
    Update,
    converge,
    given_start,
    near_uniform,
    read_out,
    run_sweeps,
)
from probagg.pac.tensors import TensorChunks, TensorRows
from probagg.progress import log_progress
from probagg.storage import fingerprint

SAMPLE_ROWS = 50_000  # of a large data set, clustered first when init="auto"
SAMPLE_TOL = 0.03  # at least, for the sample of data in parts: all rows move the clusters anyway


def sample_size(K: int) -> int:
    """Return how many rows of a large data set are clustered first."""
    return max(SAMPLE_ROWS, 200 * K)


def is_large(N: int, K: int) -> bool:
    """Return whether a data set is clustered from a sample of its rows."""
    return 4 * sample_size(K) <= N


def rows_of(
    X: Any, metric: Any, weights: Any = None, order: Any = None, frame: Frame | None = None
) -> Any:
    """Return X as the rows of a sweep: `LinearRows`, or `PairwiseRows` of all distances."""
    if metric in LINEAR_METRICS:
        kind = TensorRows if is_tensor(X) else LinearRows
        return kind(X, weights, order, frame or Frame.of(X, metric))
    D = X if metric == "precomputed" else training_distances(X, metric)
    return PairwiseRows(D, weights, order)


def choose_m(m: float | str, critical_m: float) -> float:
    """Return m; for "auto" the paper's 1.03, or half-way to the critical m where that is less."""
    if m != "auto":
        return float(m)
    return max(min(1.03, (1.0 + critical_m) / 2.0), 1.0 + 1e-6)


@dataclass(frozen=True)
class Solver:
    """The parameters of :class:`probagg.PAC`, by the same names and with the same defaults."""

    n_clusters: int = 8
    m: float | str = 1.03
    metric: Any = "sqeuclidean"
    balance: Any = 1.0  # a number; `balance.solve` takes "auto" too
    init: Any = "auto"  # or an `Assigner`: the clusters of other rows
    block_size: int | str = "auto"
    shuffle: bool = True
    max_iter: int = 100
    tol: float = 1e-3
    n_init: int = 1
    aggregate: str = "p"
    checkpoint: str | Path | None = None
    random_state: Any = None
    verbose: int = 0

    def solve(self, X: Any, sample_weight: Array | None = None) -> Solution:
        """Cluster rows X, or the samples whose distances X holds (`metric="precomputed"`)."""
        if is_tensor(X) and is_large(len(X), self.n_clusters) and not self._is_init_array:
            X = TensorChunks(X, sample_weight, self.n_clusters)
        seed = draw_seed(self.random_state)
        if isinstance(X, Chunks):
            return self._solve_in_parts(X, seed)
        return self._solve_in_memory(X, sample_weight, seed)

    def _solve_in_memory(self, X: Any, sample_weight: Array | None, seed: int) -> Solution:
        generator = np.random.default_rng(seed)
        order = generator.permutation(X.shape[0]) if self.shuffle else None
        rows = rows_of(X, self.metric, sample_weight, order)
        update, critical_m = self._update(rows)
        best = self._best_run(rows, update, critical_m, generator)
        if best.converged:  # so that `predict` agrees with `labels_`
            read_out(rows, best.P, update)
        P = rows.restore(best.P)
        return Solution(
            solver=self,
            P=P,
            model=self._model(rows, X),
            update=update,
            critical_m=critical_m,
            history=[J * rows.unit for J in best.history],
            converged=best.converged,
            departure=best.departure,
            sizes=np.bincount(like(P, np.empty(0)).argmax(1), minlength=self.n_clusters),
        )

    @property
    def _is_init_array(self) -> bool:
        return not isinstance(self.init, str | Assigner)

    def _update(self, rows: Any) -> tuple[Update, float]:
        """Return the update with the m to use, and the critical m of these rows."""
        critical_m = critical_m_from_growth(rows.growth(), self.aggregate)
        return Update(choose_m(self.m, critical_m), self.aggregate, self.balance), critical_m

    def _best_run(
        self, rows: Any, update: Update, critical_m: float, generator: np.random.Generator
    ) -> Run:
        """Return the run with the lowest objective; the sums of `rows` are then those of it."""
        best = run = self._run(rows, update, critical_m, generator)
        for _ in range(1, self.n_init if isinstance(self.init, str) else 1):
            run = self._run(rows, update, critical_m, generator)
            best = run if run.history[-1] < best.history[-1] else best
        if run is not best:
            rows.start(update.weigh(best.P.T, rows.sample_weight))
        return best

    def _solve_in_parts(self, data: Chunks, seed: int) -> Solution:
        """Cluster a sample in memory, then all rows in parts. A sample of all rows is enough."""
        self._check_parts()
        N, size = data.shape[0], sample_size(self.n_clusters)
        if size >= N:  # the sample would be all rows
            survey = data.survey(np.arange(N))
            return replace(self._solve_in_memory(survey.X, survey.weights, seed), P=None)
        checkpoint = Checkpoint(self.checkpoint, seed)
        generator = np.random.default_rng(checkpoint.seed)
        places = np.sort(generator.choice(N, size, replace=False, shuffle=False))
        survey = data.survey(places)
        checkpoint.match(self._identity(data, survey))
        frame, order = Frame.of(survey.X, self.metric, survey.bounds), generator.permutation(size)
        sample = rows_of(survey.X, self.metric, survey.weights, order, frame)
        probe = rows_of(survey.X[order[:PROBE_ROWS]], self.metric, frame=frame)
        update, critical_m = self._update(sample)

        if checkpoint.state is None:
            self._roughly._best_run(sample, update, critical_m, generator)
            weight = size if survey.weights is None else float(survey.weights.sum())
            probe.sums = sample.sums * (survey.n_rows / weight)
        else:
            probe.sums = like(checkpoint.state, survey.X).sum(0)
        blocks = Blocks.of_parts(self.block_size, N, self.n_clusters, update.m)
        sweeps = PartSweeps(data, probe, update, blocks)
        if checkpoint.state is not None:
            sweeps.resume(like(checkpoint.state, survey.X), checkpoint.block)

        def report(history: list[float], change: float) -> None:
            self._log_sweep("parts", len(history), history[-1] * sample.unit, change)
            checkpoint.write(sweeps.state, sweeps.block, history)

        limits = self._limits(update, critical_m)
        run = converge(sweeps, history=checkpoint.history, report=report, **limits)
        checkpoint.delete()
        mean_weight = survey.n_rows / N
        return Solution(
            solver=self,
            P=None,
            model=LinearModel(frame, Moments.of_sums(sweeps.total)),
            update=update,
            critical_m=critical_m,
            history=[J * sample.unit for J in run.history],
            converged=run.converged,
            departure=run.departure,
            sizes=like(sweeps.total[:, -1], np.empty(0)) / mean_weight,
        )

    def _check_parts(self) -> None:
        if self._is_init_array:
            raise InputError(
                "init is an array, but data of this size is clustered without keeping the "
                "probabilities of all rows. Leave init out."
            )
        if self.metric not in LINEAR_METRICS:
            raise InputError(
                f"metric={self.metric!r} needs all distances in memory, which data of this size "
                "does not allow. Use 'sqeuclidean' or 'cosine', or fit a sample of the rows."
            )

    @property
    def _roughly(self) -> Solver:
        """The solver for a sample."""
        init = "hardened" if self.init == "auto" else self.init
        return replace(self, init=init, tol=max(self.tol, SAMPLE_TOL))

    def _run(
        self, rows: Any, update: Update, critical_m: float, generator: np.random.Generator
    ) -> Run:
        """Sweep from one start: given, from a sample, or near-uniform and then at another m."""
        N, K = rows.X.shape[0], self.n_clusters
        if isinstance(self.init, Assigner):
            P = rows.arrange(self.init.probabilities(rows.X))
        elif self._is_init_array:
            P = rows.arrange(given_start(self.init, rows.X, K))
        elif self.init == "auto" and isinstance(rows, LinearRows) and is_large(N, K):
            sample = rows.sample(sample_size(K), generator)
            self._roughly._run(sample, update, critical_m, generator)
            rows.sums = sample.sums
            P = rows.arrange(np.empty((N, K), rows.X.dtype))
            read_out(rows, P, update)
        else:
            P = rows.arrange(near_uniform(rows.X, K, generator))
            first = self._first_m(update.m, critical_m)
            if first != update.m:
                name = "annealing" if first > update.m else "sample"
                P = self._sweep(rows, P, replace(update, m=first), critical_m, name).P
        return self._sweep(rows, P, update, critical_m, "run")

    def _first_m(self, m: float, critical_m: float) -> float:
        """Return the m of the sweeps that precede those at m."""
        if self.init == "annealed":  # there are fewer optima
            return max(m, 1.0 + min(2.0 * (m - 1.0), 0.9 * (critical_m - 1.0)))
        if self.init == "hardened":  # clusters form in half the sweeps
            return 1.0 + (m - 1.0) / 3.0
        return m

    def _sweep(self, rows: Any, P: Array, update: Update, critical_m: float, name: str) -> Run:
        def report(history: list[float], change: float) -> None:
            self._log_sweep(name, len(history), history[-1] * rows.unit, change)

        blocks = Blocks.of(self.block_size, rows, self.n_clusters, update.m)
        limits = self._limits(update, critical_m)
        run = run_sweeps(rows, P, update, blocks, report=report, **limits)
        J = run.history[-1] * rows.unit
        log_progress(self.verbose >= 1, "%s: %d sweeps, J %.6g", name, len(run.history), J)
        return run

    def _limits(self, update: Update, critical_m: float) -> dict[str, Any]:
        stays_uniform = update.m >= critical_m
        return {"max_iter": self.max_iter, "tol": self.tol, "stays_uniform": stays_uniform}

    def _log_sweep(self, name: str, n: int, J: float, change: float) -> None:
        message = "%s, sweep %d: J %.6g, change %.2g"
        log_progress(self.verbose >= 2, message, name, n, J, change)

    def _identity(self, data: Chunks, survey: Survey) -> dict[str, Any]:
        """Return what a checkpoint must have been made with to be resumed."""
        names = ("n_clusters", "m", "metric", "balance", "aggregate", "block_size", "init")
        settings = {name: str(getattr(self, name)) for name in (*names, "n_init")}
        sample = [part for part in (survey.X, survey.weights) if part is not None]
        digest = fingerprint([like(part, np.empty(0)).tobytes() for part in sample])
        layout = fingerprint([str(data.layout)])
        return settings | {"shape": list(data.shape), "data": digest, "chunks": layout}

    def _model(self, rows: Any, X: Any) -> Model:
        if isinstance(rows, LinearRows):
            return LinearModel(rows.frame, Moments.of_sums(rows.sums))
        return PairwiseModel(self.metric, rows.A, None if self.metric == "precomputed" else X)


@dataclass(frozen=True)
class Solution:
    """The best run of a solver."""

    solver: Solver
    P: Array  # (N, K), in the order of the rows; None where it is not kept
    model: Model  # scores new rows
    update: Update  # with the m used
    critical_m: float
    history: list[float]  # the objective after each sweep, in the units of the rows
    converged: bool
    departure: float  # of P from uniform: 0 there, 1 for hard assignments
    sizes: np.ndarray  # samples per cluster, or masses where P is not kept
