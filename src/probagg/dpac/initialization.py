"""Heads fitted to given probabilities, and the classifier fitted to PAC (`cluster.start = "pac"`).

The first targets of a random classifier are noise, which ruins good features. A fitted one is
confident from the first step, but OPA is a feedback loop: it is stable only where `learning_rate`,
`backbone_gradient` and `balance` are small. docs/cifar10.md explains both.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.neighbours import nearest, recut, sharpen, sharpness, smooth
from probagg.dpac.recipe import Cluster
from probagg.pac.solver import Solution, Solver
from probagg.progress import logger

INITS = ("auto",) * 10 + ("annealed",) * 2  # annealed runs often reach a lower objective
NEAR_LOWEST = 1.005  # times the lowest objective: the runs that are compared
ROUNDS = 5  # of smoothing before runs are compared
ROWS = 512  # batch size when a head is fitted
PASSES = 30  # over the features
STEPS = 500  # at least, for small sets
LINEAR_STEPS = 3500  # of a linear head: on features of norm 0.3, 500 leave its confidence low


def initialize_classifier(
    classifier: nn.Module, features: Tensor, settings: Cluster, seed: int
) -> None:
    """Fit the classifier to PAC's clusters at the paper's balance, smoothed over the kNN graph."""
    last = [module for module in classifier.modules() if isinstance(module, nn.Linear)][-1]
    device, n_clusters = last.weight.device, last.out_features
    near = nearest(features.to(device), n_clusters, settings.metric)
    solver = Solver(n_clusters, m=settings.m, metric=settings.metric)
    runs = [
        replace(solver, init=init, random_state=seed + number).solve(features.numpy())
        for number, init in enumerate(INITS)
    ]
    P = select_by_confidence(runs + recut_runs(runs, features, near), near)
    fit_head(classifier, features, sharpen(smooth(near, P), to=sharpness(P)), seed)


def recut_runs(runs: list[Solution], features: Tensor, near: Tensor) -> list[Solution]:
    """Return PAC's runs from the given ones with two clusters divided anew (`neighbours.recut`).

    PAC can divide two similar classes wrongly in every run: on BYOL's features of CIFAR-10 all
    twelve cut across cats and dogs, and the right division has a 0.2 % higher objective
    (docs/cifar10.md, "The start").
    """
    starts = [recut(near, smooth(near, probabilities(run, near))) for run in lowest(runs)]
    return [
        replace(run.solver, init=start.cpu().numpy()).solve(features.numpy())
        for run, start in zip(lowest(runs), starts, strict=True)
        if start is not None
    ]


def select_by_confidence(runs: list[Solution], near: Tensor) -> Tensor:
    """Return the probabilities of the run that is most confident after smoothing.

    PAC has several optima, and the lowest objective is not always the best, so runs within 0.5 %
    of it are compared: where a boundary runs through a dense part of the graph, smoothing leaves
    many rows undecided.
    """
    candidates = [probabilities(run, near) for run in lowest(runs)]
    confidence = [sharpness(smooth(near, P, rounds=ROUNDS)) for P in candidates]
    for run, value in zip(lowest(runs), confidence, strict=True):
        start = run.solver.init if isinstance(run.solver.init, str) else "recut"
        logger.info("PAC, %s: J %.6g, smoothed confidence %.4f", start, run.history[-1], value)
    return candidates[confidence.index(max(confidence))]


def lowest(runs: list[Solution]) -> list[Solution]:
    """Return the runs whose objective is within 0.5 % of the lowest."""
    limit = NEAR_LOWEST * min(run.history[-1] for run in runs)
    return [run for run in runs if run.history[-1] <= limit]


def probabilities(run: Solution, near: Tensor) -> Tensor:
    """Return a run's probabilities on the device of the graph."""
    return torch.from_numpy(run.P).float().to(near.device)


def fit_head(head: nn.Module, features: Tensor, probabilities: Tensor, seed: int) -> None:
    """Train a head on fixed features by cross-entropy with the probabilities."""
    device = next(head.parameters()).device
    X, P = features.to(device), probabilities.to(device)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    head.train()
    size = min(ROWS, len(X))
    steps = LINEAR_STEPS if isinstance(head, nn.Linear) else STEPS
    for _ in range(max(PASSES, steps * size // len(X))):
        for rows in torch.randperm(len(X), generator=generator).to(device).split(size):
            if len(rows) > 1:  # batch norm needs a variance
                optimizer.zero_grad()
                F.cross_entropy(head(X[rows]), P[rows]).backward()
                optimizer.step()
    optimizer.zero_grad()
