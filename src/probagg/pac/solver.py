"""The solver under PAC, the selection of K and DPAC's start: rows in, P and moments out.

It expects valid rows and settings and never warns: `estimator.PAC` validates and warns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probagg.aggregation import LINEAR_METRICS, Moments, critical_m_from_growth
from probagg.estimators import draw_seed
from probagg.pac.model import LinearModel, Model, PairwiseModel, training_distances
from probagg.pac.rows import Frame, LinearRows, PairwiseRows
from probagg.pac.sweeps import Blocks, Run, Update, given_start, near_uniform, read_out, run_sweeps
from probagg.progress import log_progress

SAMPLE_ROWS = 50_000  # of a large data set, clustered first when init="auto"


def rows_of(X: Any, metric: Any, weights: Any = None, order: Any = None) -> Any:
    """Return X as the rows of a sweep: `LinearRows`, or `PairwiseRows` of all distances."""
    if metric in LINEAR_METRICS:
        return LinearRows(X, weights, order, Frame.of(X, metric))
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
    balance: float = 1.0
    init: Any = "auto"
    block_size: int | str = "auto"
    shuffle: bool = True
    max_iter: int = 100
    tol: float = 1e-3
    n_init: int = 1
    aggregate: str = "p"
    random_state: Any = None
    verbose: int = 0

    def solve(self, X: Any, sample_weight: np.ndarray | None = None) -> Solution:
        """Cluster rows X, or the samples whose distances X holds (`metric="precomputed"`)."""
        generator = np.random.default_rng(draw_seed(self.random_state))
        order = generator.permutation(X.shape[0]) if self.shuffle else None
        rows = rows_of(X, self.metric, sample_weight, order)
        critical_m = critical_m_from_growth(rows.growth(), self.aggregate)
        update = Update(choose_m(self.m, critical_m), self.aggregate, self.balance)

        best = run = self._run(rows, update, critical_m, generator)
        for _ in range(1, self.n_init if isinstance(self.init, str) else 1):
            run = self._run(rows, update, critical_m, generator)
            best = run if run.history[-1] < best.history[-1] else best
        if run is not best:
            rows.start(update.weigh(best.P.T, rows.sample_weight))
        if best.converged:  # so that `predict` agrees with `labels_`
            read_out(rows, best.P, update)
        return Solution(
            solver=self,
            P=rows.restore(best.P),
            model=self._model(rows, X),
            update=update,
            critical_m=critical_m,
            history=[J * rows.unit for J in best.history],
            converged=best.converged,
            departure=best.departure,
        )

    def _run(
        self, rows: Any, update: Update, critical_m: float, generator: np.random.Generator
    ) -> Run:
        """Sweep from one start: given, near-uniform, from a sample, or annealed."""
        N, K, dtype = rows.X.shape[0], self.n_clusters, rows.X.dtype
        size = max(SAMPLE_ROWS, 200 * K)
        if not isinstance(self.init, str):
            P = rows.arrange(given_start(self.init, N, K, dtype))
        elif self.init == "auto" and isinstance(rows, LinearRows) and 4 * size <= N:
            sample = rows.sample(size, generator)
            noise = near_uniform(sample.X.shape[0], K, dtype, generator)
            self._sweep(sample, noise, update, critical_m, "sample")
            rows.sums = sample.sums
            P = rows.arrange(np.empty((N, K), dtype))
            read_out(rows, P, update)
        else:
            P = rows.arrange(near_uniform(N, K, dtype, generator))
            soft = 1.0 + min(2.0 * (update.m - 1.0), 0.9 * (critical_m - 1.0))
            if self.init == "annealed" and soft > update.m:
                P = self._sweep(rows, P, replace(update, m=soft), critical_m, "annealing").P
        return self._sweep(rows, P, update, critical_m, "run")

    def _sweep(self, rows: Any, P: np.ndarray, update: Update, critical_m: float, name: str) -> Run:
        def report(n: int, J: float, change: float) -> None:
            message = "%s, sweep %d: J %.6g, change %.2g"
            log_progress(self.verbose >= 2, message, name, n, J * rows.unit, change)

        run = run_sweeps(
            rows,
            P,
            update,
            Blocks.of(self.block_size, rows, self.n_clusters, update.m),
            max_iter=self.max_iter,
            tol=self.tol,
            stays_uniform=update.m >= critical_m,
            report=report,
        )
        J = run.history[-1] * rows.unit
        log_progress(self.verbose >= 1, "%s: %d sweeps, J %.6g", name, len(run.history), J)
        return run

    def _model(self, rows: Any, X: Any) -> Model:
        if isinstance(rows, LinearRows):
            return LinearModel(rows.frame, Moments.of_sums(rows.sums))
        return PairwiseModel(self.metric, rows.A, None if self.metric == "precomputed" else X)


@dataclass(frozen=True)
class Solution:
    """The best run of a solver."""

    solver: Solver
    P: np.ndarray  # (N, K), in the order of the rows
    model: Model  # scores new rows
    update: Update  # with the m used
    critical_m: float
    history: list[float]  # the objective after each sweep, in the units of the rows
    converged: bool
    departure: float  # of P from uniform: 0 there, 1 for hard assignments
