"""What the clustering stage adds to PAC's clusters of pre-trained features, term by term.

    python -m benchmarks cluster_stage        PROBAGG_DATA has mnist.npz; 2.5 h on one core

All ways begin with the same weights, and but for `random` with a classifier fitted to PAC's
smoothed clusters in the best space (of an autoencoder among the features):

    start      these clusters
    more       those after as many epochs more of pre-training, which replace the stage
    pretext    only the pretext task trains the backbone, without P
    gate       only the pretext task, whose negatives P weighs (Eq. 11)
    opa, jpac  also the clustering term (Eq. 12 or 13), by a share of its gradient
    unguarded  OPA with all of it, at balance 1, in random batches; all others but `random` have
               balance 0.5 and stratified batches
    random     the same from a random classifier, with distances among the features (the paper's)

Distances (Eq. 9) are measured in the space of the start, and by ways named `features` among the
features. Digits and, by a fully connected network, MNIST's test set (mnist-mlp) are trained by
contrast; mnist-test is the same set by an autoencoder, which P does not weigh.

Settings were compared on earlier seeds, whose labels were read; the seeds here are blind.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from benchmarks.paper.deep import CHANGES, Experiment
from benchmarks.record import Cell
from benchmarks.study import Run, Study
from probagg import Recipe
from probagg.dpac.stages import ClusterStage
from probagg.neighbours.graph import modularity

FIRST_SEED = {"digits": 20, "mnist-mlp": 6, "mnist-test": 5}
SEEDS = {"digits": 3, "mnist-mlp": 2, "mnist-test": 3}  # at most
RECORDED = "acc", "nmi", "ari", "knn", "pac_on_features", "state", "seconds", "pretrain_seconds"
MLP = (
    "network.backbone=mlp", "network.layers=[512,512,256]", "pretext.head=[256,64]",
    "views.size=28", "views.n_operations=0", "decode_size=28",
    "pretrain.epochs=40", "pretrain.batch_size=512",
    "cluster.epochs=30", "cluster.batch_size=512",
)  # fmt: skip
RECIPES = {  # and changes
    "digits": ("digits/fast", ()),
    "mnist-mlp": ("digits/fast", MLP),
    "mnist-test": ("mnist/fast", ()),
}
ALL = ("cluster.start=pac", "cluster.space=best", "cluster.stratify=true", "cluster.balance=0.5")
STILL = ("cluster.epochs=1", "cluster.learning_rate=1e-12")  # the classifier stays as it is fitted
UNGUARDED = ("cluster.stratify=false", "cluster.balance=1", "cluster.backbone_gradient=1")
RANDOM = ("cluster.start=random", "cluster.space=features", *UNGUARDED)
PLAIN = ("pretext.task=simclr",)  # in place of the weighted contrast
SHARES = {"opa": (0.01, 0.1, 1.0), "jpac": (0.1, 1.0)}  # of the clustering term's gradient
AMONG_FEATURES = "features "  # begins the names of ways that measure distances there


class AmongFeatures(ClusterStage):
    """The stage with distances among the features, wherever its start found clusters."""

    def clean_outputs(self, clean: Tensor) -> tuple[Tensor, Tensor]:
        x = self.model.backbone(clean)
        return x, self.model.classifier(x)


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run."""
    terms = [(method, str(share)) for method, shares in SHARES.items() for share in shares]
    for data in RECIPES if size == "full" else ("digits",):
        ways = [("start", ""), ("more", ""), ("pretext", ""), *terms]
        if data != "mnist-test":
            ways += [("gate", ""), ("unguarded", ""), ("random", "")]
        if data == "digits":  # the best space of mnist-mlp is the features
            ways += [(f"{AMONG_FEATURES}opa", share) for share in ("0.01", "1.0")]
        for seed in range(FIRST_SEED[data], FIRST_SEED[data] + min(seeds, SEEDS[data])):
            yield from (Cell(data, *way, seed) for way in ways)


def run(cell: Cell, size: str) -> Run:
    """Train the cell's way from the weights that all ways of its seed share."""
    name, changes = RECIPES[cell.data]
    recipe = Recipe.of(name).override((*changes, *CHANGES.get(size, ()), *ALL))
    images = "mnist-test" if cell.data == "mnist-mlp" else cell.data
    experiment = Experiment(images, size, cell.seed or 0, recipe)
    pretrained = experiment.pretrained()
    start = pretrained
    if cell.method == "more":
        epochs = recipe.pretrain.epochs + recipe.cluster.epochs
        start = experiment.pretrained(f"pretrain.epochs={epochs}")
    end = experiment.trained("cluster", start, *settings(cell), clustering=stage_of(cell))
    near = np.load(pretrained.folder / "pretrain.neighbours.npy")
    labels = np.load(end.folder / "cluster.labels.npy")
    row = experiment.row(pretrained, end)
    found = {name: row[name] for name in RECORDED} | {"modularity": modularity(near, labels)}
    return found | {"settings": {"changes": [*changes, *ALL, *settings(cell)]}}


def stage_of(cell: Cell) -> type[ClusterStage]:
    """Return the stage that measures distances where a way does."""
    return AmongFeatures if cell.method.startswith(AMONG_FEATURES) else ClusterStage


def settings(cell: Cell) -> tuple[str, ...]:
    """Return what a way changes in the recipe."""
    method = cell.method.removeprefix(AMONG_FEATURES)
    if method in ("start", "more"):
        return STILL
    if method in ("random", "unguarded"):
        return RANDOM if method == "random" else UNGUARDED
    share = f"cluster.backbone_gradient={cell.setting or 0.0}"
    if method == "pretext":
        return (share,) if cell.data == "mnist-test" else (share, *PLAIN)
    return (share, "cluster.objective=pac") if method == "jpac" else (share,)


STUDY = Study(
    "cluster_stage", cells, run, seeds=3, shown=("acc", "nmi", "modularity"), sizes=("full", "tiny")
)
