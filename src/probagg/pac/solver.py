"""The solver under PAC, OPAHead's and DPAC's start: rows in, P and clusters out.

It expects valid rows and parameters and never warns: `pac.PAC` validates and warns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin

from probagg.aggregation import (
    LINEAR_METRICS,
    Array,
    cluster_objectives,
    critical_m_from_growth,
    mass_factor,
)
from probagg.arrays import UNKNOWN, is_tensor, like, to_numpy
from probagg.errors import InputError
from probagg.estimators import draw_seed
from probagg.known import match_clusters, reorder_clusters, with_known
from probagg.pac.assignment import Update, labels_of_rows
from probagg.pac.clusters import Clusters, LinearClusters, PairwiseClusters
from probagg.pac.coordinates import Coordinates
from probagg.pac.files import FileChunks, MappedRows
from probagg.pac.fixed_rows import fix_rows, fixed_sums, weights_of, without_known
from probagg.pac.out_of_core import TRACKED_ROWS, Chunks, ChunkSweeps, FitCheckpoint, RowSample
from probagg.pac.rows import LinearRows, Metric, PairwiseRows, Rows, training_distances
from probagg.pac.sweeps import (
    Blocks,
    BlockSweeps,
    SweepResult,
    converge,
    given_start,
    may_be_sparse,
    near_uniform,
    read_out,
)
from probagg.pac.tensors import TensorChunks, TensorRows, rough_products
from probagg.storage import fingerprint

# From so many clusters on, init="auto" finds clusters of clusters, of so many rows per cluster, by
# sweeps to this tolerance. Groups of more clusters than that are cut by k-means++, which is as good
# a start and takes a third of the time of small sweeps.
FAN_OUT = 16
ROWS_PER_CLUSTER = 32
LEVEL_TOL = 0.1
# With init="auto" so many rows of a large data set are clustered first, with at least this
# tolerance: all rows move the clusters anyway.
SAMPLE_ROWS = 50_000
SAMPLE_TOL = 0.03


@dataclass(frozen=True)
class Parameters:
    """The parameters of :class:`probagg.PAC`, by the same names and with the same defaults."""

    n_clusters: int = 8
    m: float | str = 1.03
    metric: Metric = "sqeuclidean"
    balance: float = 1.0
    init: Any = "auto"  # or `Clusters` of other rows, or "hardened", for a sample
    block_size: int | str = "auto"
    shuffle: bool = True
    max_iter: int = 100
    tol: float = 1e-3
    n_init: int = 1
    aggregate: str = "p"
    checkpoint: str | PathLike[str] | None = None
    random_state: Any = None
    verbose: int = 0

    @property
    def gives_probabilities(self) -> bool:
        """Whether `init` is an array, with a row for each sample."""
        return not isinstance(self.init, str | Clusters)

    @property
    def starts_from_sample(self) -> bool:
        """Whether a sample of many rows is clustered first."""
        return isinstance(self.init, Clusters) or self.init in ("auto", "hardened")

    @property
    def limits(self) -> dict[str, Any]:
        """When sweeps end, and what they log: options of `converge`."""
        return {"max_iter": self.max_iter, "tol": self.tol, "verbose": self.verbose}

    @property
    def for_sample(self) -> Parameters:
        """Those for a sample from which all rows start."""
        init = "hardened" if self.init == "auto" else self.init
        return replace(self, init=init, tol=max(self.tol, SAMPLE_TOL))

    def update(self, rows: Rows) -> tuple[Update, float]:
        """Return the update with the m to use, and the critical m of these rows."""
        critical_m = critical_m_from_growth(rows.growth(), self.aggregate)
        return Update(choose_m(self.m, critical_m), self.aggregate, self.balance), critical_m


@dataclass(frozen=True)
class Solution:
    """The best run of the solver."""

    parameters: Parameters
    clusters: Clusters
    P: Array  # (N, K), in the order of the rows, dense or CSR; None where it is not kept
    history: list[float]  # the objective after each sweep, in the units of the rows
    converged: bool
    departure: float  # 0 for uniform P, 1 for hard assignments
    sizes: np.ndarray  # samples per cluster, or masses where P is not kept

    @property
    def labels(self) -> np.ndarray:
        """The most probable cluster of each row, where P is kept."""
        return labels_of_rows(to_numpy(self.P))


def choose_m(m: float | str, critical_m: float) -> float:
    """Return m; for "auto" the paper's 1.03, or half-way to the critical m where that is less."""
    return min(1.03, half_way(critical_m)) if m == "auto" else float(m)


def half_way(critical_m: float) -> float:
    """Return the m half-way from 1 to the critical m, above 1 where all rows are equal."""
    return max((1.0 + critical_m) / 2.0, 1.0 + 1e-6)


def sample_size(K: int) -> int:
    """Return how many rows of a large data set are clustered first."""
    return max(SAMPLE_ROWS, 200 * K)


def is_large(N: int, K: int) -> bool:
    """Return whether a data set is clustered from a sample of its rows."""
    return 4 * sample_size(K) <= N


def solve(
    X: Array | Chunks,
    parameters: Parameters,
    sample_weight: Array | None = None,
    known: np.ndarray | None = None,
) -> Solution:
    """Cluster rows X, or the samples whose distances X holds (`metric="precomputed"`).

    Rows in `Chunks`, and as many rows in memory, are clustered without keeping P. `known` (N,) has
    the clusters of rows that keep them, and -1 elsewhere; rows in `Chunks` have no weight then (see
    `known.without_known`).
    """
    K, metric = parameters.n_clusters, parameters.metric
    if sample_weight is not None and is_tensor(X):
        sample_weight = like(sample_weight, X)
    if not isinstance(X, Chunks) and is_large(X.shape[0], K) and metric in LINEAR_METRICS:
        if is_tensor(X) and not parameters.gives_probabilities:
            X = TensorChunks(X, without_known(sample_weight, known, X))
        elif not is_tensor(X) and parameters.starts_from_sample:
            X = FileChunks(MappedRows(X), without_known(sample_weight, known, X))
    if isinstance(X, Chunks):
        return _solve_out_of_core(X, parameters, sample_weight, known)
    generator = np.random.default_rng(draw_seed(parameters.random_state))
    order = generator.permutation(X.shape[0]) if parameters.shuffle else None
    rows = rows_of(X, metric, sample_weight, order)
    update, critical_m = parameters.update(rows)
    P, run = best_of_starts(rows, update, critical_m, parameters, generator, known)
    if run.converged:  # so that `predict` agrees with `labels_`
        P = read_out(rows, P, update)
    P = with_known(rows.restore(P), known)
    if isinstance(rows, LinearRows):
        clusters: Clusters = LinearClusters(update, critical_m, rows.coordinates, rows.sums)
    else:
        fitted = None if metric == "precomputed" else X
        clusters = PairwiseClusters(update, critical_m, metric, rows.A, fitted)
    history = [J * rows.unit for J in run.history]
    found = Solution(
        parameters, clusters, P, history, run.converged, run.departure, sizes=np.empty(0)
    )
    return replace(found, sizes=np.bincount(found.labels, minlength=K))


def rows_of(
    X: Array,
    metric: Metric,
    weights: Array | None = None,
    order: np.ndarray | None = None,
    coordinates: Coordinates | None = None,
) -> Rows:
    """Return X as the rows of a sweep: `LinearRows`, or `PairwiseRows` of all distances."""
    if metric in LINEAR_METRICS:
        kind = TensorRows if is_tensor(X) else LinearRows
        return kind(X, weights, order, coordinates or Coordinates.of(X, str(metric)))
    D = X if metric == "precomputed" else training_distances(X, metric)
    return PairwiseRows(D, weights, order)


def best_of_starts(
    rows: Rows,
    update: Update,
    critical_m: float,
    parameters: Parameters,
    generator: np.random.Generator,
    known: np.ndarray | None = None,
) -> tuple[Array, SweepResult]:
    """Sweep from each start until P converges; return the P with the lowest objective.

    The sums of `rows` are then those of this P. Where clusters are known, all rows are clustered
    first, as if none were. The clusters are matched with the known ones, which are then fixed.
    """
    limits, block_size = parameters.limits, parameters.block_size
    best: tuple[Array, SweepResult] | None = None
    weights = rows.sample_weight
    if known is not None and rows.order is not None:
        known = known[to_numpy(rows.order)]
    for _ in range(parameters.n_init if isinstance(parameters.init, str) else 1):
        rows.fixed, rows.sample_weight = 0.0, weights
        P = start(rows, update, critical_m, parameters, generator)
        if known is not None:
            if isinstance(parameters.init, str):
                sweeps = BlockSweeps(rows, P, update, block_size)
                loose = limits | {"tol": max(parameters.tol, SAMPLE_TOL)}
                converge(sweeps, critical_m=critical_m, name="unknown", **loose)
                P = sweeps.P
                P = reorder_clusters(P, match_clusters(P, known))
            fix_rows(rows, known, parameters.n_clusters)
        sweeps = BlockSweeps(rows, P, update, block_size)
        run = converge(sweeps, critical_m=critical_m, **limits)
        if best is None or run.history[-1] < best[1].history[-1]:
            best = sweeps.P, run
    assert best is not None
    if run is not best[1]:
        rows.start(update.weigh(best[0].T, rows.sample_weight))
    return best


def start(
    rows: Rows,
    update: Update,
    critical_m: float,
    parameters: Parameters,
    generator: np.random.Generator,
) -> Array:
    """Return P to start from: given, from clusters of clusters, or near-uniform and swept."""
    N, K, init = rows.X.shape[0], parameters.n_clusters, parameters.init
    if isinstance(init, Clusters):
        return rows.arrange(init.probabilities(rows.X))
    if parameters.gives_probabilities:
        return rows.arrange(given_start(init, rows.X, K))
    is_auto = init in ("auto", "hardened") and parameters.block_size == "auto"
    has_levels = FAN_OUT < K <= N // 8
    if is_auto and has_levels and may_be_sparse(rows, K, Blocks.of("auto", rows, K, update.m)):
        return _start_in_levels(rows, update, parameters, generator)
    P = rows.arrange(near_uniform(rows.X, K, generator))
    first = _first_m(init, update.m, critical_m)
    if first != update.m:
        sweeps = BlockSweeps(rows, P, replace(update, m=first), parameters.block_size)
        name = "annealing" if first > update.m else "sample"
        converge(sweeps, name=name, critical_m=critical_m, **parameters.limits)
        P = sweeps.P
    return P


def _start_in_levels(
    rows: Rows, update: Update, parameters: Parameters, generator: np.random.Generator
) -> sp.csr_array:
    """Return P as clusters of clusters of a sample assign all rows; none of it is dense."""
    assert isinstance(rows, LinearRows)
    sample = rows.sample(ROWS_PER_CLUSTER * parameters.n_clusters, generator)
    at = replace(parameters, m="auto", init="hardened", tol=LEVEL_TOL, n_init=1, verbose=0)
    labels = _clusters_of_clusters(sample, at, generator)
    for empty in np.setdiff1d(np.arange(parameters.n_clusters), labels):
        labels[np.flatnonzero(labels == np.bincount(labels).argmax())[::2]] = empty
    K, ones = parameters.n_clusters, np.ones(len(labels), rows.X.dtype)
    P = sp.csr_array((ones, labels, np.arange(len(labels) + 1)), shape=(len(labels), K))
    sample.start(P.T if sample.sample_weight is None else P.T * sample.sample_weight)
    w, of_sample = rows.sample_weight, sample.mass.sum()
    rows.sums = sample.sums * ((rows.X.shape[0] if w is None else float(w.sum())) / of_sample)
    update = replace(update, m=_first_m("hardened", update.m, np.inf))
    empty = sp.csr_array((rows.X.shape[0], K), dtype=rows.X.dtype)
    # All rows at once overreact to the masses of a sample: the lightest cluster would take them.
    sweeps = BlockSweeps(rows, read_out(rows, empty, replace(update, balance=0.0)), update)
    converge(sweeps, name="sample", **parameters.limits | {"tol": max(parameters.tol, SAMPLE_TOL)})
    return sweeps.P


def _clusters_of_clusters(
    sample: LinearRows, parameters: Parameters, generator: np.random.Generator
) -> np.ndarray:
    """Return labels: PAC finds about sqrt(K) groups, then PAC or k-means++ clusters in each.

    A group of objective J gets a share of the clusters that minimises the sum of objectives if
    k of them divide J by k^(1 + balance), as where the spread within clusters is that of the group.
    """
    X, weights, K = sample.X, sample.sample_weight, parameters.n_clusters
    n_groups, seed = round(K**0.5), int(generator.integers(2**31))
    found = solve(X, replace(parameters, n_clusters=n_groups, random_state=seed), weights)
    labels = found.clusters.labels(X) if found.P is None else found.labels
    clusters = found.clusters
    assert isinstance(clusters, LinearClusters)
    J = cluster_objectives(clusters.sums) * mass_factor(clusters.mass, parameters.balance)
    needs = J ** (1.0 / (1.0 + parameters.balance))
    shares = _shares(needs, np.bincount(labels, minlength=n_groups), K)
    first = np.cumsum(shares) - shares
    result = first[labels]
    for group in np.flatnonzero(shares > 1).tolist():
        inside, k = np.flatnonzero(labels == group), int(shares[group])
        w, seed = None if weights is None else weights[inside], int(generator.integers(2**31))
        if k <= FAN_OUT:
            at = replace(parameters, n_clusters=k, random_state=seed)
            result[inside] += solve(X[inside], at, w).labels
            continue
        Z = sample.lifted(inside)[:, :-2]
        means = kmeans_plusplus(Z, k, sample_weight=w, random_state=seed)[0]
        result[inside] += pairwise_distances_argmin(Z, means)
    return result


def _shares(needs: np.ndarray, sizes: np.ndarray, K: int) -> np.ndarray:
    """Return how many of K clusters each group gets, one at least and at most one per row."""
    shares = np.ones(len(needs), np.int64)
    for _ in range(K - len(needs)):
        shares[np.where(shares < sizes, needs / shares, -1.0).argmax()] += 1
    return shares


def _first_m(init: str, m: float, critical_m: float) -> float:
    """Return the m of the sweeps that precede those at m."""
    if init == "annealed":  # there are fewer optima
        return max(m, 1.0 + min(2.0 * (m - 1.0), 0.9 * (critical_m - 1.0)))
    if init == "hardened":  # clusters form in half the sweeps
        return 1.0 + (m - 1.0) / 3.0
    return m


def _solve_out_of_core(
    data: Chunks,
    parameters: Parameters,
    sample_weight: Array | None = None,
    known: np.ndarray | None = None,
) -> Solution:
    """Cluster a sample in memory, then all rows chunk by chunk."""
    if parameters.gives_probabilities:
        raise InputError(
            "init is an array, but data of this size is clustered without keeping the "
            "probabilities of all rows. Leave init out."
        )
    N, K, metric = data.shape[0], parameters.n_clusters, str(parameters.metric)
    size = sample_size(K)
    if size >= N:  # the sample would be all rows
        every = np.arange(N)
        rows = data.sample(every).X
        weights = weights_of(sample_weight, every, rows)
        return replace(solve(rows, parameters, weights, known), P=None)
    checkpoint = FitCheckpoint(parameters.checkpoint, draw_seed(parameters.random_state))
    generator = np.random.default_rng(checkpoint.seed)
    chosen = np.sort(generator.choice(N, size, replace=False, shuffle=False))
    if known is not None:
        of_known = np.flatnonzero(known != UNKNOWN)
        chosen = np.union1d(chosen, generator.permutation(of_known)[:size])
    sample, size = data.sample(chosen), len(chosen)
    if known is not None:
        sample = replace(sample, weights=weights_of(sample_weight, chosen, sample.X))
    if checkpoint.path is not None:
        checkpoint.match(_identity(data, sample, parameters, known))
    coordinates = Coordinates.of(sample.X, metric, sample.bounds)
    order = generator.permutation(size)
    rows = rows_of(sample.X, metric, sample.weights, order, coordinates)
    assert isinstance(rows, LinearRows)
    update, critical_m = parameters.update(rows)

    kept: list[Array] = []
    fixed: Array = 0.0
    if known is not None:
        fixed = fixed_sums(data, sample_weight, known, K, coordinates)
    if checkpoint.kept is None:
        some = None if known is None else known[chosen]
        with rough_products(sample.X):
            best_of_starts(rows, update, critical_m, parameters.for_sample, generator, some)
        w = rows.sample_weight
        weight = size if w is None else max(float(w.sum()), 1e-300)
        sums = fixed + (rows.sums - rows.fixed) * (sample.total_weight / weight)
    else:
        kept = list(like(checkpoint.kept, sample.X))
        sums = like(checkpoint.kept, sample.X).sum(0) + fixed
    clusters = LinearClusters(update, critical_m, coordinates, sums)
    tracked = sample.X[order[:TRACKED_ROWS]]
    sweeps = ChunkSweeps(
        data, tracked, clusters, parameters.block_size, kept, checkpoint.block, fixed
    )
    run = converge(
        sweeps,
        critical_m=critical_m,
        name="out of core",
        history=checkpoint.history,
        after_sweep=lambda history: checkpoint.write(sweeps.kept, sweeps.block, history),
        **parameters.limits,
    )
    checkpoint.delete()
    return Solution(
        parameters=parameters,
        clusters=sweeps.clusters,
        P=None,
        history=[J * sweeps.unit for J in run.history],
        converged=run.converged,
        departure=run.departure,
        sizes=to_numpy(sweeps.clusters.mass / (sweeps.clusters.mass.sum() / N)),
    )


def _identity(
    data: Chunks, sample: RowSample, parameters: Parameters, known: np.ndarray | None
) -> dict[str, Any]:
    """Return what a checkpoint must have been made with to be resumed."""
    names = ("n_clusters", "m", "metric", "balance", "aggregate", "block_size", "init", "n_init")
    settings = {name: str(getattr(parameters, name)) for name in names}
    rows = sample.X.data if sp.issparse(sample.X) else sample.X
    arrays = [array for array in (rows, sample.weights, known) if array is not None]
    digest = fingerprint([to_numpy(array).tobytes() for array in arrays])
    layout = fingerprint([str(data.layout)])
    return settings | {"shape": list(data.shape), "data": digest, "chunks": layout}
