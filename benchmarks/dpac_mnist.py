"""Table 5b: an autoencoder with OPA on MNIST.

python benchmarks/dpac_mnist.py [--seeds 3] [--set cluster.m=1.02 ...]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from record import record

from probagg import DPAC, PAC, Recipe
from probagg.data.benchmarks import load_images
from probagg.metrics import evaluate


def main() -> None:
    """Run and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipe", default="mnist/fast")
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--name", default="dpac_mnist")
    arguments = parser.parse_args()
    data = load_images("mnist")
    recipe = Recipe.of(arguments.recipe).override(arguments.set)
    rows = []
    for seed in range(arguments.seeds):
        began = time.perf_counter()
        dpac = DPAC(10, recipe=recipe, random_state=seed).fit(data)
        seconds = time.perf_counter() - began
        metric = recipe.cluster.metric
        pac = PAC(10, metric=metric, random_state=seed).fit(dpac.features_)
        rows.append(
            {
                "seed": seed,
                "seconds": round(seconds, 1),
                **evaluate(data.y, dpac.labels_),
                "sizes": np.bincount(dpac.labels_, minlength=10).tolist(),
                "state": dpac.diagnosis_.state,
                "sharpness": dpac.diagnosis_.sharpness,
                "pac_on_features": evaluate(data.y, pac.labels_),
            }
        )
        print(rows[-1], flush=True)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    result = {"device": where, "settings": arguments.set, "runs": rows}
    record(arguments.name, {"recipe": recipe.name, **result})


if __name__ == "__main__":
    main()
