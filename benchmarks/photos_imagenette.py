"""5,000 Imagenette photos, a frozen EfficientNet-Lite0: PAC, OPA head, k-means, spectral.

python benchmarks/photos_imagenette.py [--seeds 10]        (PROBAGG_DATA names the folder with data)

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

from record import record


def main() -> None:
    """Run `probagg bench` with an empty cache of features, and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "probagg", "bench", "imagenette", "--out", str(out)]
        command += ["--backbone", "efficientnet-lite0", "--seeds", str(seeds)]
        subprocess.run(command, check=True, env={**os.environ, "PROBAGG_CACHE": folder})
        found = json.loads(out.read_text())
    del found["env"]  # record() adds it
    record("photos_imagenette", {"weights": "saw ImageNet labels", **found})


if __name__ == "__main__":
    main()
