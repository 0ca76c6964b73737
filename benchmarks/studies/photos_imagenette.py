"""5,000 Imagenette photos, a frozen EfficientNet-Lite0: PAC, OPA head, k-means, spectral.

python -m benchmarks photos_imagenette [--seeds 10]        (PROBAGG_DATA names the folder with data)

Those weights were trained with ImageNet's labels, Imagenette's ten classes among them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.data import open_lab_images
from benchmarks.record import Cell, record


def main() -> None:
    """Run `probagg compare` with an empty cache of features, and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    with tempfile.TemporaryDirectory() as folder:
        images, out = open_lab_images("imagenette"), Path(folder) / "bench.json"
        source = Path(folder) / "imagenette.npz"
        np.savez(source, X=images.read(np.arange(len(images))), y=images.y)
        command = [sys.executable, "-m", "probagg", "compare", str(source), "-k", "10"]
        command += ["--backbone", "efficientnet-lite0", "--seeds", str(seeds), "--out", str(out)]
        subprocess.run(command, check=True, env={**os.environ, "PROBAGG_CACHE": folder})
        found = json.loads(out.read_text())
    rows = [Cell("imagenette", "features", seed=None).row({"seconds": found["embedding_seconds"]})]
    for each in found["methods"]:
        name, agreement = each["method"], {"agreement": each["agreement"]}
        for run in each["runs"]:
            rows.append(Cell("imagenette", name, seed=run.pop("seed")).row(run))
        rows.append(Cell("imagenette", name, "agreement", None).row(agreement))
    settings = {"weights": "saw ImageNet labels"}
    settings |= {key: found[key] for key in ("n_clusters", "metric")}
    record("photos_imagenette", rows, settings=settings)
