"""Robust continuous clustering (Shah and Koltun, PNAS 2017), which finds the number of clusters.

Each row x_p has a representative u_p, which is pulled to those of the neighbours of x_p:

    min_U,l  1/2 sum_p |x_p - u_p|^2
             + lambda/2 sum_pq w_pq (l_pq |u_p - u_q|^2 + mu (sqrt(l_pq) - 1)^2)

The second term is the Geman-McClure penalty of |u_p - u_q|: an edge between clusters gets a small
l_pq and no longer pulls. Representatives that end close to each other are one cluster. Where the
paper leaves a choice, it is that of the authors' MATLAB code: columns scaled to [0, 1], neighbours
by cosine, edges of near duplicates left out of the thresholds, at most 100 iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.sparse.linalg import LinearOperator, cg, eigsh, svds
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import minmax_scale

NEIGHBOURS = 10
ITERATIONS = 100
PER_LEVEL = 4  # iterations before mu is halved
SHORTEST, AT_MOST = 0.01, 250  # edges of which the mean length is a threshold
NEAR_DUPLICATE = 0.01  # times sqrt(D): shorter edges do not count there
SAME = 0.1  # change of the objective at which a level has converged
RESIDUAL = 1e-3  # of conjugate gradients, relative


def robust_continuous_clustering(X: np.ndarray) -> np.ndarray:
    """Return the cluster of each row, with columns scaled to [0, 1] as the authors do."""
    return cluster(minmax_scale(np.asarray(X, np.float32)))


def cluster(X: np.ndarray) -> np.ndarray:
    """Return the cluster of each row, with columns as they are."""
    problem = Problem.of(X)
    smallest_mu, threshold, longest = problem.lengths()
    return problem.components(problem.minimize(3 * longest**2, smallest_mu), threshold)


@dataclass(frozen=True)
class Problem:
    """Rows and the weighted edges between them."""

    X: np.ndarray
    p: np.ndarray  # the rows that an edge joins
    q: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray) -> Problem:
        """Join rows that are near; edges of rows with many neighbours weigh less (Eq. S1)."""
        p, q = edges(X)
        degree = np.bincount(np.concatenate([p, q]), minlength=len(X))
        return cls(X, p, q, degree.mean() / np.sqrt(degree[p] * degree[q]))

    def distances(self, U: np.ndarray) -> np.ndarray:
        """Return |u_p - u_q|^2 for each edge."""
        parts = np.array_split(np.arange(len(self.p)), 1 + len(self.p) * U.shape[1] // 10**7)
        found = [((U[self.p[part]] - U[self.q[part]]) ** 2).sum(1) for part in parts]
        return np.concatenate(found).astype(float)

    def lengths(self) -> tuple[float, float, float]:
        """Return the mean lengths of 250 short edges and of all short edges, and the longest."""
        lengths = np.sort(np.sqrt(self.distances(self.X)))
        distinct = lengths[lengths >= NEAR_DUPLICATE * np.sqrt(self.X.shape[1])]
        lengths = distinct if len(distinct) else lengths
        short = int(np.ceil(SHORTEST * len(self.p)))
        return lengths[: min(short, AT_MOST)].mean(), lengths[:short].mean(), lengths[-1]

    def keep(self, U: np.ndarray, mu: float) -> np.ndarray:
        """Return the l of each edge that minimizes the objective."""
        return (mu / (mu + self.distances(U))) ** 2

    def laplacian(self, kept: np.ndarray) -> sparse.csr_matrix:
        """Return the matrix A of |u_p - u_q|^2 summed over weighted edges: trace(U' A U)."""
        N = len(self.X)
        half = sparse.coo_matrix((self.weights * kept, (self.p, self.q)), (N, N))
        both = (half + half.T).tocsr()
        return (sparse.diags(np.asarray(both.sum(1)).ravel()) - both).tocsr()

    def represent(self, U: np.ndarray, A: sparse.csr_matrix, balance: float) -> np.ndarray:
        """Return the U that minimizes the objective, (I + lambda A) U = X, found from a start."""
        M = (sparse.eye(len(U)) + balance * A).tocsr().astype(U.dtype)
        size = U.size
        product = LinearOperator(
            (size, size), lambda u: (M @ u.reshape(U.shape)).ravel(), dtype=U.dtype
        )
        found, _ = cg(product, self.X.ravel(), U.ravel(), rtol=RESIDUAL, maxiter=100)
        return found.reshape(U.shape)

    def objective(self, U: np.ndarray, kept: np.ndarray, mu: float, balance: float) -> float:
        """Return the objective."""
        pull = kept * self.distances(U) + mu * (np.sqrt(kept) - 1) ** 2
        return 0.5 * float(((self.X - U) ** 2).sum(dtype=float) + balance * self.weights @ pull)

    def minimize(self, mu: float, smallest_mu: float) -> np.ndarray:
        """Return the representatives, by alternating minimization while mu falls."""
        U, before, count = self.X, 0.0, 0
        size = float(svds(self.X, 1, return_singular_vectors=False, rng=0)[0])
        balance = size / largest(self.laplacian(np.ones(len(self.p))))
        for _ in range(ITERATIONS):
            kept = self.keep(U, mu)
            now = self.objective(U, kept, mu, balance)
            A = self.laplacian(kept)
            U = self.represent(U, A, balance)
            count += 1
            converged, before = abs(before - now) < SAME, now
            if converged or count == PER_LEVEL:
                if mu < smallest_mu and converged:
                    break
                mu = mu / 2 if mu >= smallest_mu else smallest_mu / 2
                balance, count = size / largest(A), 0
        return U

    def components(self, U: np.ndarray, threshold: float) -> np.ndarray:
        """Return the connected components of the edges that are short between representatives."""
        short = np.sqrt(self.distances(U)) < threshold
        N = len(U)
        graph = sparse.coo_matrix((short[short], (self.p[short], self.q[short])), (N, N))
        return connected_components(graph, directed=False)[1]


def edges(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges between mutual nearest neighbours, and a tree that spans what it can."""
    count = min(NEIGHBOURS, len(X) - 1)
    search = NearestNeighbors(n_neighbors=count, metric="cosine", algorithm="brute").fit(X)
    near = search.kneighbors_graph(mode="distance")
    near.data += 1.0  # zeros would not be edges; a constant leaves the shortest tree as it is
    tree = minimum_spanning_tree(near)
    joined = near.minimum(near.T).maximum(tree).maximum(tree.T)
    return sparse.triu(joined, 1).nonzero()


def largest(A: sparse.csr_matrix) -> float:
    """Return the largest eigenvalue."""
    start = np.random.default_rng(0).standard_normal(A.shape[0])
    return float(eigsh(A, 1, v0=start, tol=1e-4, return_eigenvectors=False)[0])
