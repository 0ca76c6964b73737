"""Which run of PAC to choose, and what smoothing over the kNN graph adds.

    python -m benchmarks neighbours [NAME or FILE.npz ...]      needs PROBAGG_DATA

Ten runs of PAC and two annealed ones. For each run: PAC's ACC, the ACC after smoothing ("asked" in
the results; `probagg.neighbours.smoothing`), and what is known without labels: PAC's objective, the
sharpness of the smoothed probabilities, and their modularity. Then the run that each rule chooses:
of the ten the lowest objective; of the annealed ones the lower; of all twelve the sharpest
("surest"), and the highest modularity. `cluster.start = "pac"` compares them with runs from
divided clusters (`probagg.dpac.start.recut`) too.
A file has features X of photos and their classes y; `python -m benchmarks training --features`
writes one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.data import open_lab_rows, read_features
from benchmarks.record import Cell, Row, record
from benchmarks.study import percent
from probagg import PAC, clustering_accuracy
from probagg.dpac.start import INITS
from probagg.neighbours.graph import modularity
from probagg.neighbours.smoothing import sharpness, smooth, smoothing_graph

NAMES = ("pendigits", "isolet", "mnist-test", "coil100", "cifar10-simclr")
LOW = 1e-4  # above the lowest objective: the same optimum


def read(name: str) -> tuple[np.ndarray, np.ndarray, str, float]:
    """Return features, classes, metric and m."""
    if name.endswith(".npz"):
        return *read_features(Path(name)), "cosine", 1.02
    X, y, metric = open_lab_rows(name)
    return X, y, metric, 1.02 if metric == "cosine" else PAC().m


def compare(name: str) -> list[Row]:
    """Return all runs; `chosen_by` of a run names the rules that choose it."""
    X, y, metric, m = read(name)
    n_clusters = len(np.unique(y))
    near = smoothing_graph(torch.from_numpy(X), n_clusters, metric)
    found: list[dict[str, Any]] = []
    for seed, init in enumerate(INITS):
        began = time.perf_counter()
        pac = PAC(n_clusters, m=m, metric=metric, init=init, random_state=seed).fit(X)
        seconds = time.perf_counter() - began
        Q = smooth(near, torch.from_numpy(pac.probabilities_).float())
        found.append(
            {
                "init": init,
                "seconds": seconds,
                "objective": pac.objective_,
                "sharpness": sharpness(Q),
                "modularity": modularity(near, Q.argmax(1)),
                "pac": float(clustering_accuracy(y, pac.labels_)),
                "asked": float(clustering_accuracy(y, Q.argmax(1))),
            }
        )
    plain = [run for run in found if run["init"] != "annealed"]
    annealed = [run for run in found if run["init"] == "annealed"]
    chosen = {
        "lowest": min(plain, key=lambda run: run["objective"]),
        "annealed": min(annealed, key=lambda run: run["objective"]),
        "surest": max(found, key=lambda run: run["sharpness"]),
        "most modular": max(found, key=lambda run: run["modularity"]),
    }
    settings = {"metric": metric, "m": m, "nearest": near.shape[1]}
    rows = []
    for seed, run in enumerate(found):
        rules = [rule for rule, best in chosen.items() if best is run]
        values = {key: value for key, value in run.items() if key != "init"}
        cell = Cell(Path(name).stem, run["init"], seed=seed)
        rows.append(cell.row(values | {"chosen_by": rules, "settings": settings}))
    return rows


def report(rows: list[Row]) -> None:
    """Print a set: the plain runs, how many ended low and how long that took, and the choices."""
    plain = [row for row in rows if row.method != "annealed"]
    annealed = [row for row in rows if row.method == "annealed"]
    lowest = min(row["objective"] for row in rows)
    print(f"{rows[0].data:15}", end="")
    for key in ("pac", "asked"):
        print(f"   {key} {percent(*(row[key] for row in plain))}", end="")
    for kind, runs in (("plain", plain), ("annealed", annealed)):
        low = sum(run["objective"] <= (1.0 + LOW) * lowest for run in runs)
        print(f"   {kind} {low} of {len(runs)} lowest", end="")
    times = [np.median([run.seconds for run in runs]) for runs in (annealed, plain)]
    print(f"   {times[0] / times[1]:.1f} times the time", end="")
    for rule in ("lowest", "annealed", "surest", "most modular"):
        (run,) = (row for row in rows if rule in row["chosen_by"])
        print(f"   {rule} (+{100 * (run['objective'] / lowest - 1):.2f} %): ", end="")
        print(f"{100 * run['pac']:.1f}, {100 * run['asked']:.1f}", end="")
    print(flush=True)


def main() -> None:
    """Print and record every set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME or FILE.npz")
    warnings.simplefilter("ignore")
    rows = []
    for name in parser.parse_args().names or NAMES:
        found = compare(name)
        report(found)
        rows += found
    record("neighbours", rows)
