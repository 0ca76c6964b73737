"""Table 6: the exponent m in OPA, beside the critical m that the features predict.

At full size DPAC clusters from pre-trained weights. At size small an OPA head with random weights
clusters frozen features: 10,000 rows of SimCLR features of CIFAR-10, MNIST's test images, and
digits; also "below" and "above", where m - 1 is 0.9 and 1.1 of the predicted critical value. Where
no cluster forms, probabilities are near 1/K (`state` is "uniform") and ACC means nothing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable

import numpy as np

from benchmarks.data import open_lab_rows
from benchmarks.paper.deep import ON_GPU, Experiment, available
from benchmarks.paper.expected import expected
from benchmarks.paper.table2 import digest, some_rows
from benchmarks.record import Cell
from benchmarks.study import DEEP_SIZES, Run, Study
from probagg import OPAHead
from probagg.aggregation import critical_m
from probagg.metrics import evaluate

NAMES = ("cifar10", "stl10", "cifar100-20")
FROZEN = {"small": ("cifar10-simclr", "mnist-test", "digits"), "tiny": ("digits",)}
PRINTED = tuple(expected("table6", "cifar10", "dpac-opa"))
NEAR = {"below": 0.9, "above": 1.1}  # of the predicted m - 1
ROWS = {"small": 10_000, "tiny": 300}
EPOCHS = {"small": 100, "tiny": 5}


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table."""
    if size in ON_GPU:
        names, method, values = available(*NAMES, size=size), "dpac-opa", PRINTED
    else:
        names, method, values = FROZEN[size], "opa-head", (*PRINTED, *NEAR)
    for data in names:
        for m in values:
            yield from (Cell(data, method, m, seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Cluster at the cell's m."""
    if size in ON_GPU:
        experiment = Experiment.of(cell.data, size, cell.seed)
        pretrained = experiment.pretrained()
        end = experiment.trained("cluster", pretrained, f"cluster.m={cell.setting}")
        return experiment.row(pretrained, end) | {"m": float(cell.setting)}
    X, y, metric = open_lab_rows(cell.data)
    X, y = some_rows(X, y, ROWS[size])
    threshold = critical_m(X, metric)
    near = NEAR.get(cell.setting)
    m = 1.0 + near * (threshold - 1.0) if near else float(cell.setting)
    head = OPAHead(
        len(np.unique(y)),
        m=m,
        metric=metric,
        init="random",
        max_epochs=EPOCHS[size],
        random_state=cell.seed,
    )
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no cluster formed is a result here
        head.fit(X)
    seconds, found = time.perf_counter() - began, head.diagnosis_
    return {
        **evaluate(y, head.labels_),
        "m": m,
        "critical_m": threshold,
        "state": found.state,
        "sharpness": found.sharpness,
        "evenness": found.evenness,
        "largest": found.largest,
        "clusters": len(np.unique(head.labels_)),
        "seconds": seconds,
        "settings": {"epochs": EPOCHS[size], "rows": len(X), "hash": digest(X)},
    }


STUDY = Study("table6", cells, run, seeds=3, sizes=DEEP_SIZES)
