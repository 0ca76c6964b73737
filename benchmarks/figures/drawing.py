"""What the scripts that draw the figures of the documentation share."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

from benchmarks import ROOT

mpl.use("Agg")
mpl.rcParams |= {"font.family": "DejaVu Sans", "font.size": 10}

import matplotlib.pyplot as plt  # noqa: E402


def arguments(doc: str, name: str, *positional: str) -> argparse.Namespace:
    """Return the command line of a script that draws docs/NAME, or the file that --out names."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    for each in positional:
        parser.add_argument(each, type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / name)
    return parser.parse_args()


def save(figure: plt.Figure, path: Path, dpi: int = 130) -> None:
    """Write a figure."""
    figure.savefig(path, dpi=dpi)
    print(f"written to {path}")
