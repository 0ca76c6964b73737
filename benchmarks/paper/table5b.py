"""Table 5b: a fully connected autoencoder with OPA on MNIST.

The network is DEC's, since the paper does not describe its own. The recipe is mnist/fast, 30 + 30
epochs on 70,000 images; at size small 10 + 10 epochs on the first 10,000. At size tiny a smaller
autoencoder clusters scikit-learn's digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the modules below are

from collections.abc import Iterable

from paper.deep import Experiment
from paper.study import Cell, Run, Study, main

from probagg import Recipe

SHORT = ("pretrain.epochs=10", "cluster.epochs=10")
TINY = (
    "network.backbone=mlp", "network.layers=[64,10]", "network.classifier=[]",
    "pretext.task=autoencoder", "pretext.views=['weak']", "pretext.head=[64]",
    "pretrain.epochs=3", "cluster.epochs=3",
)  # fmt: skip
RECIPES = {"full": ("mnist", ()), "small": ("mnist", SHORT), "tiny": ("digits", TINY)}


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table."""
    return (Cell(RECIPES[size][0], "ae-opa", seed=seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Pre-train the autoencoder and cluster with it."""
    data, changes = RECIPES[size]
    experiment = Experiment(data, size, cell.seed, Recipe.of(f"{data}/fast").override(changes))
    pretrained = experiment.pretrained()
    return experiment.row(pretrained, experiment.trained("cluster", pretrained))


STUDY = Study("table5b", cells, run, seeds=3, shown=("acc", "nmi"))

if __name__ == "__main__":
    main(STUDY)
