"""Table 5a: OPA beside three contrastive losses, with the same number of epochs.

SimCLR+OPA and DPAC share their pre-training: WCL with uniform probabilities is SimCLR's loss. MoCo
has its own, at the same temperature. At the sizes small and tiny a fully connected network clusters
scikit-learn's digits, and MoCo's queue has 1,024 keys.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.paper.deep import ON_GPU, Experiment, available
from benchmarks.record import Cell
from benchmarks.study import DEEP_SIZES, Run, Study

METHODS = {"simclr-opa": "simclr", "moco-opa": "moco", "dpac-opa": "wcl"}


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table."""
    for data in available("cifar10", size=size):
        for seed in range(seeds):
            yield from (Cell(data, method, seed=seed) for method in METHODS)


def run(cell: Cell, size: str) -> Run:
    """Train the clustering stage with the cell's pretext task."""
    experiment = Experiment.of(cell.data, size, cell.seed)
    settings: list[str] = []
    if cell.method != "dpac-opa":
        settings = [f"pretext.task={METHODS[cell.method]}"]
    if cell.method == "moco-opa":
        settings += [] if size in ON_GPU else ["pretext.queue_size=1024"]
    pretrained = experiment.pretrained(*(settings if cell.method == "moco-opa" else ()))
    return experiment.row(pretrained, experiment.trained("cluster", pretrained, *settings))


STUDY = Study("table5a", cells, run, seeds=1, sizes=DEEP_SIZES)
