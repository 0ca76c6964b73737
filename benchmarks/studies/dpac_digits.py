"""DPAC end to end on scikit-learn's digits, on the CPU: ACC of several seeds beside PAC's.

python -m benchmarks dpac_digits [--seeds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from sklearn.datasets import load_digits

from benchmarks.record import Cell, record
from probagg import DPAC, PAC
from probagg.metrics import evaluate


def main() -> None:
    """Run and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    X, y = load_digits(return_X_y=True)
    images = np.round(X * 255 / 16).astype(np.uint8).reshape(-1, 8, 8)
    rows = []
    for seed in range(arguments.seeds):
        began = time.perf_counter()
        dpac = DPAC(10, recipe="digits/fast", random_state=seed, device="cpu").fit(images)
        seconds = time.perf_counter() - began
        on_features = PAC(10, metric="cosine", n_init=3, random_state=seed).fit(dpac.features_)
        on_pixels = PAC(10, n_init=3, random_state=seed).fit(X)
        found = {
            "seconds": round(seconds, 1),
            **evaluate(y, dpac.labels_),
            "state": dpac.diagnosis_.state,
            "sharpness": dpac.diagnosis_.sharpness,
            "pac_on_features": evaluate(y, on_features.labels_),
            "pac_on_pixels": evaluate(y, on_pixels.labels_),
        }
        rows.append(Cell("digits", "dpac", seed=seed).row(found))
        print(seed, found, flush=True)
    accuracies = [row["acc"] for row in rows]
    mean, low = statistics.mean(accuracies), min(accuracies)
    print(f"ACC {100 * mean:.1f}, lowest {100 * low:.1f}, n={len(rows)}")
    record("dpac_digits", rows, settings={"threads": torch.get_num_threads()})
