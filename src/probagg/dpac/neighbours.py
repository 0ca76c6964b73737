"""The kNN graph of features, and probabilities smoothed over it.

PAC and OPA place the boundary of a cluster by its sums alone. Smoothing moves the boundary to where
the graph has few edges: PAC's clusters of CIFAR-10's pre-trained features have 88.2 ACC, and 90.2
once smoothed (benchmarks/results/neighbours.json).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from probagg.aggregation import embed
from probagg.opa.functional import full_precision

NEAREST = 20  # neighbours per row, including the row itself
SHARE = 0.1  # of a cluster's mean size, which limits the number of neighbours
ROUNDS = 20  # of smoothing
SIMILARITIES = 2**27  # computed at a time: 512 MB


@torch.no_grad()
def nearest(features: Tensor, n_clusters: int, metric: str) -> Tensor:
    """Return the indices of the nearest rows of each row, (N, 2 to 20), itself included.

    >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> nearest(X, 2, "cosine").tolist()
    [[0, 2], [1, 3], [2, 0], [3, 1]]
    """
    n = len(features)
    k = min(n, max(2, min(NEAREST, int(SHARE * n / n_clusters))))
    with full_precision(features):
        X = embed(features, metric)
        X = X - X.mean(0)  # a common offset would cost precision
        half = 0.5 * (X * X).sum(1)  # |x - y|^2 is smallest where xy - |y|^2 / 2 is largest
        blocks = X.split(max(1, SIMILARITIES // n))
        return torch.cat([(block @ X.T - half).topk(k).indices for block in blocks])


@torch.no_grad()
def smooth(near: Tensor, P: Tensor, mass: Tensor | None = None) -> Tensor:
    """Smooth P (N, K) over the kNN graph, rescaling to the cluster masses after each round.

    Without rescaling, large clusters would grow. `mass` (K,) replaces the masses of P.

    >>> near = torch.tensor([[0, 1, 2], [1, 0, 2], [2, 0, 1], [3, 4, 4], [4, 3, 3]])
    >>> P = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1], [0.2, 0.8], [0.1, 0.9]])
    >>> smooth(near, P).argmax(1).tolist()
    [0, 0, 0, 1, 1]
    """
    Q, mass = P, P.sum(0) if mass is None else mass
    for _ in range(ROUNDS):
        total = torch.zeros_like(Q)
        for column in near.T:
            total += Q[column]
        total *= mass / total.sum(0).clamp(min=1e-30)
        Q = F.normalize(total, p=1.0, dim=1)
    return Q


@torch.no_grad()
def modularity(near: Tensor, Q: Tensor) -> float:
    """Return the share of neighbours with the row's own label, less the share by chance.

    >>> Q = torch.eye(2)[[0, 0, 1, 1]]
    >>> modularity(torch.tensor([[0, 1], [1, 0], [2, 3], [3, 2]]), Q)
    0.5
    >>> modularity(torch.tensor([[0, 1], [1, 0], [2, 3], [3, 2]]), torch.ones(4, 2))  # one cluster
    0.0
    """
    labels = Q.argmax(1)
    sizes = torch.bincount(labels, minlength=Q.shape[1]) / len(labels)
    return float((labels[near] == labels[:, None]).float().mean() - sizes.square().sum())


def sharpness(Q: Tensor) -> float:
    """Return the mean of the largest probability of each row."""
    return float(Q.amax(1).mean())


def sharpen(Q: Tensor, to: float) -> Tensor:
    """Return Q raised to the power that gives it the sharpness `to`, rows normalised.

    Smoothing flattens probabilities where clusters touch and sharpens them where they do not;
    both would accumulate over refreshes.

    >>> Q = torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.3, 0.4]])
    >>> [round(sharpness(sharpen(Q, to)), 3) for to in (0.9, 0.35)]
    [0.9, 0.35]
    """
    logs, low, high = Q.clamp(min=1e-30).log(), 1e-4, 1e4
    for _ in range(50):
        power = (low * high) ** 0.5
        low, high = (power, high) if sharpness((power * logs).softmax(1)) < to else (low, power)
    return (low * logs).softmax(1)
