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

from probagg.dpac.neighbours import ask, modularity, nearest, sharpen, sharpness
from probagg.dpac.recipe import Cluster
from probagg.pac.solver import Solution, Solver

INITS = ("auto",) * 10 + ("annealed",) * 2  # the latter often end lowest; the others near it
ROWS = 512  # a step of teaching a head
PASSES = 30  # over the features
STEPS = 500  # at least, where they are few
LINEAR_STEPS = 3500  # of a linear head: features are 0.3 long, and 500 leave it unsure of all


def start_classifier(classifier: nn.Module, features: Tensor, settings: Cluster, seed: int) -> None:
    """Teach the classifier PAC's clusters, at the paper's balance, as the neighbours see them."""
    last = [module for module in classifier.modules() if isinstance(module, nn.Linear)][-1]
    device, n_clusters = last.weight.device, last.out_features
    near = nearest(features.to(device), n_clusters, settings.metric)
    solver = Solver(n_clusters, m=settings.m, metric=settings.metric)
    runs = [
        replace(solver, init=init, random_state=seed + number).solve(features.numpy())
        for number, init in enumerate(INITS)
    ]
    chosen, Q = most_modular(runs, near)
    before = sharpness(torch.from_numpy(runs[chosen].P))
    teach(classifier, features, sharpen(Q, to=before), seed)


def most_modular(runs: list[Solution], near: Tensor) -> tuple[int, Tensor]:
    """The run of which neighbours say the same to each other: which, and what they say of it.

    PAC has several optima, and the lowest is not always the best: on three of five sets of features
    of CIFAR-10 another one, 0.1 % higher, was two to three points better (docs/cifar10.md).
    """
    said = (
        (number, ask(near, torch.from_numpy(run.P).float().to(near.device)))
        for number, run in enumerate(runs)
    )
    return max(said, key=lambda pair: modularity(near, pair[1]))


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
