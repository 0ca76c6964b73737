"""Stages of clustering that only tables of the paper use: offline targets, and a regularisation.

`OfflineStage` (Table 7) clusters all images every few epochs and trains on these targets.
`RegularizedStage` (Table 5c) adds the entropy of the mean assignment.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.metrics import pairwise_distances
from torch import Tensor

from probagg.dpac.feed import infer
from probagg.dpac.recipe import ClusterSettings
from probagg.dpac.stages import ClusterStage, Setup
from probagg.dpac.step import Batch
from probagg.opa.processes import n_processes, sum_over_processes
from probagg.opa.targets import as_float, full_precision
from probagg.pac.solver import Parameters, solve


class OfflineStage(ClusterStage):
    """Clustering with targets (N, K) by `method`, computed anew every `refresh_epochs`."""

    def __init__(self, setup: Setup, *, method: str, refresh_epochs: int) -> None:
        super().__init__(setup)
        self.method, self.refresh_epochs = method, refresh_epochs
        K = self.model.n_clusters
        self.targets = torch.full((len(self.feed), K), 1.0 / K, device=self.feed.device)

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the targets."""
        return {"targets": self.targets}

    def before_epoch(self, epoch: int) -> Tensor | None:
        """Initialize the classifier, refresh the targets, and return the strata."""
        strata = super().before_epoch(epoch)
        if epoch % self.refresh_epochs == 0:
            features, _ = infer(self.model, self.views, self.feed)
            settings, seed = self.recipe.cluster, self.setup.seed + epoch
            refresh_targets(self.targets, features, self.method, settings, seed)
        return strata

    def check_m(self) -> None:
        """Do nothing: these targets do not start from uniform probabilities."""

    def clustering_terms(
        self, batch: Batch, x: Tensor, logits: Tensor, logits1: Tensor
    ) -> dict[str, Tensor]:
        """Return KL(Q || P1) with the offline targets Q."""
        with full_precision(logits1):
            P1 = as_float(logits1).log_softmax(1)
            return {"kl": F.kl_div(P1, self.targets[batch.samples], reduction="batchmean")}


class RegularizedStage(ClusterStage):
    """Clustering with the entropy of the mean assignment as a further term."""

    def __init__(self, setup: Setup, *, weight: float) -> None:
        super().__init__(setup)
        self.weight = weight

    def clustering_terms(
        self, batch: Batch, x: Tensor, logits: Tensor, logits1: Tensor
    ) -> dict[str, Tensor]:
        """Return the clustering term, and sum_k q_k log q_k of the mean q over the whole batch."""
        terms = super().clustering_terms(batch, x, logits, logits1)
        with full_precision(logits1):
            mean = sum_over_processes(as_float(logits1).softmax(1).mean(0)) / n_processes()
            entropy = (mean * mean.clamp(min=1e-12).log()).sum()
        return terms | {"regularization": self.weight * entropy}


def refresh_targets(
    targets: Tensor, features: Tensor, method: str, settings: ClusterSettings, seed: int
) -> None:
    """Replace targets (N, K) in place by clusters of the features.

    Each cluster gets the number of the previous one that it overlaps most.
    """
    Q = cluster_all(method, features, targets.shape[1], settings, seed)
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
    pac = Parameters(
        n_clusters,
        m=settings.m,
        metric=settings.metric,
        balance=settings.balance,
        n_init=3,
        random_state=seed,
    )
    return torch.from_numpy(solve(X, pac).P).float()


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
