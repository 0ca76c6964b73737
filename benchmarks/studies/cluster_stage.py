"""What the clustering stage adds to PAC's clusters of pre-trained features, term by term.

    python -m benchmarks cluster_stage        PROBAGG_DATA has mnist.npz; 2.5 h on one core

All ways begin with the same weights, and with a classifier fitted to PAC's smoothed clusters:

    start      these clusters
    more       those after as many epochs more of pre-training, which replace the stage
    pretext    only the pretext task trains the backbone, without P
    gate       only the pretext task, whose negatives P weighs (Eq. 11)
    opa, jpac  also the clustering term (Eq. 12 or 13), by a share of its gradient
    random     OPA with all of it from a random classifier, at balance 1, in random batches

Digits are trained by contrast, MNIST's test set by an autoencoder, which P does not weigh. But for
the last way batches are stratified and balance is 0.5. Settings were compared on seeds 0 to 2,
whose labels were read; seeds 5 and later are blind. Of digits they are those from 15 on: the space
in which the start looks for clusters was decided on seeds before these.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.paper.deep import CHANGES, Experiment
from benchmarks.record import Cell
from benchmarks.study import Run, Study
from probagg import Recipe
from probagg.neighbours.graph import modularity

FIRST_SEED = {"digits": 15, "mnist-test": 5}
RECORDED = "acc", "nmi", "ari", "knn", "pac_on_features", "state", "seconds", "pretrain_seconds"
RECIPES = {"digits": "digits/fast", "mnist-test": "mnist/fast"}
ALL = ("cluster.start=pac", "cluster.stratify=true", "cluster.balance=0.5")
STILL = ("cluster.epochs=1", "cluster.learning_rate=1e-12")  # the classifier stays as it is fitted
RANDOM = (
    "cluster.start=random", "cluster.stratify=false", "cluster.balance=1",
    "cluster.backbone_gradient=1",
)  # fmt: skip
PLAIN = ("pretext.task=simclr",)  # in place of the weighted contrast
SHARES = {"opa": (0.01, 0.1, 1.0), "jpac": (0.1, 1.0)}  # of the clustering term's gradient


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run."""
    for data in RECIPES if size == "full" else ("digits",):
        ways = [("start", ""), ("more", ""), ("pretext", "")]
        ways += [("gate", ""), ("random", "")] if data == "digits" else []
        ways += [(method, str(share)) for method, shares in SHARES.items() for share in shares]
        for seed in range(FIRST_SEED[data], FIRST_SEED[data] + seeds):
            yield from (Cell(data, *way, seed) for way in ways)


def run(cell: Cell, size: str) -> Run:
    """Train the cell's way from the weights that all ways of its seed share."""
    recipe = Recipe.of(RECIPES[cell.data]).override((*CHANGES.get(size, ()), *ALL))
    experiment = Experiment(cell.data, size, cell.seed or 0, recipe)
    pretrained = experiment.pretrained()
    start = pretrained
    if cell.method == "more":
        epochs = recipe.pretrain.epochs + recipe.cluster.epochs
        start = experiment.pretrained(f"pretrain.epochs={epochs}")
    end = experiment.trained("cluster", start, *settings(cell))
    near = np.load(pretrained.folder / "pretrain.neighbours.npy")
    labels = np.load(end.folder / "cluster.labels.npy")
    row = experiment.row(pretrained, end)
    found = {name: row[name] for name in RECORDED} | {"modularity": modularity(near, labels)}
    return found | {"settings": {"changes": [*ALL, *settings(cell)]}}


def settings(cell: Cell) -> tuple[str, ...]:
    """Return what a way changes in the recipe."""
    if cell.method in ("start", "more"):
        return STILL
    if cell.method == "random":
        return RANDOM
    share = f"cluster.backbone_gradient={cell.setting or 0.0}"
    if cell.method == "pretext":
        return (share, *PLAIN) if cell.data == "digits" else (share,)
    return (share, "cluster.objective=pac") if cell.method == "jpac" else (share,)


STUDY = Study(
    "cluster_stage", cells, run, seeds=5, shown=("acc", "nmi", "modularity"), sizes=("full", "tiny")
)
