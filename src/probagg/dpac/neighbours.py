"""What an image's neighbours say of it: probabilities averaged along the nearest features.

OPA's and PAC's boundaries see a cluster as a whole; which side of one a neighbourhood lies on is
better known to the neighbourhood. On CIFAR-10 after clustering (90.1 ACC) the averages had 91.3,
and a linear head taught them 91.5 (docs/cifar10.md).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from probagg.opa.functional import full_precision

NEAREST = 20  # rows that are averaged, the row itself among them
ROUNDS = 20  # so often
BLOCK = 2**27  # similarities at a time: 512 MB


@torch.no_grad()
def ask_neighbours(features: Tensor, P: Tensor, *, balance: float) -> Tensor:
    """Q (N, K): each row of P averaged over its nearest by cosine, and that average again.

    After each round a cluster's share is divided by its mass to the power `balance`, as in Eq. 9:
    averages favour the large.
    """
    near = nearest(features, min(NEAREST, len(P)))
    Q = P
    for _ in range(ROUNDS):
        mean = torch.zeros_like(Q)
        for column in near.T:
            mean += Q[column]
        mean /= mean.sum(0).clamp(min=torch.finfo(Q.dtype).tiny) ** balance
        Q = F.normalize(mean, p=1, dim=1)
    return Q


def nearest(features: Tensor, k: int) -> Tensor:
    """The k rows nearest to each row by cosine, itself among them: (N, k).

    >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> nearest(X, 2).tolist()
    [[0, 2], [1, 3], [2, 0], [3, 1]]
    """
    with full_precision(features):
        X = F.normalize(features, dim=1)
        blocks = X.split(max(1, BLOCK // len(X)))
        return torch.cat([(block @ X.T).topk(k).indices for block in blocks])
