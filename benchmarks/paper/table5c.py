"""Table 5c: DPAC with and without the entropy of the mean assignment as a regularisation (CR) term.

The paper does not print the weight of the term; here it is 1. At the sizes small and tiny a fully
connected network clusters scikit-learn's digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from benchmarks.paper.deep import Experiment, available
from benchmarks.paper.offline import RegularizedStage
from benchmarks.paper.training import ClusterStageMaker
from benchmarks.record import Cell
from benchmarks.study import DEEP_SIZES, Run, Study
from probagg.dpac.stages import ClusterStage

METHODS = {"dpac-jpac": ("cluster.objective=pac",), "dpac-opa": ()}
STAGES: dict[str, ClusterStageMaker] = {
    "with-cr": partial(RegularizedStage, weight=1.0),
    "without-cr": ClusterStage,
}


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table."""
    for data in available("cifar10", size=size):
        for seed in range(seeds):
            for method in METHODS:
                yield from (Cell(data, method, setting, seed) for setting in STAGES)


def run(cell: Cell, size: str) -> Run:
    """Train the clustering stage with the cell's objective and term."""
    experiment = Experiment.of(cell.data, size, cell.seed)
    pretrained = experiment.pretrained()
    settings, clustering = METHODS[cell.method], STAGES[cell.setting]
    end = experiment.trained("cluster", pretrained, *settings, clustering=clustering)
    return experiment.row(pretrained, end)


STUDY = Study("table5c", cells, run, seeds=1, sizes=DEEP_SIZES)
