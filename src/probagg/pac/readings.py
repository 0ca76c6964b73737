"""Readings of numbers of clusters: PAC with fewer and fewer clusters, on data and on a null.

A reading says how well the clusters are separated (silhouette) and how often nearest neighbours
share a cluster (agreement). Both are compared with those of a null, a single Gaussian with the same
variances on the principal axes: the gain over it is due to groups.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from probagg.aggregation import mass_factor
from probagg.pac.balance import NEIGHBOURS
from probagg.pac.balance import Reading as Agreement
from probagg.pac.frame import Frame
from probagg.pac.rows import LinearRows
from probagg.pac.sweeps import Blocks, Update, near_uniform, run_sweeps

DIMENSIONS = 64  # that the distances of wide data are computed in
PART = 0.8  # of the rows, in each run
FIRST_SWEEPS = 30  # at most, from the uniform start
LATER_SWEEPS = 3  # at most, after clusters were joined
TOLERANCE = 1e-2  # mean change of P at which sweeps end


@dataclass(frozen=True)
class Reading:
    """What one clustering looks like without labels."""

    n_clusters: int
    silhouette: float
    agreement: float  # kappa of the labels of nearest neighbours
    objective: float  # Eq. 1 over the number of pairs
    seconds: float


class Path:
    """Rows clustered with fewer and fewer clusters; the labels of every number are kept.

    The first number starts with a quarter more clusters. For each smaller one, clusters are joined
    and PAC sweeps again. That is fast, since a few sweeps suffice, and it avoids the common poor
    solutions, in which one cluster covers two groups while another group has two.
    """

    def __init__(self, X: np.ndarray, update: Update, generator: np.random.Generator) -> None:
        self.rows = LinearRows(X, None, None, Frame.of(X, "sqeuclidean"))
        self.update, self.generator = update, generator
        search = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(X) - 1), algorithm="brute")
        self.near = search.fit(X).kneighbors(return_distance=False)
        self.labels: dict[int, np.ndarray] = {}

    def read(self, K: int) -> Reading:
        """Cluster into K, from the next larger number that is known, and return the reading."""
        began, everything = time.perf_counter(), slice(0, len(self.near))
        larger = min((number for number in self.labels if number > K), default=None)
        if larger is None:
            P = near_uniform(
                self.rows.X, min(K + max(3, K // 4), len(self.near) // 2), self.generator
            )
            P, _ = self._sweep(P, FIRST_SWEEPS)
        else:
            P = self._start_from(self.labels[larger], larger)
        P = join(P, self.rows.scores(everything) @ P, K)
        P, objective = self._sweep(P, LATER_SWEEPS)
        labels = self.labels[K] = P.argmax(1)
        self._start_from(labels, K)
        filled = len(np.unique(labels)) / K  # fewer distinct rows than clusters leave some empty
        return Reading(
            n_clusters=K,
            silhouette=filled * silhouette(self.rows.scores(everything).T, labels),
            agreement=filled * Agreement.of(labels, self.near, K).kappa,
            objective=objective,
            seconds=time.perf_counter() - began,
        )

    def _start_from(self, labels: np.ndarray, K: int) -> np.ndarray:
        """Set the sums to those of hard assignments, and return these."""
        P = np.eye(K, dtype=self.rows.X.dtype)[labels]
        self.rows.start(P.T)
        return P

    def _sweep(self, P: np.ndarray, max_iter: int) -> tuple[np.ndarray, float]:
        """Return P after at most `max_iter` sweeps, and its objective per pair of rows."""
        P, rows, m = np.asfortranarray(P), self.rows, self.update.m
        blocks = Blocks.of("auto", rows, P.shape[1], m)
        run = run_sweeps(rows, P, self.update, blocks, max_iter=max_iter, tol=TOLERANCE)
        return P, run.history[-1] * rows.unit / len(P) ** 2


class Run:
    """Readings on a random part of the rows, and on its null."""

    def __init__(self, X: np.ndarray, update: Update, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.index = np.sort(generator.choice(len(X), int(PART * len(X)), replace=False))
        rows = X[self.index]
        self.data = Path(rows, update, generator)
        null = rows.std(0) * generator.standard_normal(rows.shape, np.float32)
        self.null = Path(null, update, generator)
        self.readings: dict[int, tuple[Reading, Reading]] = {}

    def read(self, K: int) -> None:
        """Read the data and the null at K, if that is not done; start with the largest K."""
        if K not in self.readings:
            self.readings[K] = self.data.read(K), self.null.read(K)

    def common_labels(self, other: Run, K: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels of the rows that are in both runs, from each."""
        _, ours, theirs = np.intersect1d(self.index, other.index, return_indices=True)
        return self.data.labels[K][ours], other.data.labels[K][theirs]


def coordinates(full: Any) -> np.ndarray:
    """Return rows in at most 64 dimensions, on principal axes, with about the same distances.

    Rows given by their distances are embedded by classical multidimensional scaling.
    """
    N = full.X.shape[0]
    if not isinstance(full, LinearRows):
        centred = full.X - full.X.mean(0) - full.X.mean(1)[:, None] + full.X.mean()
        values, vectors = eigsh(-0.5 * centred, k=min(DIMENSIONS, N - 1), which="LA", v0=np.ones(N))
        found = vectors * np.sqrt(values.clip(0.0))
    else:
        X = full.lifted(slice(0, N))[:, :-2]
        D = X.shape[1]
        size = min(DIMENSIONS, D, N - 1)
        wide = size < D or sp.issparse(X)
        solver = "arpack" if wide and size < min(N, D) else "covariance_eigh"
        found = PCA(size, svd_solver=solver, random_state=0).fit_transform(X)
    return np.ascontiguousarray(found, np.float32)


def silhouette(sums: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean silhouette coefficient, from sums of distances to the clusters (N, K).

    The distances are PAC's, squared Euclidean ones, so that the sums come from moments.
    """
    rows, sizes = np.arange(len(labels)), np.bincount(labels, minlength=sums.shape[1])
    if (sizes > 0).sum() < 2:
        return 0.0
    own = sums[rows, labels].clip(0.0) / np.maximum(sizes[labels] - 1, 1)
    means = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.inf)
    means[rows, labels] = np.inf
    other = means.min(1)
    values = (other - own) / np.maximum(np.maximum(own, other), np.finfo(np.float32).tiny)
    return float(np.where(sizes[labels] > 1, values, 0.0).mean())


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
