"""Table 4: DPAC with both objectives, and with self-labelling.

The recipe is NAME/fast; with `--only paper` it is NAME/paper (1,000 + 200 epochs). Where
PROBAGG_IMAGENET names no folder, Imagenette stands in for ImageNet-10 under its own name. At the
sizes small and tiny a fully connected network clusters scikit-learn's digits.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.paper.deep import Experiment, available
from benchmarks.record import Cell
from benchmarks.study import DEEP_SIZES, Run, Study

NAMES = ("cifar10", "cifar100-20", "stl10", "imagenet10", "imagenet-dogs")
METHODS = {  # settings of the clustering stage
    "dpac-jpac": ("cluster.objective=pac",),
    "dpac-opa": (),
    "dpac-opa-self-label": (),
    "dpac-jpac-self-label": ("cluster.objective=pac",),  # not in the paper
}


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table."""
    for recipe in ("", "paper") if size == "full" else ("",):
        for data in available(*NAMES, size=size):
            for seed in range(seeds):
                yield from (Cell(data, method, recipe, seed) for method in METHODS)


def run(cell: Cell, size: str) -> Run:
    """Train what is not there yet of pre-training, clustering and self-labelling."""
    experiment = Experiment.of(cell.data, size, cell.seed, cell.setting or "fast")
    pretrained = experiment.pretrained()
    end = experiment.trained("cluster", pretrained, *METHODS[cell.method])
    if cell.method.endswith("self-label"):
        end = experiment.trained("self_label", end)
    return experiment.row(pretrained, end)


STUDY = Study(
    "table4",
    cells,
    run,
    seeds=1,
    shown=("acc", "nmi", "ari"),
    sizes=DEEP_SIZES,
    on_request=frozenset({"paper"}),
)
