"""Run the examples and keep their pictures in docs/gallery, each below 60 kB.

python -m benchmarks draw_gallery [NAME ...]        or `make gallery`
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks import ROOT

GALLERY = ROOT / "docs" / "gallery"
COLOURS = 48  # of a picture: few enough to stay small


def main() -> None:
    """Run all examples, or those named."""
    examples = sorted((ROOT / "examples").glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="e.g. 01_pac")
    names = parser.parse_args().names or [path.stem for path in examples]
    GALLERY.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            script = [sys.executable, ROOT / "examples" / f"{name}.py"]
            subprocess.run(script, cwd=folder, env=os.environ | {"MPLBACKEND": "Agg"}, check=True)
            picture = Image.open(Path(folder) / f"{name}.png").convert("RGB")
        picture.quantize(COLOURS).save(GALLERY / f"{name}.png", optimize=True)
        print(f"{name}: {(GALLERY / f'{name}.png').stat().st_size:,} bytes")
