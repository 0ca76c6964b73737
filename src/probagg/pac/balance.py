"""How strongly to prefer clusters of equal size, where the user does not know: `balance="auto"`.

The paper's balance of 1 finds groups of about equal size well. Where sizes differ, it cuts large
groups and joins small ones. A lower balance follows the sizes, but may put most rows into one
cluster and a few outliers into each of the others. PAC therefore runs at several values, and the
results are compared by how often the nearest neighbours of a row have its label: in a group that is
cut, and among outliers, many do not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from numbers import Integral

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from probagg.aggregation import LINEAR_METRICS, Array
from probagg.arrays import to_numpy
from probagg.errors import InputError
from probagg.estimators import draw_seed
from probagg.neighbours.graph import NeighbourAgreement, nearest_rows, plain_rows
from probagg.pac.out_of_core import Chunks
from probagg.pac.solver import Parameters, Solution, solve
from probagg.progress import log_progress

BALANCES = (1.0, 0.5, 0.25, 0.0)
NEIGHBOURS = 10
# A balance below 1 is chosen where it raises kappa by this much.
CLEAR_GAIN = 0.03
# A fit at balance 1 is compared with k-means on a few rows, and few principal axes.
FEW_ROWS = 600
FEW_COLUMNS = 32
# Runs are compared on at least and at most so many rows; 50 per cluster in between.
LEAST_ROWS, MOST_ROWS = 5_000, 20_000


def choose_balance(
    X: Array | Chunks, parameters: Parameters, sample_weight: Array | None = None
) -> tuple[Parameters, Solution | None]:
    """Return the parameters with the balance that "auto" stands for.

    Where the runs that were compared had all rows, the solution is returned too. Where they had
    some, and a balance below 1 is chosen, all rows start from their clusters: optima are many.
    """
    if not isinstance(parameters.init, str):
        raise InputError(
            'balance="auto" compares runs from starts of its own, but init is an array. Pass a '
            "number as balance (the paper's is 1), or leave init out."
        )
    N, K, metric = X.shape[0], parameters.n_clusters, parameters.metric
    if K == 1:
        return replace(parameters, balance=1.0), None
    if not isinstance(parameters.random_state, Integral):  # the same for every run
        parameters = replace(parameters, random_state=draw_seed(parameters.random_state))
    size = min(N, max(LEAST_ROWS, min(50 * K, MOST_ROWS)))
    rows, weights = _some(X, sample_weight, size, parameters)
    at = [replace(parameters, balance=balance, checkpoint=None) for balance in BALANCES]
    runs = [solve(rows, each, weights) for each in at]
    near = to_numpy(nearest_rows(rows, NEIGHBOURS, metric))
    found = [NeighbourAgreement.of(_labels(run), near, K) for run in runs]
    for balance, agreement in zip(BALANCES, found, strict=True):
        message = "balance %g: agreement of neighbours %.3f, mean of clusters %.3f"
        log_progress(parameters.verbose >= 1, message, balance, agreement.kappa, agreement.mean)
    chosen = clearly_best(found)
    parameters = replace(parameters, balance=BALANCES[chosen])
    if rows is X:
        return parameters, runs[chosen]
    if chosen == 0:
        return parameters, None
    return replace(parameters, init=runs[chosen].clusters), None


def gain_of_kmeans(solution: Solution, X: Array | Chunks, least: float) -> float:
    """Return how much more neighbours agree in clusters of k-means, on a few rows; 0 below `least`.

    K-means does not prefer equal sizes, and on a few rows it takes a fraction of PAC's time.
    """
    K, N, metric = solution.parameters.n_clusters, X.shape[0], solution.parameters.metric
    is_judged = solution.clusters.update.balance >= BALANCES[0] and 1 < K <= N // 20
    if isinstance(X, Chunks) or solution.P is None or metric not in LINEAR_METRICS or not is_judged:
        return 0.0
    chosen = _draw(N, max(FEW_ROWS, 20 * K), 0)
    with _thread_pools().limit(limits=1):  # starting threads takes longer than so few rows
        rows = normalize(plain_rows(X[chosen])) if metric == "cosine" else plain_rows(X[chosen])
        if rows.shape[1] > 2 * FEW_COLUMNS:
            rows = TruncatedSVD(FEW_COLUMNS, n_iter=1, random_state=0).fit_transform(rows)
        near = nearest_rows(rows, NEIGHBOURS)
        before = NeighbourAgreement.of(_labels(solution)[chosen], near, K).kappa
        if before > 1.0 - least:  # kappa is at most 1
            return 0.0
        means = KMeans(K, n_init=3, max_iter=20, random_state=0).fit(rows)
    gain = NeighbourAgreement.of(means.labels_, near, K).kappa - before
    return gain if gain >= least else 0.0


@cache
def _thread_pools() -> ThreadpoolController:
    """Return the libraries with threads of their own; finding them takes milliseconds."""
    return ThreadpoolController()


def clearly_best(found: list[NeighbourAgreement]) -> int:
    """Return which run to take: the first, unless another gains clearly."""
    gains = [agreement.gain_over(found[0]) for agreement in found]
    best = max(range(len(gains)), key=lambda number: gains[number])
    return best if gains[best] >= CLEAR_GAIN else 0


def _labels(run: Solution) -> np.ndarray:
    return to_numpy(run.P).argmax(1)


def _some(
    X: Array | Chunks, weights: Array | None, size: int, parameters: Parameters
) -> tuple[Array, Array | None]:
    """Return all rows, or random ones, with their weights."""
    if isinstance(X, Chunks):
        sample = X.sample(_draw(X.shape[0], size, parameters.random_state))
        return sample.X, sample.weights
    if size == X.shape[0]:
        return X, weights
    chosen = _draw(X.shape[0], size, parameters.random_state)
    rows = X[np.ix_(chosen, chosen)] if parameters.metric == "precomputed" else X[chosen]
    return rows, None if weights is None else weights[chosen]


def _draw(N: int, size: int, seed: int) -> np.ndarray:
    """Return the sorted numbers of random rows."""
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(N, min(N, size), replace=False, shuffle=False))
