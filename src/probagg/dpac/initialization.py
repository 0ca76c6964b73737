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

from probagg.dpac.neighbours import modularity, nearest, recut
from probagg.dpac.recipe import Cluster
from probagg.pac.assigner import Assigner
from probagg.pac.smoothing import sharpen, sharpness, smooth
from probagg.pac.solver import Solution, Solver
from probagg.progress import logger

INITS = ("auto",) * 10 + ("annealed",) * 2  # annealed runs often reach a lower objective
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
    features = features.to(device)
    near = nearest(features, n_clusters, settings.metric)
    solver = Solver(n_clusters, m=settings.m, metric=settings.metric)
    runs = [
        replace(solver, init=init, random_state=seed + number).solve(features)
        for number, init in enumerate(INITS)
    ]
    P = select_run(runs, features, near)
    fit_head(classifier, features, sharpen(smooth(near, P), to=sharpness(P)), seed)


def select_run(runs: list[Solution], features: Tensor, near: Tensor) -> Tensor:
    """Return the probabilities of the run with the highest kNN modularity, or of it divided anew.

    PAC has several optima, and the lowest objective is not always the best: on three of five sets
    of CIFAR-10 features another one, less than 0.1 % higher, had two to three points more ACC
    (benchmarks/results/neighbours/full.json). PAC can also divide two similar classes wrongly in every
    run, so the two most connected clusters are divided anew (`neighbours.recut`). PAC's run from
    there is taken if it is more confident after some smoothing: where a boundary runs through a
    dense part of the graph, smoothing leaves many rows undecided (docs/cifar10.md, "The start").
    """
    smoothed = [smooth(near, probabilities(run, features)) for run in runs]
    modular = [modularity(near, Q) for Q in smoothed]
    chosen = modular.index(max(modular))
    start = recut(near, smoothed[chosen])
    candidates = [runs[chosen]]
    if start is not None:
        candidates.append(replace(runs[chosen].solver, init=start).solve(features))
    answers = [probabilities(run, features) for run in candidates]
    confidence = [sharpness(smooth(near, P, rounds=ROUNDS)) for P in answers]
    names = ("most modular", "divided anew")[: len(candidates)]
    for name, run, value in zip(names, candidates, confidence, strict=True):
        logger.info("PAC, %s: J %.6g, smoothed confidence %.4f", name, run.history[-1], value)
    return answers[confidence.index(max(confidence))]


def probabilities(run: Solution, features: Tensor) -> Tensor:
    """Return a run's probabilities, which it does not keep for very many rows."""
    P = run.P if run.P is not None else Assigner(run.model, run.update).probabilities(features)
    return P.float()


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
