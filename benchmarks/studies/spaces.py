"""The spaces in which the start of DPAC can look for clusters.

    python -m benchmarks spaces        needs PROBAGG_DATA; digits are pre-trained first

Each way clusters the same rows: the features as they are; the features in their 128 directions of
highest variance, each divided by its variance to a power (0: centred only; 0.5: whitened); the
hidden layer of the pretext's projector; and the projections themselves. Then come PAC's twelve
runs, the selection of one, and smoothing over the graph of the same rows. `runs` are the ACC of the
twelve, `acc` is that of the smoothed clusters.

`best` is what DPAC does in the fast recipes for photos: the space whose clusters fit the kNN graphs
of features, hidden layer and projections best. `fit` is the confidence beyond chance of each
space's labels after a little smoothing over the graph where it is lowest, `accs` its ACC. Networks
are those of the study of the clustering stage, and digits by BYOL. Labels of these seeds were read
before this rule; modularity in place of confidence, found on others, takes the same spaces.

Features are of digits (contrast; all ways were looked at on seeds 5 to 9, seeds from 10 on are
blind), of CIFAR-10 (SimCLR), of CIFAR-100-20 where the folder PROBAGG_FEATURES has them
(cifar100-20.npz, by `training --features`), and of a supervised network on photos. The last three
come without a projector.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.data import some_rows
from benchmarks.paper.deep import CHANGES, Experiment, images
from benchmarks.paper.weights import read_weights
from benchmarks.record import Cell
from benchmarks.studies.cluster_stage import ALL, RECIPES
from benchmarks.study import Run, Study
from probagg import Recipe
from probagg.aggregation import critical_m
from probagg.dpac import start
from probagg.dpac.feed import Feed, estimate_statistics, infer
from probagg.dpac.model import build_model
from probagg.dpac.pretext import distance_spaces
from probagg.dpac.recipe import ClusterSettings
from probagg.dpac.start import outputs_of, smoothed_clusters
from probagg.dpac.views import Views
from probagg.metrics import clustering_accuracy, evaluate
from probagg.neighbours.smoothing import smoothing_graph

FIRST_SEED = 5  # of pre-training on digits
GIVEN = ("cifar10-simclr", "cifar100-20", "imagenette", "imagenet-dogs")
DIRECTIONS = 128  # of highest variance
MOST = 10_000  # rows of them, at random
BEST = {"digits": (20, 5), "mnist-mlp": (6, 2), "digits-byol": (20, 3)}  # first seed, how many
BYOL = ("pretext.task=byol", "pretext.head=[256,64]", "pretext.key_momentum=0.97")
POWERS = ("", "0.0", "0.125", "0.25", "0.375", "0.5")
SETTINGS = ClusterSettings(metric="cosine", m=1.02)


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run."""
    ways = [("flattened" if power else "as they are", power) for power in POWERS]
    for way in (*ways, ("hidden layer", ""), ("projections", "")):
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            yield Cell("digits", *way, seed)
        if size == "full" and way in ways:
            yield from (Cell(data, *way) for data in GIVEN)
    for data, (first, n) in BEST.items() if size == "full" else [("digits", (5, 1))]:
        yield from (Cell(data, "best", seed=seed) for seed in range(first, first + min(seeds, n)))


def run(cell: Cell, size: str) -> Run:
    """Cluster the features of a cell."""
    seed = cell.seed or 0
    if cell.method == "best":
        return compare_spaces(cell.data, size, seed)
    X, y = digits(size, seed, cell.method) if cell.data == "digits" else given(cell.data)
    K = len(np.unique(y))
    if cell.setting:
        X = flatten_spectrum(X, float(cell.setting))
    single: list[float] = []

    def solve_and_score(*arguments: object) -> object:
        solution = solve(*arguments)
        single.append(clustering_accuracy(y, solution.labels))
        return solution

    solve, start.solve = start.solve, solve_and_score
    try:
        Q = smoothed_clusters(X, smoothing_graph(X, K, SETTINGS.metric), K, SETTINGS, seed)
    finally:
        start.solve = solve
    threshold = critical_m(X[:: max(len(X) // start.SAMPLED, 1)], "cosine")
    found = {"runs": single[: len(start.INITS)], "critical_m": threshold}
    return {**evaluate(y, Q.argmax(1)), **found, "settings": {"m": SETTINGS.m, "rows": len(X)}}


@lru_cache(1)
def digits(size: str, seed: int, method: str) -> tuple[Tensor, np.ndarray]:
    """Return digits in the space of a method, after pre-training by digits/fast, and classes."""
    recipe = Recipe.of("digits/fast").override(CHANGES.get(size, ()))
    space = {"hidden layer": "hidden", "projections": "projections"}.get(method, "features")
    rows, y = rows_of("digits", size, seed, recipe)
    return rows[space], y


def rows_of(
    data: str, size: str, seed: int, recipe: Recipe
) -> tuple[dict[str, Tensor], np.ndarray]:
    """Return what a pre-trained network makes of images in every space, and the classes."""
    end = Experiment(data, size, seed, recipe).pretrained()
    feed = Feed(images(data, size), torch.device("cpu"))
    y = images(data, size).y
    model = build_model(recipe, len(np.unique(y)), seed=seed)
    model.load_state_dict(read_weights(end.weights))
    spaces, views = distance_spaces(model.pretext), Views(recipe.views)
    estimate_statistics(nn.Sequential(model.backbone, spaces["projections"]), views, feed)
    X = infer(model, views, feed)[0]
    return {space: outputs_of(layers, X, X.shape[1]) for space, layers in spaces.items()}, y


def compare_spaces(data: str, size: str, seed: int) -> Run:
    """Choose a space as DPAC's start does, and score the clusters of all three."""
    name, changes = RECIPES["digits" if data == "digits-byol" else data]
    changes = (*changes, *BYOL) if data == "digits-byol" else changes
    recipe = Recipe.of(name).override((*changes, *CHANGES.get(size, ()), *ALL))
    source = {"mnist-mlp": "mnist-test", "digits-byol": "digits"}.get(data, data)
    rows, y = rows_of(source, size, seed, recipe)
    found = start.compare_spaces(rows, len(np.unique(y)), recipe.cluster, seed)
    fit = {space: value for space, (value, _) in found.items()}
    accs = {space: clustering_accuracy(y, Q.argmax(1)) for space, (_, Q) in found.items()}
    best = max(fit, key=lambda space: fit[space])
    scores = evaluate(y, found[best][1].argmax(1))
    return {**scores, "space": best, "fit": fit, "accs": accs}


@lru_cache(1)
def given(name: str) -> tuple[Tensor, np.ndarray]:
    """Return features of a file or of a network that others have trained, and the classes."""
    X, y = some_rows(name, MOST)
    return torch.from_numpy(np.ascontiguousarray(X, np.float32)), y


@torch.no_grad()
def flatten_spectrum(features: Tensor, power: float) -> Tensor:
    """Return unit-length features in their principal directions, each divided by a power.

    >>> rows = torch.tensor([[1.0, 0.25], [-1.0, 0.25], [1.0, -0.25], [-1.0, -0.25]])
    >>> flat = flatten_spectrum(rows, 0.25)[0].abs()
    >>> round(float(flat[0] / flat[1]), 3)
    2.0
    """
    X = F.normalize(features.float(), dim=1)
    X = X - X.mean(0)
    variance, directions = torch.linalg.eigh((X.T @ X / len(X)).double().cpu())
    variance, directions = variance.flip(0)[:DIRECTIONS], directions.flip(1)[:, :DIRECTIONS]
    least = max(1e-5 * float(variance[0]), 1e-30)  # of rounding, or of rows that are all equal
    return X @ (directions * variance.clamp(min=least) ** -power).to(X)


STUDY = Study(
    "spaces", cells, run, seeds=10, shown=("acc", "nmi", "critical_m"), sizes=("full", "tiny")
)
