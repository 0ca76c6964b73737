"""Offline targets: all images are clustered every few epochs, in between they stay (Table 7)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.metrics import pairwise_distances
from torch import Tensor, nn

from probagg.dpac.recipe import Cluster
from probagg.opa.functional import as_float, full_precision
from probagg.pac.solver import Solver


class OfflineTargets(nn.Module):
    """Targets (N, K) of all images, saved with the model so that a run can be taken up."""

    Q: Tensor

    def __init__(self, n: int, n_clusters: int) -> None:
        super().__init__()
        self.register_buffer("Q", torch.full((n, n_clusters), 1.0 / n_clusters))

    def forward(self, samples: Tensor, logits: Tensor) -> Tensor:
        """KL(Q || P) of the samples, mean over the batch."""
        with full_precision(logits):
            return F.kl_div(as_float(logits).log_softmax(1), self.Q[samples], reduction="batchmean")

    def refresh(self, features: Tensor, settings: Cluster, seed: int) -> None:
        """Cluster the features of now; clusters keep the numbers of those they overlap most."""
        Q = cluster_all(settings.targets, features, self.Q.shape[1], settings, seed)
        _, column = linear_sum_assignment(-(self.Q.cpu().T @ Q).numpy())
        self.Q.copy_(Q[:, column])


def cluster_all(
    method: str, features: Tensor, n_clusters: int, settings: Cluster, seed: int
) -> Tensor:
    """Probabilities (N, K) of rows by "kmeans" (one-hot), "fcm" or "pac".

    Cosine distance is the Euclidean one of unit rows, for the methods that know only that.
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
    """Fuzzy c-means (Bezdek), at the m = 1.05 the paper gives it for image features.

    Ours, since training would need scikit-fuzzy for nothing but these lines.
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
