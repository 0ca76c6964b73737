"""Measures of a number of clusters, from two halves of the data that are clustered separately.

Each half is clustered with every candidate K. Clusters of one half are then evaluated on the rows
of the other, which they were not fitted to: are they found there too (`recovery`), and is there a
gap between them (`separation`)? A partition fitted to noise looks good on its own rows only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix

from probagg.aggregation import mass_factor
from probagg.pac.frame import linear_scores
from probagg.pac.pairwise import PairwiseRows
from probagg.pac.rows import LinearRows
from probagg.pac.sweeps import Blocks, Update, near_uniform, run_sweeps

FIRST_SWEEPS = 30  # at most, from the uniform start
LATER_SWEEPS = 5  # at most, after clusters were joined; clear clusters converge in two or three
ROUNDING = 1e-4  # of a third, for rows on the median, as duplicates are


@dataclass(frozen=True)
class Measures:
    """Measures of one candidate in one run, each a mean over the two halves."""

    n_clusters: int
    separation: float
    recovery: float
    value: float  # sum over clusters of separation times recovery
    stability: float  # ARI of the two halves' partitions of all rows
    objective: float  # Eq. 1 over the number of pairs
    seconds: float


class Half:
    """Half of the rows, clustered with fewer and fewer clusters."""

    def __init__(self, full: Any, index: np.ndarray, update: Update) -> None:
        self.full, self.index, self.update = full, index, update
        if isinstance(full, LinearRows):
            self.rows: Any = LinearRows(full.X[index], None, None, full.frame)
        else:
            self.rows = PairwiseRows(full.X[np.ix_(index, index)], None, None)
        self.P = np.empty((len(index), 0), full.X.dtype)

    def start(self, K: int, generator: np.random.Generator) -> None:
        """Cluster the rows from a near-uniform start."""
        self.P = near_uniform(self.rows.X, K, generator)
        self._sweep(FIRST_SWEEPS)

    def reduce(self, K: int) -> None:
        """Join clusters until K are left, and sweep again."""
        sums = self.rows.scores(slice(0, len(self.index))) @ self.P
        self.P = join(self.P, sums, K)
        self._sweep(LATER_SWEEPS)

    def _sweep(self, max_iter: int) -> None:
        rows, update = self.rows, self.update
        self.P = np.asfortranarray(self.P)
        blocks = Blocks.of("auto", rows, self.P.shape[1], update.m)
        run = run_sweeps(rows, self.P, update, blocks, max_iter=max_iter, tol=1e-3)
        self.objective = run.history[-1] * rows.unit / len(self.index) ** 2

    def score_all_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean distances of the rows of both halves to the clusters, and their labels."""
        if isinstance(self.full, LinearRows):
            everything = slice(0, self.full.X.shape[0])
            S = linear_scores(self.full.lifted(everything), self.rows.sums).T
        else:
            S = self.full.X[:, self.index] @ self.rows.A
        mass = np.asarray(self.rows.mass, np.float64)
        labels = (S * mass_factor(mass, self.update.balance)).argmin(1)  # Eq. 8's largest p_ik
        return S * mass_factor(mass, 0.0), labels


def join(P: np.ndarray, sums: np.ndarray, K: int) -> np.ndarray:
    """Return P with K columns: the two closest clusters by Ward's criterion are joined repeatedly.

    `sums` are sum_ij p_ik p_jl d_ij. Joining k and l raises the scatter within clusters by
    n_k n_l / (n_k + n_l) times (their mean distance - half of those within each), here doubled.
    """
    sums, members = sums.astype(np.float64), np.eye(P.shape[1], dtype=P.dtype)
    mass = P.sum(0, dtype=np.float64)
    while len(mass) > K:
        inverse = mass_factor(mass, 0.0)
        within = np.diagonal(sums) * inverse**2
        rise = 2.0 * sums * np.outer(inverse, inverse) - within[:, None] - within
        rise /= inverse[:, None] + inverse
        rise[np.tril_indices(len(rise))] = np.inf
        kept, gone = np.unravel_index(rise.argmin(), rise.shape)
        for array in (members.T, mass, sums, sums.T):
            array[kept] += array[gone]
        members, mass = np.delete(members, gone, 1), np.delete(mass, gone)
        sums = np.delete(np.delete(sums, gone, 0), gone, 1)
    return P @ members


def separation(distances: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return (K,) how empty the gap is between each cluster and the one it is least separated from.

    For two clusters, the mean distance of a row to one minus that to the other is its place on an
    axis (for squared distances the line through the means). Between the medians of the clusters,
    rows in the middle third are compared with those in the emptier outer third:
    (outer - middle) / (outer + middle + 1) is near 1 for a gap, 0 for an even spread, and negative
    where rows are densest between the two, as when one cluster was cut in two.
    """
    K = distances.shape[1]
    lead = distances - np.take_along_axis(distances, labels[:, None], 1)  # >= 0 but for the mass
    median = np.zeros((K, K))
    near, middle, far = np.zeros((3, K, K))
    members = [lead[labels == k] for k in range(K)]
    filled = [k for k in range(K) if len(members[k])]
    for k in filled:
        median[k] = np.median(members[k], axis=0)
    length = median + median.T
    for k in filled:
        third = 3.0 * (members[k] + median[:, k]) / np.where(length[k] > 0.0, length[k], np.inf)
        near[k] = ((third >= 2.0) & (third <= 3.0 + ROUNDING)).sum(0)
        middle[k] = ((third > 1.0) & (third < 2.0)).sum(0)
        far[k] = ((third >= -ROUNDING) & (third <= 1.0)).sum(0)
    outer, inner = near + far.T, middle + middle.T
    outer = np.minimum(outer, outer.T)
    gaps = np.where(length > 0.0, (outer - inner) / (outer + inner + 1.0), -1.0)
    np.fill_diagonal(gaps, np.inf)
    result = np.zeros(K)  # 0 for a cluster without rows
    if len(filled) > 1:
        result[filled] = gaps[np.ix_(filled, filled)].min(1)
    return result


def recoveries(ours: np.ndarray, theirs: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (K,) Jaccard indices of clusters with the most similar one of the other partition."""
    every = np.arange(K)  # added so that empty clusters have a row and a column
    both = contingency_matrix(np.append(ours, every), np.append(theirs, every)) - np.eye(K)
    jaccard = both / np.maximum(both.sum(1)[:, None] + both.sum(0) - both, 1.0)
    return jaccard.max(1), jaccard.max(0)


def measure(
    full: Any, update: Update, candidates: list[int], generator: np.random.Generator
) -> Iterator[Measures]:
    """Yield the measures of every candidate, the largest first, on one random pair of halves.

    Both halves start with a quarter more clusters than the largest candidate, and clusters are
    joined from there. That is fast, since each step converges in a few sweeps, and it avoids the
    common poor solutions, in which one cluster covers two groups while another group has two.
    """
    N = full.X.shape[0]
    order = generator.permutation(N)
    indices = order[: N // 2], order[N // 2 :]
    halves = [Half(full, index, update) for index in indices]
    largest = max(candidates)
    for half in halves:
        half.start(min(largest + max(3, largest // 4), N // 4), generator)
    for K in sorted(candidates, reverse=True):
        began = time.perf_counter()
        for half in halves:
            half.reduce(K)
        (first, ours), (second, theirs) = (half.score_all_rows() for half in halves)
        apart = (
            separation(first[indices[1]], ours[indices[1]]),
            separation(second[indices[0]], theirs[indices[0]]),
        )
        back = recoveries(ours, theirs, K)
        yield Measures(
            n_clusters=K,
            separation=float(np.mean(apart)),
            recovery=float(np.mean(back)),
            value=float(np.multiply(apart, back).sum() / 2.0),
            stability=float(adjusted_rand_score(ours, theirs)),
            objective=(halves[0].objective + halves[1].objective) / 2.0,
            seconds=time.perf_counter() - began,
        )
