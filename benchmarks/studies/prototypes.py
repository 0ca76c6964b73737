"""BYOL with and without the contrast of PAC's cluster means, on digits.

    python -m benchmarks prototypes

The setting is the weight, `pretext.prototypes`. Scores are those of the start of DPAC: PAC's
smoothed clusters in the best of features, hidden layer and projections. `modularity` is that of
these clusters on the kNN graph of the features without the term, the same graph for all weights;
it needs no classes. All seeds are blind.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.paper.deep import CHANGES, Experiment
from benchmarks.record import Cell
from benchmarks.studies.cluster_stage import ALL
from benchmarks.studies.spaces import BYOL, rows_of
from benchmarks.study import Run, Study
from probagg import Recipe
from probagg.dpac.start import compare_spaces
from probagg.metrics import evaluate
from probagg.neighbours.graph import modularity

FIRST_SEED = 30
WEIGHTS = ("0.0", "0.1", "0.5")
EPOCHS = ("pretrain.epochs=120",)


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run."""
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        yield from (Cell("digits", "byol", weight, seed) for weight in WEIGHTS)


def run(cell: Cell, size: str) -> Run:
    """Pre-train with a weight, and score the clusters that DPAC would start from."""
    settings = (*BYOL, *EPOCHS, *CHANGES.get(size, ()), *ALL)
    plain = Recipe.of("digits/fast").override(settings)
    recipe, seed = plain.override([f"pretext.prototypes={cell.setting}"]), cell.seed or 0
    rows, y = rows_of(cell.data, size, seed, recipe)
    found = compare_spaces(rows, len(np.unique(y)), recipe.cluster, seed)
    best = max(found, key=lambda space: found[space][0])
    labels = found[best][1].argmax(1)
    without = Experiment(cell.data, size, seed, plain).pretrained()
    pretrained = Experiment(cell.data, size, seed, recipe).pretrained()
    near = np.load(without.folder / "pretrain.neighbours.npy")
    return {
        **evaluate(y, labels),
        "knn": pretrained.revealed["knn"],
        "modularity": modularity(near, labels),
        "space": best,
        "pretrain_seconds": pretrained.label_free["seconds"],
    }


STUDY = Study(
    "prototypes", cells, run, seeds=5, shown=("acc", "knn", "modularity"), sizes=("full", "tiny")
)
