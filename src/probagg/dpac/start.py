"""The start of clustering: a classifier fitted to PAC's clusters (`cluster.start = "pac"`).

The first targets of a random classifier are noise, which ruins good features. A fitted one is
confident from the first step, but OPA is a feedback loop: it is stable only where `learning_rate`,
`backbone_gradient` and `balance` are small. benchmarks/notes/cifar10.md explains both.

A kNN graph says which of PAC's runs to take, and smooths its probabilities: PAC's clusters of
CIFAR-10's pre-trained features have 88.2 ACC, and 90.2 once smoothed
(benchmarks/results/neighbours/full.json). Graphs of several spaces say in which to look for
clusters (benchmarks/notes/spaces.md).
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import Tensor, nn

from probagg.aggregation import critical_m
from probagg.dpac.recipe import ClusterSettings
from probagg.known import match_clusters, reorder_clusters, with_known
from probagg.neighbours.graph import modularity
from probagg.neighbours.joining import count_edges
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph
from probagg.pac.solver import Parameters, Solution, half_way, solve
from probagg.progress import logger

INITS = ("auto",) * 10 + ("annealed",) * 2  # annealed runs often reach a lower objective
ROUNDS = 5  # rounds of smoothing before runs, or spaces, are compared
ROWS = 512  # batch size when a head is fitted
PASSES = 30  # least passes over the features
STEPS = 500  # least steps, for small sets
LINEAR_STEPS = 3500  # least steps of a linear head: 500 leave it unsure at features of norm 0.3
SAMPLED = 2000  # rows whose critical m is computed
BATCH = 4096  # rows whose outputs are computed at a time
FEWEST = 50  # least rows of two clusters that are divided anew; eigsh needs more than 40


def initialize_classifier(
    classifier: nn.Module,
    features: Tensor,
    spaces: Mapping[str, nn.Module],
    settings: ClusterSettings,
    seed: int,
    known: np.ndarray | None = None,
) -> str:
    """Fit the classifier to PAC's clusters in the best of the spaces, and return that space's name.

    A space is given by the layers that lead from the features to it. Rows whose cluster is `known`,
    (N,) with -1 elsewhere, keep it throughout.
    """
    last = [module for module in classifier.modules() if isinstance(module, nn.Linear)][-1]
    device = last.weight.device
    features = to_solver(features, device)
    most = features.shape[1]
    rows = {name: outputs_of(layers, features, most) for name, layers in spaces.items()}
    found = compare_spaces(rows, last.out_features, settings, seed, known)
    best = max(found, key=lambda name: found[name][0])
    if len(found) > 1:
        fits = ", ".join(f"{name} {fit:.4f}" for name, (fit, _) in found.items())
        logger.info("Confidence of PAC's clusters on the graphs of all spaces: %s", fits)
    fit_head(classifier, features, with_known(found[best][1], known), seed)
    return best


def compare_spaces(
    rows: Mapping[str, Tensor],
    n_clusters: int,
    settings: ClusterSettings,
    seed: int,
    known: np.ndarray | None = None,
) -> dict[str, tuple[float, Tensor]]:
    """Return PAC's smoothed clusters in each space, and their fit to the kNN graphs of all spaces.

    Smoothed clusters fit the graph of their own space, so the fit is `confidence_left` on the graph
    where it is lowest (benchmarks/notes/spaces.md). A graph that fits no clusters half as well as
    another one does, as that of a space in which all rows are equal, does not count.
    """
    near = {name: smoothing_graph(X, n_clusters, settings.metric) for name, X in rows.items()}
    Q = {
        name: smoothed_clusters(X, near[name], n_clusters, settings, seed, known)
        for name, X in rows.items()
    }
    left = np.array([[confidence_left(graph, Q[name]) for graph in near.values()] for name in Q])
    fit = left[:, left.max(0) >= left.max() / 2].min(1)
    return {name: (float(value), Q[name]) for name, value in zip(Q, fit, strict=True)}


def confidence_left(near: Tensor, Q: Tensor) -> float:
    """Return how confident the labels of Q are after a little smoothing: 1, and 0 by chance.

    Where a boundary runs through a dense part of the graph, smoothing leaves many rows undecided.
    Chance is that two rows have the same label, so equal labels of all rows say nothing.

    >>> near = torch.tensor([[0, 1], [0, 1], [2, 3], [2, 3]])
    >>> [confidence_left(near, Q) for Q in (torch.eye(2)[[0, 0, 1, 1]], torch.eye(2)[[0, 1, 0, 1]])]
    [1.0, 0.0]
    """
    labels = F.one_hot(Q.argmax(1), Q.shape[1]).float()
    chance = float(labels.mean(0).square().sum())
    left = sharpness(smooth(near, labels, rounds=ROUNDS))
    return max(left - chance, 0.0) / max(1.0 - chance, 1e-12)


@torch.no_grad()
def outputs_of(layers: nn.Module, features: Tensor, most: int | None = None) -> Tensor:
    """Return what layers make of features (N, D), in evaluation mode and on the features' device.

    Outputs of more than `most` numbers are turned into that many principal directions, which keep
    cosines and distances best: the hidden layer of a projector can be eight times as wide as D.

    >>> wide = nn.Linear(2, 5, bias=False)
    >>> X = torch.randn(50, 2)
    >>> torch.allclose(outputs_of(wide, X, 2).norm(dim=1), wide(X).norm(dim=1), atol=1e-5)
    True
    """
    layers = copy.deepcopy(layers).to(features.device).eval()
    batches = features.split(BATCH)
    width = layers(features[:1]).shape[1]
    if most is None or width <= most:
        return torch.cat([layers(X) for X in batches])
    moments = torch.zeros(width, width, dtype=torch.float64, device=features.device)
    for X in batches:
        Y = layers(X)
        moments += Y.T @ Y
    directions = torch.linalg.eigh(moments)[1][:, -most:].to(features)
    return torch.cat([layers(X) @ directions for X in batches])


def smoothed_clusters(
    features: Tensor,
    near: Tensor,
    n_clusters: int,
    settings: ClusterSettings,
    seed: int,
    known: np.ndarray | None = None,
) -> Tensor:
    """Return the selected run of PAC at the paper's balance, smoothed and as confident as before.

    `near` is the smoothing graph of the features.
    """
    pac = pac_parameters(features, n_clusters, settings)
    runs = [
        solve(features, replace(pac, init=init, random_state=seed + number), None, known)
        for number, init in enumerate(INITS)
    ]
    P = select_run(runs, features, near, known)
    return smooth_as_sure(near, P, known)


def smooth_as_sure(near: Tensor, P: Tensor, known: np.ndarray | None = None) -> Tensor:
    """Return P smoothed over the graph, and as confident as before."""
    return sharpen(smooth(near, P, known=known), to=sharpness(P))


def pac_parameters(
    features: Tensor, n_clusters: int, settings: ClusterSettings, **others: Any
) -> Parameters:
    """Return the parameters of PAC on features, at the paper's balance.

    From about 0.6 of the way to the critical m on, PAC may find no clusters
    (benchmarks/notes/spaces.md), so m is at most half-way to it.
    """
    some = features[spread_rows(len(features))].cpu()
    m = min(settings.m, half_way(critical_m(some, settings.metric)))
    return Parameters(n_clusters, m=m, metric=settings.metric, **others)


def to_solver(features: Tensor, device: torch.device) -> Tensor:
    """Return features where PAC can compute: on the device, but for MPS, which has no float64."""
    return features.to("cpu" if device.type == "mps" else device)


def spread_rows(n: int) -> Tensor:
    """Return the rows of n whose critical m is computed, spread evenly: folders are sorted."""
    return torch.linspace(0, n - 1, min(n, SAMPLED)).long()


def select_run(
    runs: list[Solution], features: Tensor, near: Tensor, known: np.ndarray | None = None
) -> Tensor:
    """Return the probabilities of the run with the highest kNN modularity, or of it divided anew.

    PAC has several optima, and the lowest objective is not always the best: on three of five sets
    of CIFAR-10 features another one, less than 0.1 % higher, had two to three points more ACC
    (benchmarks/results/neighbours). PAC can also divide two similar classes wrongly in every run,
    so the two most connected clusters are divided anew (`recut`). PAC's run from there is taken if
    it is more confident after some smoothing: where a boundary runs through a dense part of the
    graph, smoothing leaves many rows undecided (benchmarks/notes/cifar10.md).
    """
    smoothed = [smooth(near, _probabilities(run, features), known=known) for run in runs]
    modular = [modularity(near, Q.argmax(1)) for Q in smoothed]
    chosen = modular.index(max(modular))
    start = recut(near, smoothed[chosen])
    candidates = [runs[chosen]]
    if start is not None:
        if known is not None:
            start = reorder_clusters(start, match_clusters(start, known))
        again = replace(runs[chosen].parameters, init=start)
        candidates.append(solve(features, again, None, known))
    answers = [with_known(_probabilities(run, features), known) for run in candidates]
    confidence = [sharpness(smooth(near, P, rounds=ROUNDS)) for P in answers]
    names = ("most modular", "divided anew")[: len(candidates)]
    for name, run, value in zip(names, candidates, confidence, strict=True):
        logger.info("PAC, %s: J %.6g, smoothed confidence %.4f", name, run.history[-1], value)
    return answers[confidence.index(max(confidence))]


def _probabilities(run: Solution, features: Tensor) -> Tensor:
    """Return a run's probabilities, which it does not keep for very many rows."""
    return (run.P if run.P is not None else run.clusters.probabilities(features)).float()


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


@torch.no_grad()
def recut(near: Tensor, Q: Tensor) -> Tensor | None:
    """Return Q with its two most connected clusters divided anew.

    Their rows are divided into halves by the second eigenvector of the graph among them, which
    relaxes the normalised cut: the halves have few edges between them, whatever their distances.
    None is returned where the two are too small, no edge connects two clusters, or the eigenvector
    does not converge.

    >>> near = torch.arange(100).reshape(2, 50).repeat_interleave(50, 0)  # two groups of rows
    >>> Q = 0.8 * torch.eye(2)[torch.arange(100) % 2] + 0.1  # a division across both
    >>> labels = recut(near, Q).argmax(1)
    >>> len(labels[:50].unique()), len(labels[50:].unique()), len(labels.unique())
    (1, 1, 2)
    """
    graph, labels = near.cpu().numpy(), Q.argmax(1).cpu().numpy()
    pair = most_connected(graph, labels, Q.shape[1])
    rows = np.flatnonzero(np.isin(labels, pair))
    if pair[0] == pair[1] or len(rows) < FEWEST:
        return None
    try:
        vector = second_eigenvector(graph, rows)
    except ArpackNoConvergence:
        return None
    upper = torch.from_numpy(vector).argsort().argsort().to(Q.device) >= len(rows) // 2
    shares = 0.95 * torch.eye(2, device=Q.device)[upper.long()] + 0.025
    divided, some = Q.clone(), torch.as_tensor(rows, device=Q.device)
    divided[some[:, None], pair] = shares * Q[some][:, pair].sum(1, keepdim=True)
    return smooth(near, divided)


def most_connected(near: np.ndarray, labels: np.ndarray, K: int) -> list[int]:
    """Return the two clusters with the most edges between them, relative to their sizes.

    Both are the first one where no edge connects two clusters.
    """
    sizes = np.bincount(labels, minlength=K).clip(1)
    share = count_edges(near, labels, K) / np.sqrt(sizes[:, None] * sizes)
    return [*divmod(int(np.triu(share, 1).argmax()), K)]


def second_eigenvector(near: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the second eigenvector of the random walk on the kNN graph among some rows.

    A loose tolerance gives another division of CIFAR-10's cats and dogs, so it is tight, and the
    start is fixed.
    """
    n, place = len(rows), np.full(len(near), -1)
    place[rows] = np.arange(n)
    to = place[near[rows]]
    row, column = np.repeat(np.arange(n), near.shape[1])[to.ravel() >= 0], to[to >= 0]
    A = coo_array((np.ones(len(row)), (row, column)), shape=(n, n)).tocsr()
    A = A + A.T
    scale = 1.0 / np.sqrt(np.maximum(A.sum(1), 1.0))
    S = diags_array(scale) @ A @ diags_array(scale)
    start = np.random.default_rng(0).standard_normal(n)
    values, vectors = eigsh(S, k=2, which="LA", tol=1e-8, ncv=40, v0=start, maxiter=1000)
    return scale * vectors[:, values.argmin()]
