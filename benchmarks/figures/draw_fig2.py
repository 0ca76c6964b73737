"""Draw docs/fig2.png: accuracy and errors of targets by epoch, a row for each set of results.

python -m benchmarks draw_fig2 [--out FILE]
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from benchmarks.figures.drawing import arguments, save
from benchmarks.figures.tables import recorded

RESULTS = ("fig2/short", "fig2/small")
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
    """Return epochs with the mean, lowest and highest of the seeds, in percent."""
    curves = [
        {point["epoch"]: point[score] for point in r["curve"] if score in point} for r in runs
    ]
    epochs = sorted(set.intersection(*map(set, curves)))
    values = 100 * np.array([[curve[epoch] for epoch in epochs] for curve in curves])
    return epochs, values.mean(0), values.min(0), values.max(0)


def main():
    """Draw the picture."""
    a = arguments(__doc__, "fig2.png")
    figure, axes = plt.subplots(len(RESULTS), 2, figsize=(10, 6.4), layout="constrained")
    for row, name in zip(axes, RESULTS, strict=True):
        draw(row, recorded(name).rows)
    lines = axes[0, 0].get_legend_handles_labels()
    figure.legend(*lines, fontsize=9, frameon=False, loc="outside upper center", ncols=len(NAMES))
    save(figure, a.out)


def draw(axes, runs):
    """Draw a panel for each score of the runs on one data set."""
    for axis, (score, label) in zip(axes, PANELS, strict=True):
        for method, (name, colour, style) in NAMES.items():
            chosen = [run for run in runs if run.method == method]
            epochs, mean, lowest, highest = mean_curve(chosen, score)
            axis.plot(epochs, mean, c=colour, ls=style, label=name)
            axis.fill_between(epochs, lowest, highest, color=colour, alpha=0.15, lw=0)
        axis.set(xlabel="epoch of clustering", ylabel=label)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_ylim(0, None)
    axes[0].set_title(SETS[runs[0].data], loc="left", fontsize=10, fontweight="bold")
