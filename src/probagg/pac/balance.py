"""How strongly to prefer clusters of equal size, where the user does not know: `balance="auto"`.

The paper's balance of 1 finds groups of about equal size well. Where sizes differ, it cuts large
groups and joins small ones. A lower balance follows the sizes, but may put most rows into one
cluster and a few outliers into each of the others. PAC therefore runs at several values, and the
results are compared by how often the nearest neighbours of a row have its label: in a group that is
cut, and among outliers, many do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from probagg.aggregation import LINEAR_METRICS
from probagg.errors import InputError
from probagg.estimators import draw_seed
from probagg.pac.clusters import Assigner
from probagg.pac.coordinates import like
from probagg.pac.out_of_core import Chunks
from probagg.pac.solver import Solution, Solver
from probagg.progress import log_progress

BALANCES = (1.0, 0.5, 0.25, 0.0)
NEIGHBOURS = 10  # of a row
CLEAR_GAIN = 0.03  # in kappa, to leave 1
FEW_ROWS = 600  # on which a fit at balance 1 is compared with k-means
FEW_COLUMNS = 32  # principal ones of wider rows, for that comparison
LEAST_ROWS, MOST_ROWS = 5_000, 20_000  # that are compared; 50 per cluster in between


@dataclass(frozen=True)
class Reading:
    """How often neighbours have the same label."""

    kappa: float  # over rows, corrected for chance: 0 for random labels of the same sizes
    mean: float  # over clusters, where a cluster of a few outliers counts as much as any

    @classmethod
    def of(cls, labels: np.ndarray, near: np.ndarray, n_clusters: int) -> Reading:
        """Read the labels of rows with these neighbours."""
        same = (labels[near] == labels[:, None]).mean(1)
        sizes = np.bincount(labels, minlength=n_clusters)
        means = np.bincount(labels, same, n_clusters) / np.maximum(sizes, 1)
        by_chance = float(((sizes / len(labels)) ** 2).sum())
        kappa = (same.mean() - by_chance) / (1.0 - by_chance) if by_chance < 1.0 else 0.0
        return cls(float(kappa), float(means.mean()))

    def gain_over(self, other: Reading) -> float:
        """Return the gain in kappa; none where clusters agree less on average."""
        return self.kappa - other.kappa if self.mean >= other.mean else 0.0


def solve(solver: Solver, X: Any, sample_weight: Any = None) -> Solution:
    """Solve with the balance given, or with the one that `choose` prefers for "auto"."""
    if solver.balance != "auto":
        return solver.solve(X, sample_weight)
    if not isinstance(solver.init, str):
        raise InputError(
            'balance="auto" compares runs from starts of its own, but init is an array. Pass a '
            "number as balance (the paper's is 1), or leave init out."
        )
    N, K = X.shape[0], solver.n_clusters
    if K == 1:
        return replace(solver, balance=1.0).solve(X, sample_weight)
    if not isinstance(solver.random_state, Integral):  # the same for every run
        solver = replace(solver, random_state=draw_seed(solver.random_state))
    size = min(N, max(LEAST_ROWS, min(50 * K, MOST_ROWS)))
    rows, weights = _some(X, sample_weight, size, solver)
    at = [replace(solver, balance=balance, checkpoint=None) for balance in BALANCES]
    runs = [each.solve(rows, weights) for each in at]
    near = _nearest(rows, solver.metric)
    readings = [Reading.of(_labels(run), near, K) for run in runs]
    for balance, reading in zip(BALANCES, readings, strict=True):
        message = "balance %g: agreement of neighbours %.3f, mean of clusters %.3f"
        log_progress(solver.verbose >= 1, message, balance, reading.kappa, reading.mean)
    chosen = choose(readings)
    if rows is X:
        return runs[chosen]
    if chosen == 0:
        return replace(solver, balance=BALANCES[0]).solve(X, sample_weight)
    start = Assigner(runs[chosen].model, runs[chosen].update)  # optima are many at a low balance
    return replace(solver, balance=BALANCES[chosen], init=start).solve(X, sample_weight)


def gain_of_kmeans(solution: Solution, X: Any, least: float) -> float:
    """Return how much more neighbours agree in clusters of k-means, on a few rows; 0 below `least`.

    K-means does not prefer equal sizes, and on a few rows it takes a fraction of PAC's time.
    """
    K, N, metric = solution.solver.n_clusters, X.shape[0], solution.solver.metric
    is_judged = solution.update.balance >= BALANCES[0] and 1 < K <= N // 20
    if solution.P is None or metric not in LINEAR_METRICS or not is_judged:
        return 0.0
    places = _places(N, max(FEW_ROWS, 20 * K), 0)
    with _thread_pools().limit(limits=1):  # starting threads takes longer than so few rows
        rows = normalize(_plain(X[places])) if metric == "cosine" else _plain(X[places])
        if rows.shape[1] > 2 * FEW_COLUMNS:
            rows = TruncatedSVD(FEW_COLUMNS, n_iter=1, random_state=0).fit_transform(rows)
        near = _nearest(rows, "sqeuclidean")
        before = Reading.of(_labels(solution)[places], near, K).kappa
        if before > 1.0 - least:  # kappa is at most 1
            return 0.0
        means = KMeans(K, n_init=3, max_iter=20, random_state=0).fit(rows)
    gain = Reading.of(means.labels_, near, K).kappa - before
    return gain if gain >= least else 0.0


@cache
def _thread_pools() -> ThreadpoolController:
    """Return the libraries with threads of their own; finding them takes milliseconds."""
    return ThreadpoolController()


def choose(readings: list[Reading]) -> int:
    """Return which run to take: the first, unless another gains clearly."""
    gains = [reading.gain_over(readings[0]) for reading in readings]
    best = max(range(len(gains)), key=lambda number: gains[number])
    return best if gains[best] >= CLEAR_GAIN else 0


def _labels(run: Solution) -> np.ndarray:
    return like(run.P, np.empty(0)).argmax(1)


def _some(X: Any, weights: Any, size: int, solver: Solver) -> tuple[Any, Any]:
    """Return all rows, or random ones, with their weights."""
    if isinstance(X, Chunks):
        survey = X.survey(_places(X.shape[0], size, solver.random_state))
        return survey.X, survey.weights
    if size == X.shape[0]:
        return X, weights
    places = _places(X.shape[0], size, solver.random_state)
    rows = X[np.ix_(places, places)] if solver.metric == "precomputed" else X[places]
    return rows, None if weights is None else weights[places]


def _places(N: int, size: int, seed: Any) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(N, min(N, size), replace=False, shuffle=False))


def _nearest(X: Any, metric: Any) -> np.ndarray:
    """Return the nearest rows of each row, (rows, neighbours)."""
    metric = "euclidean" if metric == "sqeuclidean" else metric  # the same order
    search = NearestNeighbors(n_neighbors=min(NEIGHBOURS, X.shape[0] - 1), metric=metric)
    return search.fit(_plain(X)).kneighbors(return_distance=False)


def _plain(X: Any) -> Any:
    """Return rows as scikit-learn takes them: not as a tensor, nor as CSR with 64-bit indices."""
    if sp.issparse(X):
        parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return sp.csr_array(parts, shape=X.shape)
    return like(X, np.empty(0))
