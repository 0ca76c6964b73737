"""Figure 2: accuracy and errors of the targets by epoch, offline every ten epochs and online.

A point of a curve has the network's ACC after the epoch, and of the targets of that epoch ACC and
errors: the share of images that the network had right before the epoch and their target has wrong.
These are runs of Table 7, which are not trained again; docs/make_fig2_figure.py draws them.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.paper.deep import available
from benchmarks.paper.table7 import NAMES, clustered
from benchmarks.paper.training import curve
from benchmarks.record import Cell
from benchmarks.study import DEEP_SIZES, Run, Study

CURVES = (("dpac-opa", "online"), ("offline-pac", "20"), ("offline-k-means", "20"))


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every curve of the figure."""
    for data in available(*NAMES, size=size):
        for method, runs in CURVES:
            yield from (Cell(data, method, runs, seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Return the curve of a run of Table 7."""
    experiment, pretrained, end = clustered(cell, size)
    return experiment.row(pretrained, end) | {"curve": curve(end.folder, end.stage)}


STUDY = Study("fig2", cells, run, seeds=1, sizes=DEEP_SIZES)
