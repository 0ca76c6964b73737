"""Where heads begin: at random as in the paper, or taught (`cluster.start`, `self_label.start`).

A random head's first targets are noise, and the backbone follows them: features of CIFAR-10 that
were 92 % right by nearest neighbours fell to 65 % within three epochs of a high learning rate.
A taught head is sure from the first step. OPA then answers a cluster's mass with the gain
1/(m - 1) = 50 and the whole network follows within a step, so masses swing ever wider: at a rate of
0.02 features fell from 92 to 69 % within an epoch. The loop is quiet where `learning_rate`,
`backbone_gradient` and `balance` are small: 0.005, 0.01 and 0.5 lost nothing (docs/cifar10.md).
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.neighbours import ask, nearest, sharpen, sharpness
from probagg.dpac.offline import cluster_all
from probagg.dpac.recipe import Cluster

N_INIT = 10  # runs of PAC; the one whose neighbours are surest is taken
ROWS = 512  # a step of teaching a head
PASSES = 30  # over the features
STEPS = 500  # at least, where they are few
LINEAR_STEPS = 3500  # of a linear head: features are 0.3 long, and 500 leave it unsure of all


def start_classifier(classifier: nn.Module, features: Tensor, settings: Cluster, seed: int) -> None:
    """Teach the classifier PAC's clusters of the features as the neighbours see them.

    PAC has several optima, and the lowest objective is not always the best one: on two of three
    sets of features of CIFAR-10 another one was two points better. The neighbours were surer of the
    better one on all three, though not on Pendigits (docs/cifar10.md).
    """
    last = [module for module in classifier.modules() if isinstance(module, nn.Linear)][-1]
    device, paper = last.weight.device, replace(settings, balance=1.0)
    near = nearest(features.to(device), last.out_features, settings.metric)
    found: list[tuple[Tensor, float]] = []
    for number in range(N_INIT):
        P = cluster_all("pac", features, last.out_features, paper, seed + number, n_init=1)
        found.append((ask(near, P.to(device)), sharpness(P)))
    Q, before = max(found, key=lambda pair: sharpness(pair[0]))
    teach(classifier, features, sharpen(Q, to=before), seed)


def teach(head: nn.Module, features: Tensor, probabilities: Tensor, seed: int) -> None:
    """Train a head alone, by cross-entropy; the features stay as they are."""
    device = next(head.parameters()).device
    X, P = features.to(device), probabilities.to(device)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    head.train()
    size = min(ROWS, len(X))
    steps = LINEAR_STEPS if isinstance(head, nn.Linear) else STEPS
    for _ in range(max(PASSES, steps * size // len(X))):
        for rows in torch.randperm(len(X), generator=generator).to(device).split(size):
            if len(rows) > 1:  # batch norm has no variance of one row
                optimizer.zero_grad()
                F.cross_entropy(head(X[rows]), P[rows]).backward()
                optimizer.step()
    optimizer.zero_grad()
