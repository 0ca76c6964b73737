"""Offline targets: all images are clustered every few epochs (Table 7)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.metrics import pairwise_distances
from torch import Tensor

from probagg.dpac.recipe import ClusterSettings
from probagg.pac.solver import Solver


def refresh_targets(
    targets: Tensor, features: Tensor, settings: ClusterSettings, seed: int
) -> None:
    """Replace targets (N, K) in place by clusters of the features.

    Each cluster gets the number of the previous one that it overlaps most.
    """
    Q = cluster_all(settings.targets, features, targets.shape[1], settings, seed)
    _, column = linear_sum_assignment(-(targets.cpu().T @ Q).numpy())
    targets.copy_(Q[:, column])


def cluster_all(
    method: str, features: Tensor, n_clusters: int, settings: ClusterSettings, seed: int
) -> Tensor:
    """Return probabilities (N, K) of rows by "kmeans" (one-hot), "fcm" or "pac".

    For k-means and FCM, cosine distance is the Euclidean distance of unit rows.
    """
    unit = settings.metric == "cosine"
    X = (F.normalize(features, dim=1) if unit else features).numpy()
    if method == "kmeans":
        labels = KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(X)
        return F.one_hot(torch.from_numpy(labels).long(), n_clusters).float()
    if method == "fcm":
        return torch.from_numpy(fuzzy_c_means(X, n_clusters, seed=seed)).float()
    solver = Solver(
        n_clusters,
        m=settings.m,
        metric=settings.metric,
        balance=settings.balance,
        n_init=3,
        random_state=seed,
    )
    return torch.from_numpy(solver.solve(X).P).float()


def fuzzy_c_means(
    X: np.ndarray, n_clusters: int, *, m: float = 1.05, max_iter: int = 100, seed: int = 0
) -> np.ndarray:
    """Return the memberships of fuzzy c-means (Bezdek), at the paper's m for image features.

    Written here because training would need scikit-fuzzy for these lines only.
    """
    centres = kmeans_plusplus(X, n_clusters, random_state=seed)[0]
    P = np.zeros((len(X), n_clusters))
    for _ in range(max_iter):
        distance = pairwise_distances(X, centres, metric="sqeuclidean")
        new = softmax(-np.log(np.maximum(distance, 1e-30)) / (m - 1.0), axis=1)
        change = np.abs(new - P).max()
        P, weights = new, new**m
        centres = (weights.T @ X) / np.maximum(weights.sum(0), 1e-30)[:, None]
        if change < 1e-3:
            break
    return P
