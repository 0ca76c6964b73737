"""Smoothing over the kNN graph, and the choice of a start, for PAC on features of photos.

    python -m benchmarks photo_smoothing [NAME ...]      needs PROBAGG_DATA

PAC runs as in `probagg cluster photos/` (cosine, m="auto", three starts per seed),
five seeds per set. For each start: ACC of PAC, of its smoothed probabilities, and of the clusters
whose sums are those of the smoothed probabilities ("refitted", which `predict` could use); and what
is known without labels. A rule is derived on the sets of `DERIVE` and tested on those of `TEST`.
cifar100-20:dpac is X and y of a file cifar100-20.npz in PROBAGG_FEATURES, which
`python -m benchmarks training --features` writes.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score

from benchmarks.photo_sets import load
from benchmarks.record import Cell, Row, record
from probagg import PAC, Moments, aggregate, clustering_accuracy
from probagg.aggregation import assign
from probagg.neighbours.graph import modularity
from probagg.neighbours.smoothing import sharpness, smooth, smoothing_graph

DERIVE = (
    "dogs:lite0", "imagenette:lite0-tail", "cifar10:simclr", "cifar100-20:dpac-10",
    "mnist-test:pixels", "cifar10:lite0-tail", "imagenette:lite0-500", "coil100:lite0-10",
)  # fmt: skip
TEST = (
    "imagenette:lite0", "dogs:lite0-10", "dogs:lite0-tail", "cifar10:simclr-tail",
    "cifar100-20:dpac", "mnist-test:pixels-tail", "cifar10:lite0", "cifar100-20:dpac-tail",
)  # fmt: skip
SEEDS, STARTS = 5, 3
METRIC = "cosine"


def measure(name: str) -> list[Row]:
    """Return every start of every seed on one set."""
    X, y = load(name)
    n_clusters = len(np.unique(y))
    near = smoothing_graph(torch.from_numpy(X), n_clusters, METRIC)
    shared = {"m": "auto", "metric": METRIC}
    settings = {"rows": len(X), "n_clusters": n_clusters, "nearest": near.shape[1]}
    rows = []
    for seed in range(SEEDS):
        labels = []
        for start in range(STARTS):
            pac = PAC(n_clusters, **shared, random_state=100 * seed + start)
            run, pair = look(pac.fit(X), X, y, near)
            rows.append(Cell(name, "pac", f"start {start}", seed).row(run | {"settings": settings}))
            labels.append(pair)
        plain, smoothed = (mean_agreement(way) for way in zip(*labels, strict=True))
        found = {"agreement": plain, "agreement_smoothed": smoothed, "settings": settings}
        rows.append(Cell(name, "agreement", seed=seed).row(found))
    return rows


def look(pac: PAC, X: np.ndarray, y: np.ndarray, near: Any) -> tuple[dict[str, float], Any]:
    """Return one start: ACC, and what is known of it without labels; then labels of both ways."""
    P = torch.from_numpy(pac.probabilities_).float()
    Q = smooth(near, P)
    labels, smoothed = P.argmax(1).numpy(), Q.argmax(1).numpy()
    S = aggregate(X, Moments.of(X, Q.numpy(), METRIC), METRIC, balance=pac.balance)
    refitted = assign(S, pac.m_).argmax(1)
    found = {
        "objective": pac.objective_,
        "pac": clustering_accuracy(y, labels),
        "smoothed": clustering_accuracy(y, smoothed),
        "smoothed_5": clustering_accuracy(y, smooth(near, P, rounds=5).argmax(1).numpy()),
        "refitted": clustering_accuracy(y, refitted),
        "modularity": modularity(near, P.argmax(1)),
        "modularity_smoothed": modularity(near, Q.argmax(1)),
        "sharpness": sharpness(P),
        "sharpness_smoothed": sharpness(Q),
        "changed": (labels != smoothed).mean(),
    }
    return {key: float(value) for key, value in found.items()}, (labels, smoothed)


def mean_agreement(labels: Any) -> float:
    """Return the mean adjusted Rand index of pairs of labellings."""
    pairs = itertools.combinations(labels, 2)
    return float(np.mean([adjusted_rand_score(a, b) for a, b in pairs]))


def main() -> None:
    """Measure and record every set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    warnings.simplefilter("ignore")
    rows = []
    for name in parser.parse_args().names or DERIVE + TEST:
        found = measure(name)
        report(found)
        rows += found
    record("photo_smoothing", rows)


def report(rows: list[Row]) -> None:
    """Print the means over seeds of one set: of the lowest objective, of the highest modularity."""
    starts = [row for row in rows if row.method == "pac"]
    seeds = [[row for row in starts if row.seed == seed] for seed in range(SEEDS)]
    lowest = [min(runs, key=lambda run: run["objective"]) for runs in seeds]
    modular = [max(runs, key=lambda run: run["modularity"]) for runs in seeds]
    settings = rows[0].settings
    print(f"{rows[0].data:24} {settings['rows']:5}", end="")
    for chosen in (lowest, modular):
        for key in ("pac", "smoothed_5", "smoothed", "refitted"):
            print(f" {100 * np.mean([run[key] for run in chosen]):5.1f}", end="")
        print(" |", end="")
    print(flush=True)
