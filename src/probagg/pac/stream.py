"""PAC on a stream of rows, each seen once: what `PAC.partial_fit` keeps between calls.

Moments add up, so new rows are assigned to the clusters and added to them. But the rows before were
assigned when less was known, and where many rows of one kind arrive, as in a stream sorted by
class, their cluster grows so heavy that Eq. 8 empties it. So sweeps over a random sample of the
stream correct the clusters: from the present ones as soon as masses have moved, and from a new
start when half of the weight is new. Without forgetting both happen O(log N) times in N rows.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from probagg.aggregation import Array
from probagg.arrays import UNKNOWN, chunks
from probagg.errors import InputError
from probagg.known import with_known
from probagg.pac.advice import problems
from probagg.pac.clusters import Clusters, LinearClusters
from probagg.pac.coordinates import Coordinates
from probagg.pac.fixed_rows import fix_rows
from probagg.pac.rows import LinearRows
from probagg.pac.solver import Parameters, Solution, solve
from probagg.pac.sweeps import LARGEST_BLOCK, BlockSweeps, converge
from probagg.progress import log_progress

# The sample has so many rows, or 100 per cluster where that is more.
SAMPLE_ROWS = 5_000
# Clusters are refined on it once this share of the mass has moved between them, by so many sweeps:
# what they leave, the next ones correct.
MOVED = 0.02
SWEEPS = 5
# It is clustered from a new start once this share of the weight is new. The result replaces the
# clusters where its objective is lower by this share.
NEW = 0.5
GAIN = 0.01
# It corrects a fit before the stream once it represents this share of the weight.
COVERED = 0.8
# The scale of the coordinates grows for lifted rows with a larger squared norm.
WIDEST = 2.0**40


class Stream:
    """The clusters of the rows seen so far, in memory that does not grow with their number."""

    def __init__(self, n_clusters: int, generator: np.random.Generator) -> None:
        self.clusters: LinearClusters | None = None
        self.sample = Reservoir(max(SAMPLE_ROWS, 100 * n_clusters))
        self.n_chunks = 0
        self._generator = generator
        # How much more a new row weighs than one of the first chunk.
        self._log_growth = 0.0
        # Weights after decay: of all rows, of those of a fit before, of all at the last new start.
        self._weight = self._fitted = self._started = 0.0
        # The masses of the clusters when they were last corrected.
        self._masses = np.zeros(0)

    def start_from(self, clusters: LinearClusters) -> None:
        """Continue with the clusters of a fit; their mass counts as rows seen."""
        self.clusters = clusters.like(np.empty(0))  # those of tensors as arrays
        self._masses = self.clusters.mass.copy()
        self._weight = self._fitted = self._started = float(self._masses.sum())

    def add(
        self,
        X: Array,
        weights: np.ndarray | None,
        parameters: Parameters,
        forgetting: float,
        known: np.ndarray | None = None,
    ) -> list[str]:
        """Add a chunk of rows after decay of all before; return problems, each with advice.

        Rows whose cluster is known keep it, and in the sample they do so until they are replaced.
        """
        self._decay(forgetting)
        X = self.sample.like(X)
        weights = np.ones(X.shape[0]) if weights is None else weights.astype(np.float64)
        known = np.full(X.shape[0], UNKNOWN) if known is None else known
        order = np.flatnonzero(weights)
        order = self._generator.permutation(order) if parameters.shuffle else order
        found: list[str] = []
        for some in chunks(len(order), self.sample.size):
            rows, w, labels = X[order[some]], weights[order[some]], known[order[some]]
            if self.clusters is not None:
                self.clusters = add_rows(self.clusters, rows, w, self._weight, parameters, labels)
            self._weight += w.sum()
            self.sample.offer(rows, np.log(w) + self._log_growth, self._generator, labels)
            found += self._correct(parameters)
        return found

    def _decay(self, factor: float) -> None:
        self.n_chunks += 1
        self._log_growth -= np.log(factor)
        self._weight *= factor
        self._fitted *= factor
        self._started *= factor
        self._masses = self._masses * factor
        if self.clusters is not None:
            self.clusters = replace(self.clusters, sums=self.clusters.sums * factor)

    def _correct(self, parameters: Parameters) -> list[str]:
        """Cluster the sample if enough has changed; return problems, each with advice."""
        K, max_iter = parameters.n_clusters, parameters.max_iter
        sampled = self._weight - self._fitted
        if self.sample.n_rows < K or sampled < COVERED * self._weight:
            return []
        new = self._weight - self._started >= NEW * self._weight
        if not (new or self._moved() >= MOVED * self._weight):
            return []
        X, w = self.sample.X, self.sample.weights(self._log_growth)
        weights, found, clusters = w.astype(X.dtype), list[str](), self.clusters
        if clusters is not None:
            sweeps = max_iter if new else min(max_iter, SWEEPS)
            clusters = self._refine(clusters, X, weights, parameters, sweeps)
        if new:
            seed = int(self._generator.integers(2**31))
            solution = solve(X, replace(parameters, random_state=seed), weights, self.sample.known)
            found = problems(solution) if len(w) >= 10 * K else []
            clusters = self._better(clusters, solution, X, weights)
            self._started = self._weight
        assert clusters is not None
        self.clusters = replace(clusters, sums=clusters.sums * (self._weight / w.sum()))
        self._masses = self.clusters.mass.copy()
        return found

    def _moved(self) -> float:
        """Return the mass that new rows have moved between clusters, as against growing all."""
        assert self.clusters is not None  # before the first ones, all weight is new
        mass = self.clusters.mass
        return float(np.abs(mass - self._masses * (mass.sum() / self._masses.sum())).sum() / 2.0)

    def _refine(
        self,
        clusters: LinearClusters,
        X: Array,
        w: np.ndarray,
        parameters: Parameters,
        sweeps: int,
    ) -> LinearClusters:
        """Return clusters after some sweeps over the sample."""
        order = self._generator.permutation(len(w)) if parameters.shuffle else None
        rows = LinearRows(X, w, order, Coordinates.of(X, str(parameters.metric)))
        clusters, lifted = lift_rows(clusters, X)
        P = rows.arrange(clusters.assign(lifted).T)
        if (known := self.sample.known) is not None:
            fix_rows(rows, known if order is None else known[order], clusters.n_clusters)
        refined = BlockSweeps(rows, P, clusters.update, parameters.block_size)
        converge(refined, max_iter=sweeps, tol=parameters.tol)
        found = replace(clusters, coordinates=rows.coordinates, sums=rows.sums)
        return self._log("refined", found, parameters)

    def _better(
        self, old: LinearClusters | None, solution: Solution, X: Array, w: np.ndarray
    ) -> LinearClusters:
        """Return the clusters of a new start, or the present ones where they are about as good."""
        new = solution.clusters
        assert isinstance(new, LinearClusters)
        if old is None:
            return self._log("first", new, solution.parameters)
        if new.objective >= (1.0 - GAIN) * old.objective:
            return replace(new, coordinates=old.coordinates, sums=old.sums)
        order = match(old.assign(old.coordinates.lift(X)), solution.P.T, w, self.sample.known)
        return self._log("new", replace(new, sums=new.sums[order]), solution.parameters)

    def _log(self, kind: str, clusters: LinearClusters, parameters: Parameters) -> LinearClusters:
        message = "stream, chunk %d: %s clusters from a sample of %d rows, J %.6g"
        n, J = self.sample.n_rows, clusters.objective
        log_progress(parameters.verbose >= 1, message, self.n_chunks, kind, n, J)
        return clusters


def check_continues(clusters: Clusters, parameters: Parameters) -> LinearClusters:
    """Return the clusters, or raise an error if the parameters are for other ones."""
    metric, K = parameters.metric, parameters.n_clusters
    if not isinstance(clusters, LinearClusters) or clusters.coordinates.metric != metric:
        other = f"another metric than {metric!r}"
    elif clusters.n_clusters != K:
        other = f"n_clusters={clusters.n_clusters}, not {K}"
    else:
        return clusters
    raise InputError(
        f"The clusters were fitted with {other}, so partial_fit cannot continue them. Set the "
        "parameter back, or start again: with fit, or with partial_fit of a clone."
    )


def lift_rows(clusters: LinearClusters, X: Array) -> tuple[LinearClusters, Array]:
    """Return the lifted rows of X, and the clusters in the coordinates in which they are lifted.

    Squares of rows that are far away would overflow or drown the rest, so the scale grows.
    """
    coordinates, sums = clusters.coordinates, clusters.sums
    with np.errstate(over="ignore"):
        lifted = coordinates.lift(X)
    if lifted[:, [-2]].max() < WIDEST:
        return clusters, lifted
    size = float(abs(X).max()) + float(np.abs(coordinates.center).max())
    wide = replace(coordinates, scale=float(2.0 ** np.frexp(size)[1]))
    factor = coordinates.scale / wide.scale
    powers = np.r_[np.full(sums.shape[1] - 2, factor), factor**2, 1.0]
    return replace(clusters, coordinates=wide, sums=sums * powers), wide.lift(X)


def add_rows(
    clusters: LinearClusters,
    X: Array,
    weights: np.ndarray,
    before: float,
    parameters: Parameters,
    known: np.ndarray,
) -> LinearClusters:
    """Return clusters to which rows were assigned and added, block by block."""
    clusters, lifted = lift_rows(clusters, X)
    sums = clusters.sums.copy()
    clusters = replace(clusters, sums=sums)  # the same array: they see every block that is added
    w = weights.astype(lifted.dtype)
    for block in growing_blocks(weights, before, parameters, clusters.update.m):
        P = with_known(clusters.assign(lifted[block]).T, known[block]).T
        sums += clusters.update.weigh(P, w[block]) @ lifted[block]
    return clusters


def growing_blocks(
    weights: np.ndarray, before: float, parameters: Parameters, m: float
) -> Iterator[slice]:
    """Return blocks of rows that are small beside the weight before them.

    The limits are those of `sweeps.Blocks`, for a number of samples that grows.
    """
    total = np.cumsum(weights) + before
    share = min(1.0 / (4 * parameters.n_clusters), m - 1.0)
    start = 0
    while start < len(weights):
        if parameters.block_size == "auto":
            limit = (total[start] - weights[start]) * (1.0 + share)
            size = max(1, min(int(np.searchsorted(total, limit, "right")) - start, LARGEST_BLOCK))
        else:
            size = int(parameters.block_size)
        yield slice(start, min(start + size, len(weights)))
        start += size


def match(
    P: np.ndarray, Q: np.ndarray, weights: np.ndarray, known: np.ndarray | None = None
) -> np.ndarray:
    """Return which cluster of Q (K, rows) takes the place of each of P: the largest overlap.

    Those of known classes stay in their places.
    """
    overlap = (P * weights) @ Q.T
    if known is not None:
        classes = np.unique(known[known != UNKNOWN])
        overlap[classes, classes] += overlap.sum()
    return np.asarray(linear_sum_assignment(overlap, maximize=True)[1])


class Reservoir:
    """A weighted random sample of a stream: priority sampling (Duffield, Lund and Thorup, 2007).

    A row of weight w has priority w / u, with u uniform in (0, 1); the `size` rows of highest
    priority are kept. Each stands for the weight max(w, tau), tau the highest priority among the
    rows left out, which makes every sum over the sample unbiased. Decay of all earlier weights does
    not change their order, so it is applied as growth of later weights, in logarithms.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.n_rows = 0
        self._X: Array = None
        self._log_weight = self._log_priority = np.empty(0)
        self._labels = np.empty(0, np.int64)
        self._log_tau = -np.inf

    def offer(
        self,
        X: Array,
        log_weight: np.ndarray,
        generator: np.random.Generator,
        labels: np.ndarray | None = None,
    ) -> None:
        """Take in some of the rows X, at random, with the labels that are known."""
        labels = np.full(len(log_weight), UNKNOWN) if labels is None else labels
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
        self._labels = np.concatenate([self._labels, labels])[kept]
        self.n_rows = len(kept)
        self._place(X, kept, old)

    def _place(self, X: Array, kept: np.ndarray, old: int) -> None:
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
    def X(self) -> Array:
        return self._X[: self.n_rows]

    @property
    def known(self) -> np.ndarray | None:
        """The known labels of the rows, -1 elsewhere; None where there are none."""
        return self._labels if (self._labels != UNKNOWN).any() else None

    def like(self, X: Array) -> Array:
        """Return X sparse or dense as the rows of the sample are."""
        if self._X is None or sp.issparse(X) == sp.issparse(self._X):
            return X
        return X.toarray() if sp.issparse(X) else sp.csr_array(X)

    def weights(self, log_growth: float) -> np.ndarray:
        """Return the weight that each row stands for, after decay by exp(-log_growth)."""
        return np.exp(np.maximum(self._log_weight, self._log_tau) - log_growth)
