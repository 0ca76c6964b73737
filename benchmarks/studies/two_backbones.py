"""PAC on the features of two networks, each of length 1 and side by side, against one of them.

    python -m benchmarks two_backbones      needs PROBAGG_DATA

CIFAR-10, 2,000 photos: EfficientNet-Lite0 (trained with ImageNet's labels) and a ResNet-18 that was
pre-trained on CIFAR-10 without labels. ImageNet-Dogs: EfficientNet-Lite0 and mean colours of an
8 x 8 grid, a second space that knows little. PAC runs as in `probagg cluster photos/`, but with one
start.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.photo_sets import MOST, lite_features, pixels, some
from benchmarks.record import Cell, Row, record
from benchmarks.study import percent
from probagg import PAC, clustering_accuracy
from probagg.app.embed.joint import joined

SEEDS = 5
GRID = 8


def cifar10() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return two sets of features of the same photos, and their classes."""
    X, y = lite_features("cifar10")
    with np.load(Path(os.environ["PROBAGG_DATA"]) / "cifar10_simclr.npz") as file:
        rows = some(len(file["y"]), MOST["cifar10"])
        assert (file["y"][rows] == y).all(), "the rows of the two files differ"
        return {"lite0": X, "simclr": file["X"][rows].astype(np.float32)}, y


def dogs() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return features of a network and mean colours of the same photos, and their classes."""
    X, y = lite_features("dogs")
    photos, _ = pixels("dogs")
    n, side = len(photos), photos.shape[1] // GRID
    grid = photos.reshape(n, GRID, side, GRID, side, 3).mean((2, 4)).reshape(n, -1)
    return {"lite0": X, "colours": (grid - grid.mean(0)).astype(np.float32)}, y


def measure(name: str, features: dict[str, np.ndarray], y: np.ndarray) -> list[Row]:
    """Return ACC of every seed on each set of features and on all of them joined."""
    K = len(np.unique(y))
    sets = features | {",".join(features): joined(list(features.values()))}
    rows = []
    for key, X in sets.items():
        settings: dict[str, Any] = {"m": "auto", "metric": "cosine"}
        pac = PAC(K, **settings, balance="auto", random_state=0).fit(X)
        runs = [pac.labels_] + [
            PAC(K, **settings, balance=pac.balance_, random_state=seed).fit(X).labels_
            for seed in range(1, SEEDS)
        ]
        acc = [float(clustering_accuracy(y, labels)) for labels in runs]
        for seed, each in enumerate(acc):
            found = {"acc": each, "settings": {"rows": len(y)}}
            rows.append(Cell(name, key, seed=seed).row(found))
        print(f"{name} {key}: {percent(*acc)}", flush=True)
    return rows


def main() -> None:
    """Measure and record both sets."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    warnings.simplefilter("ignore")
    sets = {"cifar10": cifar10, "dogs": dogs}
    record("two_backbones", [row for name, read in sets.items() for row in measure(name, *read())])
