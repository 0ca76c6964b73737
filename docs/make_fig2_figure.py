"""Draw docs/fig2.png: accuracy and errors of targets by epoch (results/fig2.small.json).

.venv/bin/python docs/make_fig2_figure.py [--results FILE] [--out FILE]
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
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
    results = HERE.parent / "benchmarks" / "results" / "fig2.small.json"
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--out", type=Path, default=HERE / "fig2.png")
    a = parser.parse_args()
    plt.rcParams |= {"font.family": "DejaVu Sans", "font.size": 10}
    runs = json.loads(a.results.read_text())["runs"]
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    for axis, (score, label) in zip(axes, PANELS, strict=True):
        for method, (name, colour, style) in NAMES.items():
            chosen = [run for run in runs if run["method"] == method]
            epochs, mean, deviation = mean_curve(chosen, score)
            axis.plot(epochs, mean, c=colour, ls=style, label=name)
            axis.fill_between(
                epochs, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0
            )
        axis.set(xlabel="epoch of clustering", ylabel=label, ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=9, frameon=False, loc="lower right")
    figure.savefig(a.out, dpi=130)
    print(f"written to {a.out}")


if __name__ == "__main__":
    main()
