"""Time and GPU memory of each stage of a recipe, and of a whole training by it.

Images are random, which costs what real ones cost, and as many as the set has that the recipe is
for. Each stage runs a few epochs, compiled where a whole training compiles it; the first, with
compiling and recording, is left out of the speed. A stage is recorded as soon as it has run.

    python -m benchmarks recipe_cost [--recipes cifar10/fast own/fast] [--stages pretrain]
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

from benchmarks.record import Cell, Results
from probagg import DPAC, Recipe
from probagg.dpac.engine import LONG

STAGES = ("pretrain", "cluster", "self_label")
# Images of the sets that the recipes are for, and the classes.
SETS = {"cifar10": (60_000, 10), "cifar100-20": (60_000, 20), "imagenet10": (13_000, 10)}
RECIPES = ("cifar10/fast", "imagenet10/fast", "cifar10/paper")
GIB = 2**30


def measure(
    recipe: Recipe, stage: str, n: int, K: int, *, epochs: int, device: str
) -> dict[str, Any]:
    """Train one stage for some epochs; return minutes of all of its epochs, and peak memory."""
    size = recipe.decode_size or recipe.views.size
    shape = (n, size, size, recipe.channels)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    short = recipe.override([f"{each}.epochs={epochs * (each == stage)}" for each in STAGES])
    plan = getattr(recipe, stage)
    compiled = torch.cuda.is_available() and plan.epochs * (n // plan.batch_size) > LONG
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        DPAC(K, recipe=short, out_dir=out, random_state=0, device=device, compile=compiled).fit(
            images
        )
        lines = (Path(out) / "metrics.jsonl").read_text().splitlines()
    rate = statistics.median(json.loads(line)["images_per_second"] for line in lines[1:])
    found = {"images_per_second": rate, "epochs": plan.epochs, "n_images": n, "compiled": compiled}
    found["minutes"] = plan.epochs * n / rate / 60.0
    if torch.cuda.is_available():
        found["gib"] = torch.cuda.max_memory_allocated() / GIB
    return found | {"seconds": time.perf_counter() - began}


def main() -> None:
    """Run and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--images", type=int, help="in place of those of the set")
    parser.add_argument("--epochs", type=int, default=3, help="of each stage")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    results = Results.open("recipe_cost", "small" if arguments.images else "full")
    for name in arguments.recipes:
        n_images, K = SETS.get(name.partition("/")[0], (60_000, 10))
        for stage in arguments.stages:
            found = measure(
                Recipe.of(name),
                stage,
                arguments.images or n_images,
                K,
                epochs=arguments.epochs,
                device=arguments.device,
            )
            results.put(Cell("random images", name, stage).row(found))
            print(name, stage, json.dumps(found), flush=True)
    print(f"written to {results.path}")
