"""The clustering methods of Tables 2 and 3, and five more, from maintained packages.

Each takes rows, the number of clusters and a seed, and returns labels. The paper does not give the
settings of the other methods, so they are the packages' own, but for those named here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans, MiniBatchKMeans, SpectralClustering
from sklearn.metrics import pairwise_distances
from sklearn.mixture import GaussianMixture

from probagg import PAC

Labels = np.ndarray
Methods = dict[str, Callable[[np.ndarray, int, int], Labels]]


def pac(X: np.ndarray, K: int, seed: int, m: float = 1.03) -> Labels:
    """PAC with the paper's equal sizes, by default at its m."""
    return PAC(K, m=m, balance=1.0, random_state=seed).fit_predict(X)


def pac_cosine(X: np.ndarray, K: int, seed: int) -> Labels:
    """PAC as the paper applies it to the features of a network: by cosine."""
    return PAC(K, balance=1.0, metric="cosine", random_state=seed).fit_predict(X)


def kmeans(X: np.ndarray, K: int, seed: int) -> Labels:
    """k-means from one start, as PAC."""
    return KMeans(K, n_init=1, random_state=seed).fit_predict(X)


def pam(X: np.ndarray, K: int, seed: int) -> Labels:
    """Partitioning around medoids (FasterPAM) from random medoids; needs all N x N distances."""
    import kmedoids

    distances = pairwise_distances(X)
    return kmedoids.fasterpam(distances, K, random_state=seed, n_cpu=1).labels


def fcm(X: np.ndarray, K: int, seed: int, m: float = 1.1) -> Labels:
    """Fuzzy c-means, by default at the paper's m for raw features."""
    import skfuzzy

    U = skfuzzy.cmeans(X.T, K, m=m, error=5e-3, maxiter=100, seed=seed)[1]
    return U.argmax(0)


def spectral(X: np.ndarray, K: int, seed: int) -> Labels:
    """Spectral clustering of the graph of 10 nearest neighbours."""
    model = SpectralClustering(K, affinity="nearest_neighbors", random_state=seed)
    return model.fit_predict(X)


def spkf(X: np.ndarray, K: int, seed: int) -> Labels:
    """Spherical k-means from one start: rows and centres are unit vectors."""
    import faiss

    X = np.ascontiguousarray(X, np.float32)
    faiss.normalize_L2(X := X.copy())
    most = -(-len(X) // K)  # otherwise faiss trains on 256 rows per cluster
    model = faiss.Kmeans(
        X.shape[1], K, niter=100, spherical=True, seed=seed, max_points_per_centroid=most
    )
    model.train(X)
    return model.index.search(X, 1)[1][:, 0]


def rcc(X: np.ndarray, K: int, seed: int) -> Labels:
    """Robust continuous clustering, which finds the number of clusters and has no random start."""
    from benchmarks.paper.rcc import robust_continuous_clustering

    return robust_continuous_clustering(X)


def finch(X: np.ndarray, K: int, seed: int) -> Labels:
    """First-neighbour clustering by cosine, merged to K clusters; the paper does not fix K here."""
    import faiss
    from finch import FINCH

    unit = np.ascontiguousarray(X, np.float32).copy()
    faiss.normalize_L2(unit)
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    nearest = index.search(unit, 2)[1]
    itself = nearest[:, 0] == np.arange(len(X))  # a duplicate may come first
    first = np.where(itself, nearest[:, 1], nearest[:, 0])
    return FINCH(X, req_clust=K, initial_rank=first)[2]


def pac_of_ten(X: np.ndarray, K: int, seed: int) -> Labels:
    """PAC, the lowest objective of ten starts."""
    return PAC(K, balance=1.0, n_init=10, random_state=seed).fit_predict(X)


def kmeans_of_ten(X: np.ndarray, K: int, seed: int) -> Labels:
    """k-means, the lowest inertia of ten starts."""
    return KMeans(K, n_init=10, random_state=seed).fit_predict(X)


def hdbscan(X: np.ndarray, K: int, seed: int) -> Labels:
    """HDBSCAN, which finds the number of clusters; rows that it calls noise are one cluster."""
    return HDBSCAN(min_cluster_size=max(5, len(X) // (20 * K)), copy=False).fit_predict(X)


def mixture(X: np.ndarray, K: int, seed: int) -> Labels:
    """A mixture of Gaussians with diagonal covariances."""
    model = GaussianMixture(K, covariance_type="diag", reg_covar=1e-3, random_state=seed)
    return model.fit_predict(X.astype(np.float64))


def minibatch(X: np.ndarray, K: int, seed: int) -> Labels:
    """k-means on random batches of 1,024 rows."""
    return MiniBatchKMeans(K, n_init=1, random_state=seed).fit_predict(X)


PRINTED: Methods = {
    "k-means": kmeans,
    "pam": pam,
    "fcm": fcm,
    "spectral": spectral,
    "spkf": spkf,
    "rcc": rcc,
    "finch": finch,
    "pac": pac,
}
MORE = {
    "pac-of-10": pac_of_ten,
    "k-means-of-10": kmeans_of_ten,
    "hdbscan": hdbscan,
    "mixture": mixture,
    "mini-batch": minibatch,
}
METHODS = PRINTED | MORE
# Ten starts inside, or no random start: one run says all.
ONCE = {"pac-of-10", "k-means-of-10", "rcc", "finch", "hdbscan"}
FOR_FEATURES = {name: METHODS[name] for name in METHODS if name != "pac-of-10"} | {
    "pac": pac_cosine,
    "fcm": partial(fcm, m=1.05),  # the paper's for networks: Table 3
}
