"""Draw docs/fig2.png: accuracy and errors of targets by epoch, a row for each set of results.

python -m benchmarks draw_fig2 [--results FILE ...] [--out FILE]
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from benchmarks import ROOT

DOCS = ROOT / "docs"
RECORDED = ROOT / "benchmarks" / "results"
SETS = {"cifar10": "CIFAR-10", "stl10": "STL-10", "digits": "digits"}
NAMES = {
    "dpac-opa": ("online: OPA", "#2878b5", "-"),
    "offline-pac": ("offline: PAC every 10 epochs", "#d6453b", "--"),
    "offline-k-means": ("offline: k-means every 10 epochs", "#f2a626", ":"),
}
PANELS = (
    ("acc", "ACC of the network (%)"),
    ("errors", "errors of the targets (%)"),
)


def mean_curve(runs, score):
    """Return epochs, mean and deviation over the seeds, in percent, where all runs have a score."""
    curves = [
        {point["epoch"]: point[score] for point in r["curve"] if score in point} for r in runs
    ]
    epochs = sorted(set.intersection(*map(set, curves)))
    values = 100 * np.array([[curve[epoch] for epoch in epochs] for curve in curves])
    return epochs, values.mean(0), values.std(0)


def main():
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = [RECORDED / f"fig2.{size}.json" for size in ("short", "small")]
    parser.add_argument("--results", type=Path, nargs="+", default=default)
    parser.add_argument("--out", type=Path, default=DOCS / "fig2.png")
    a = parser.parse_args()
    plt.rcParams |= {"font.family": "DejaVu Sans", "font.size": 10}
    height = 3.2 * len(a.results)
    figure, axes = plt.subplots(
        len(a.results), 2, figsize=(10, height), layout="constrained", squeeze=False
    )
    for row, path in zip(axes, a.results, strict=True):
        draw(row, json.loads(path.read_text())["runs"])
    lines = axes[0, 0].get_legend_handles_labels()
    figure.legend(*lines, fontsize=9, frameon=False, loc="outside upper center", ncols=len(NAMES))
    figure.savefig(a.out, dpi=130)
    print(f"written to {a.out}")


def draw(axes, runs):
    """Draw a panel for each score of the runs on one data set."""
    for axis, (score, label) in zip(axes, PANELS, strict=True):
        for method, (name, colour, style) in NAMES.items():
            chosen = [run for run in runs if run["method"] == method]
            epochs, mean, deviation = mean_curve(chosen, score)
            axis.plot(epochs, mean, c=colour, ls=style, label=name)
            axis.fill_between(
                epochs, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0
            )
        axis.set(xlabel="epoch of clustering", ylabel=label)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_ylim(0, None)
    axes[0].set_title(SETS[runs[0]["data"]], loc="left", fontsize=10, fontweight="bold")
