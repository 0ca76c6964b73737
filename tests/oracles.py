"""Slow transcriptions of the paper, the references for the tests."""

import numpy as np
import torch


def distances(X, metric):
    """Return the (B, B) matrix D."""
    if metric == "sqeuclidean":
        return ((X[:, None] - X[None]) ** 2).sum(2)
    X = X / X.norm(dim=1, keepdim=True)
    return (1 - X @ X.T).clamp(min=0).fill_diagonal_(0)


def algorithm_2(D, P, m):
    """Return Q of Algorithm 2, with powers in log space."""
    S = torch.matmul(D.detach(), P)
    logs = torch.log(S) * (-1 / (m - 1))
    S = torch.exp(logs - logs.max(1, keepdim=True).values)
    return S / S.sum(1).view(-1, 1)


def kl(Q, P):
    """Return the loss of Algorithm 2."""
    return (Q * Q.clamp(min=1e-300).log() - Q * P.log()).sum(1).mean()


def equation_11(z1, z2, P, temperature):
    """Return the mean of Eq. 11 for one order of the views, with loops."""
    z1, z2 = z1 / z1.norm(dim=1, keepdim=True), z2 / z2.norm(dim=1, keepdim=True)
    N, total = len(z1), 0.0
    for i in range(N):
        denominator = 0.0
        for j in range(N):
            w = 1 - P[i] @ P[j] if P is not None else 1.0
            if j != i:
                denominator = denominator + w * torch.exp(z1[i] @ z1[j] / temperature)
            denominator = denominator + w * torch.exp(z1[i] @ z2[j] / temperature)
        total = total - torch.log(torch.exp(z1[i] @ z2[i] / temperature) / denominator)
    return total / N


def apply_operation(name, images, magnitude=0.0):
    """Return all images after one operation of the strong view, of one magnitude or one each."""
    from probagg.dpac.operations import apply_chosen

    values = torch.as_tensor(magnitude, dtype=torch.float32, device=images.device)
    everyone = torch.ones(len(images), dtype=torch.bool, device=images.device)
    return apply_chosen(images, {name: everyone}, values.expand(len(images)))


def regions(review, n_clusters, X):
    """The cluster, after merges and splits, of each row of X in each cluster of a run: (n, K)."""
    groups, found = review.groups(n_clusters), np.zeros((len(X), n_clusters), int)
    for (i, k), _ in np.ndenumerate(found):
        at = groups[k]
        for split in review.splits:
            if at == split.cluster:
                at = groups[split.choose(X[i : i + 1])[0]]
        found[i, k] = at
    return found
