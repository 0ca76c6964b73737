"""Time and GPU memory of each stage of a recipe, and of a whole training by it.

Images are random, which costs what real ones cost. Each stage runs a few short epochs, of which the
first, with compiling and recording, is left out.

    python -m benchmarks recipe_cost [--recipes cifar10/fast cifar10/paper] [--steps 40]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import Cell, record
from probagg import DPAC, Recipe
from probagg.dpac.engine import Progress

STAGES = ("pretrain", "cluster", "self_label")
# Images of the sets that the recipes are for, and the classes.
SETS = {"cifar10": (60_000, 10), "cifar100-20": (60_000, 20), "imagenet10": (13_000, 10)}
RECIPES = ("cifar10/fast", "cifar10/paper", "imagenet10/fast")
GIB = 2**30


def measure(recipe: Recipe, n: int, K: int, epochs: int, device: str) -> dict[str, Any]:
    """Train each stage for some epochs; return images per second and peak memory by stage."""
    size = recipe.decode_size or recipe.views.size
    shape = (n, size, size, recipe.channels)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    short = recipe.override([f"{stage}.epochs={epochs}" for stage in STAGES])
    peaks: dict[str, float] = {}

    def watch(progress: Progress) -> None:
        if not torch.cuda.is_available():
            return
        if progress.stage not in peaks:
            torch.cuda.reset_peak_memory_stats()
        peaks[progress.stage] = torch.cuda.max_memory_allocated() / GIB

    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        model = DPAC(K, recipe=short, out_dir=out, random_state=0, device=device, progress=watch)
        model.fit(images)
        seconds = time.perf_counter() - began
        lines = (Path(out) / "metrics.jsonl").read_text().splitlines()
    speeds: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for line in map(json.loads, lines):
        speeds[line["stage"]].append(line["images_per_second"])
    steady = {stage: statistics.median(found[1:]) for stage, found in speeds.items() if found[1:]}
    return {"images_per_second": steady, "gib": peaks, "seconds": seconds}


def main() -> None:
    """Run and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--steps", type=int, default=40, help="of an epoch of pre-training")
    parser.add_argument("--epochs", type=int, default=3, help="of each stage")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.recipes:
        recipe = Recipe.of(name)
        n_images, K = SETS.get(name.partition("/")[0], (60_000, 10))
        n = arguments.steps * recipe.pretrain.batch_size
        found = measure(recipe, n, K, arguments.epochs, arguments.device)
        epochs = {stage: getattr(recipe, stage).epochs for stage in STAGES}
        found["minutes"] = {
            stage: epochs[stage] * n_images / speed / 60.0
            for stage, speed in found["images_per_second"].items()
        }
        found |= {"n_images": n_images, "epochs": epochs}
        rows.append(Cell("random images", name).row(found))
        print(name, json.dumps(found), flush=True)
    record("recipe_cost", rows, settings={"steps": arguments.steps})
