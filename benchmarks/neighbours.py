"""What do neighbours know that PAC does not? Ten runs of PAC, then each asked.

    python benchmarks/neighbours.py [NAME ...]      needs PROBAGG_DATA

For every run: PAC's ACC, the ACC once probabilities were averaged along the nearest rows
(`probagg.dpac.neighbours`), and what can be seen without labels: PAC's objective and how sure the
neighbours are. Then which run the lowest objective takes, which the surest neighbours, and which
these of the runs within a percent of the lowest objective, as `cluster.start = "pac"` does.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import record

from probagg import PAC, clustering_accuracy
from probagg.data.benchmarks import load
from probagg.dpac.neighbours import ask, nearest, sharpness
from probagg.dpac.starts import ALIKE

NAMES = ("pendigits", "isolet", "mnist-test", "coil100", "cifar10-simclr")
RUNS = 10


def read(name: str) -> tuple[np.ndarray, np.ndarray, str, float]:
    """Features, classes, metric and m."""
    if name == "cifar10-simclr":
        with np.load(Path(os.environ["PROBAGG_DATA"]) / "cifar10_simclr.npz") as file:
            return file["X"].astype(np.float32), file["y"], "cosine", 1.02
    data = load(name)
    return np.asarray(data.X, np.float32), data.y, "sqeuclidean", PAC().m


def compare(name: str) -> dict[str, Any]:
    """Ten runs, and which of them three ways to choose would take."""
    X, y, metric, m = read(name)
    n_clusters = len(np.unique(y))
    near = nearest(torch.from_numpy(X), n_clusters, metric)
    runs = []
    for seed in range(RUNS):
        pac = PAC(n_clusters, m=m, metric=metric, random_state=seed).fit(X)
        Q = ask(near, torch.from_numpy(pac.probabilities_).float())
        row = {"objective": pac.objective_, "sharpness": sharpness(Q)}
        row["pac"] = clustering_accuracy(y, pac.labels_)
        row["asked"] = clustering_accuracy(y, Q.argmax(1))
        runs.append({key: float(value) for key, value in row.items()})
    lowest = min(runs, key=lambda r: r["objective"])
    alike = [r for r in runs if r["objective"] <= (1.0 + ALIKE) * lowest["objective"]]
    by = {
        "lowest objective": lowest,
        "surest neighbours": max(runs, key=lambda r: r["sharpness"]),
        "surest within 1 %": max(alike, key=lambda r: r["sharpness"]),
    }
    return {"data": name, "metric": metric, "m": m, "nearest": near.shape[1], "runs": runs, **by}


def main() -> None:
    """Print and record every set."""
    warnings.simplefilter("ignore")
    results = []
    for name in sys.argv[1:] or NAMES:
        result = compare(name)
        results.append(result)
        print(f"{name:15} {result['nearest']} nearest", end="")
        for key in ("pac", "asked"):
            values = [100 * run[key] for run in result["runs"]]
            print(f"   {key} {np.mean(values):.1f} ± {np.std(values):.1f}", end="")
        for way in ("lowest objective", "surest neighbours", "surest within 1 %"):
            chosen = result[way]
            print(f"   {way}: {100 * chosen['pac']:.1f}, {100 * chosen['asked']:.1f}", end="")
        print(flush=True)
    record("neighbours", results)


if __name__ == "__main__":
    main()
