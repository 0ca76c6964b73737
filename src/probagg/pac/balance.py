"""How strongly to prefer clusters of equal size, where the user does not know: `balance="auto"`.

The paper's balance of 1 finds groups of about equal size well. Where sizes differ, it cuts large
groups and joins small ones. A lower balance follows the sizes, but may put most rows into one
cluster and a few outliers into each of the others. PAC therefore runs at several balances and from
several starts, beside k-means, and the results are compared without labels by how often the nearest
neighbours of a row have its label, and by how far rows are from the mean of their cluster: a random
category or noise splits neighbourhoods, but hardly moves the means.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from probagg.aggregation import LINEAR_METRICS, Array
from probagg.arrays import UNKNOWN, is_tensor, to_numpy
from probagg.errors import InputError
from probagg.estimators import draw_seed
from probagg.known import match_clusters
from probagg.neighbours.graph import NeighbourAgreement, nearest_rows, plain_rows
from probagg.neighbours.joining import kmeans_labels
from probagg.pac.fixed_rows import weights_of
from probagg.pac.out_of_core import Chunks
from probagg.pac.rows import Metric, check_pairwise_metric, training_distances
from probagg.pac.solver import Parameters, Solution, solve
from probagg.progress import log_progress

NEIGHBOURS = 10
# The best candidate is used for a plain gain in score over balance 1. Otherwise balance 0 started
# from the clusters at 1 replaces them for a small gain; other starts, which may lead far from them,
# need a clear gain over what is used.
SMALL_GAIN = 0.03
CLEAR_GAIN = 0.05
PLAIN_GAIN = 0.1
# By adjusted Rand index: balance 1 is used where its clusters and k-means' are the same, and there
# is doubt where k-means gains clearly and its clusters are not like those used.
THE_SAME = 0.9
ALIKE = 0.85
# k-means has so many starts, in at most so many columns: principal axes of wider rows.
KMEANS_STARTS = 10
FEW_COLUMNS = 32
# A fit at balance 1 is compared with k-means on so many rows: the best of so many starts after some
# iterations, and so many more.
FEW_ROWS = 1_000
SHORT_STARTS, SHORT_ITERATIONS, MORE_ITERATIONS = 16, 3, 15
# Candidates are compared on at least and at most so many rows; 50 per cluster in between.
LEAST_ROWS, MOST_ROWS = 5_000, 20_000
# Rows with larger or smaller values are divided by a power of two before they are compared.
SMALLEST, LARGEST = 1e-15, 1e15


@dataclass(frozen=True)
class BalanceCandidate:
    """One way to cluster the rows, and how well its clusters fit them."""

    balance: float | None  # None for k-means
    start: str  # "uniform", "balance 1" or "k-means"
    sizes: tuple[int, ...]  # of the rows compared, largest first
    agreement: float  # of neighbours, over rows, corrected for chance (kappa)
    mean_agreement: float  # the mean over clusters of the share of neighbours with a row's label
    spread: float  # the sum of squares within clusters, as a share of that of all rows
    labels: np.ndarray  # of the rows compared

    @property
    def score(self) -> float:
        """The sum of both agreements, less the logarithm of the spread: higher is better."""
        return self.agreement + self.mean_agreement - float(np.log(self.spread))

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        if self.balance is None:
            return "k-means"
        return f"balance {self.balance:g}" + (
            "" if self.start == "uniform" else f" started from {self.start}"
        )

    def __str__(self) -> str:
        sizes = "/".join(f"{size}" for size in self.sizes[:6]) + "/…" * (len(self.sizes) > 6)
        return (
            f"{self.name}: score {self.score:.3f} (agreement of neighbours {self.agreement:.3f}, "
            f"mean of clusters {self.mean_agreement:.3f}, spread {self.spread:.3f}), sizes {sizes}"
        )


class Comparison:
    """Rows on which clusters are compared: their nearest neighbours, and their sums of squares."""

    def __init__(self, X: Array, metric: Metric, n_clusters: int) -> None:
        self.n_clusters = n_clusters
        self.near = to_numpy(nearest_rows(X, NEIGHBOURS, metric))
        self.distances: np.ndarray | None = None
        if metric in LINEAR_METRICS:
            rows = plain_rows(X).astype(np.float64)
            self.rows = normalize(rows) if metric == "cosine" else rows
            if not sp.issparse(rows):
                self.rows = self.rows - self.rows.mean(0)
        else:
            self.distances = to_numpy(
                X if metric == "precomputed" else training_distances(X, metric)
            )
        self.total = self._within(np.zeros(X.shape[0], np.int64))

    def read(self, labels: np.ndarray, balance: float | None, start: str) -> BalanceCandidate:
        """Return clusters with how well they fit."""
        found = NeighbourAgreement.of(labels, self.near, self.n_clusters)
        sizes = np.sort(np.bincount(labels, minlength=self.n_clusters))[::-1]
        spread = max(self._within(labels) / max(self.total, 1e-300), 1e-9)
        return BalanceCandidate(
            balance, start, tuple(sizes.tolist()), found.kappa, found.mean, spread, labels
        )

    def _within(self, labels: np.ndarray) -> float:
        """Return the sum over clusters of squared distances to the mean, or its like."""
        N, K = len(labels), self.n_clusters
        members = sp.csr_array((np.ones(N), (labels, np.arange(N))), shape=(K, N))
        sizes = np.maximum(members.sum(1), 1.0)
        if self.distances is not None:  # half the mean distance of a cluster's rows to each other
            sums = members @ self.distances
            return float(0.5 * (sums[labels, np.arange(N)] / sizes[labels]).sum())
        sums, squares = members @ self.rows, self.rows * self.rows
        return float(squares.sum() - ((sums * sums).sum(1) / sizes).sum())


@dataclass(frozen=True)
class BalanceChoice:
    """The candidates of `balance="auto"`, and which of them is used."""

    parameters: Parameters  # with the balance, and where to start
    candidates: tuple[BalanceCandidate, ...]  # k-means last, where the metric allows it
    chosen: int
    solution: Solution | None  # of all rows, where all were compared

    def doubt(self) -> str | None:
        """Return a warning where another candidate fits better and has other clusters."""
        if not self.candidates:
            return None
        used = self.candidates[self.chosen]
        rival = max(self.candidates, key=lambda candidate: candidate.score)
        if rival.score - used.score < CLEAR_GAIN:
            return None
        alike = adjusted_rand_score(used.labels, rival.labels)
        if alike >= ALIKE:
            return None
        return (
            f"The sizes of the clusters are in doubt. balance='auto' uses {used}. But {rival} (the "
            f"adjusted Rand index of both is {alike:.2f}). Compare both on samples that you know "
            "(balance_candidates_ has the labels), pass balance=1 if groups have about equal sizes "
            "and balance=0 if not, or leave out columns that are unrelated to the groups."
        )


def choose_balance(
    X: Array | Chunks,
    parameters: Parameters,
    sample_weight: Array | None = None,
    known: np.ndarray | None = None,
) -> BalanceChoice:
    """Return the balance that "auto" stands for, with the candidates it was chosen from.

    Where the candidates had some of the rows, and a balance below 1 is chosen, all rows start from
    its clusters: optima are many.
    """
    if not isinstance(parameters.init, str):
        raise InputError(
            'balance="auto" compares runs from starts of its own, but init is an array. Pass a '
            "number as balance (the paper's is 1), or leave init out."
        )
    N, K, metric = X.shape[0], parameters.n_clusters, parameters.metric
    if K == 1:
        return BalanceChoice(replace(parameters, balance=1.0), (), 0, None)
    if not isinstance(parameters.random_state, Integral):  # the same for every run
        parameters = replace(parameters, random_state=draw_seed(parameters.random_state))
    size = min(N, max(LEAST_ROWS, min(50 * K, MOST_ROWS)))
    rows, weights, known = _some(X, sample_weight, known, size, parameters)
    if metric not in LINEAR_METRICS and metric != "precomputed":
        check_pairwise_metric(rows, metric)
    compared, runs, candidates = Comparison(_in_range(rows, metric), metric, K), [], []

    def run(balance: float, start: str, P: Array | None = None) -> None:
        init = parameters.init if P is None else P
        at = replace(parameters, balance=balance, init=init, checkpoint=None)
        runs.append(solve(rows, at, weights, known))
        candidates.append(compared.read(_labels(runs[-1]), balance, start))

    run(1.0, "uniform")
    kmeans = None
    if metric in LINEAR_METRICS:
        labels = kmeans_labels(
            _few_columns(compared.rows),
            K,
            int(parameters.random_state),
            n_init=KMEANS_STARTS,
            weights=None if weights is None else to_numpy(weights),
        )
        kmeans = compared.read(labels, None, "k-means")
    if kmeans is None or adjusted_rand_score(candidates[0].labels, kmeans.labels) < THE_SAME:
        run(0.0, "balance 1", runs[0].P)
        run(0.25, "uniform")
        run(0.0, "uniform")
        if kmeans is not None:
            P = np.eye(K)[kmeans.labels]
            order = np.arange(K) if known is None else match_clusters(P, known)
            run(0.0, "k-means", P[:, order])
    candidates += [] if kmeans is None else [kmeans]
    for candidate in candidates:
        log_progress(parameters.verbose >= 1, "%s", candidate)
    chosen = best_candidate([candidate.score for candidate in candidates[: len(runs)]])
    parameters = replace(parameters, balance=runs[chosen].clusters.update.balance)
    if rows is not X and chosen > 0:
        parameters = replace(parameters, init=runs[chosen].clusters)
    solution = runs[chosen] if rows is X else None
    return BalanceChoice(parameters, tuple(candidates), chosen, solution)


def best_candidate(scores: Sequence[float]) -> int:
    """Return which to use of balance 1, the same clusters at 0, and other starts."""
    best = max(range(len(scores)), key=lambda number: scores[number])
    if scores[best] >= scores[0] + PLAIN_GAIN:
        return best
    chosen = 1 if len(scores) > 1 and scores[1] >= scores[0] + SMALL_GAIN else 0
    return best if scores[best] >= scores[chosen] + CLEAR_GAIN else chosen


def gain_of_kmeans(solution: Solution, X: Array | Chunks, least: float) -> float:
    """Return how much better k-means' clusters of some rows fit, in score.

    It is 0 where that is below `least`, or both have the same clusters.

    K-means does not prefer equal sizes, and on few rows and axes it takes a fraction of PAC's time.
    """
    K, N, metric = solution.parameters.n_clusters, X.shape[0], solution.parameters.metric
    is_judged = solution.clusters.update.balance >= 1.0 and 1 < K <= N // 20
    if isinstance(X, Chunks) or solution.P is None or metric not in LINEAR_METRICS or not is_judged:
        return 0.0
    chosen = np.random.default_rng(0).choice(N, min(N, max(FEW_ROWS, 20 * K)), replace=False)
    with _thread_pools().limit(limits=1):  # starting threads takes longer than so few rows
        rows = _in_range(plain_rows(X[chosen]), metric)
        rows = _few_columns(normalize(rows) if metric == "cosine" else rows)
        used, labels = to_numpy(solution.P[chosen]).argmax(1), short_kmeans(rows, K)
        if adjusted_rand_score(used, labels) >= ALIKE:
            return 0.0
        compared = Comparison(rows, "sqeuclidean", K)
        before = compared.read(used, 1.0, "uniform")
        after = compared.read(labels, None, "k-means")
    gain = after.score - before.score
    return gain if gain >= least else 0.0


def short_kmeans(rows: Array, n_clusters: int) -> np.ndarray:
    """Return labels by k-means: the best of many short runs from k-means++ starts, run on.

    All starts are computed at once, in a tenth of the time of as many runs of `KMeans`.
    """
    X = rows.toarray() if sp.issparse(rows) else rows
    X = (X - X.mean(0, dtype=np.float64)).astype(np.float32)
    generator, squares = np.random.default_rng(0), np.einsum("ij,ij->i", X, X)
    drawn = generator.integers(len(X), size=SHORT_STARTS)
    means = np.empty((SHORT_STARTS, n_clusters, X.shape[1]), X.dtype)
    nearest = np.full((SHORT_STARTS, len(X)), np.inf, X.dtype)
    for k in range(n_clusters):
        means[:, k] = X[drawn]
        distances = (squares - 2.0 * (X[drawn] @ X.T) + squares[drawn, None]).clip(0.0)
        nearest = np.minimum(nearest, distances)
        sums = np.cumsum(nearest, axis=1, dtype=np.float64)
        limits = generator.random((SHORT_STARTS, 1)) * sums[:, -1:]
        drawn = np.minimum((sums < limits).sum(1), len(X) - 1)
    means, spreads, _ = _iterate(X, means, SHORT_ITERATIONS)
    best = spreads.argmin()
    return _iterate(X, means[best : best + 1], MORE_ITERATIONS)[2][0]


def _iterate(X: np.ndarray, means: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means (runs, K, D), spreads (runs,) and labels (runs, rows) after n iterations."""
    for _ in range(n):
        distances = np.square(means).sum(2)[..., None] - 2.0 * (means @ X.T)
        smallest = distances.min(1, keepdims=True)
        members = (distances == smallest).astype(X.dtype)
        sizes = members.sum(2)[..., None]
        means = np.where(sizes > 0.0, members @ X / np.maximum(sizes, 1.0), means)
    return means, smallest.sum((1, 2)), members.argmax(1)


def _in_range(rows: Array, metric: Metric) -> Array:
    """Return rows whose squares neither overflow nor vanish: divided by a power of two, if needed.

    Neighbours and k-means' clusters do not depend on the unit.
    """
    if metric not in LINEAR_METRICS or is_tensor(rows):
        return rows
    largest = float(abs(rows).max())
    if largest == 0.0 or SMALLEST < largest < LARGEST:
        return rows
    # The power itself may overflow, and SciPy divides by multiplying with its reciprocal.
    shift = 1 - int(np.frexp(largest)[1])
    if not sp.issparse(rows):
        return np.ldexp(rows, shift)
    rows = rows.copy()
    rows.data = np.ldexp(rows.data, shift)
    return rows


def _few_columns(rows: Array) -> Array:
    """Return rows, on principal axes where they have many columns; sparse rows are not centred."""
    if rows.shape[1] <= 2 * FEW_COLUMNS:
        return rows
    from sklearn.decomposition import TruncatedSVD  # slow to import

    return TruncatedSVD(FEW_COLUMNS, n_iter=1, random_state=0).fit_transform(rows)


@cache
def _thread_pools() -> ThreadpoolController:
    """Return the libraries with threads of their own; finding them takes milliseconds."""
    return ThreadpoolController()


def _labels(run: Solution) -> np.ndarray:
    return to_numpy(run.P).argmax(1)


def _some(
    X: Array | Chunks,
    weights: Array | None,
    known: np.ndarray | None,
    size: int,
    parameters: Parameters,
) -> tuple[Array, Array | None, np.ndarray | None]:
    """Return all rows, or random ones, with their weights and known clusters."""
    if size == X.shape[0] and not isinstance(X, Chunks):
        return X, weights, known
    chosen = _draw(X.shape[0], size, parameters.random_state)
    known = None if known is None or (known[chosen] == UNKNOWN).all() else known[chosen]
    weights = weights_of(weights, chosen)
    if isinstance(X, Chunks):
        return X.sample(chosen).X, weights, known
    rows = X[np.ix_(chosen, chosen)] if parameters.metric == "precomputed" else X[chosen]
    return rows, weights, known


def _draw(N: int, size: int, seed: int) -> np.ndarray:
    """Return the sorted numbers of random rows."""
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(N, min(N, size), replace=False, shuffle=False))
