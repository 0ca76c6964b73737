"""Draw docs/scale.png: time and memory by N, D and K (results/scale.json).

python -m benchmarks draw_scale
"""

import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks import ROOT

DOCS = ROOT / "docs"
STYLES = {
    "pac": ("PAC", "#1f6feb", "o-"),
    "pac file": ("PAC from a file, memory limited", "#1f6feb", "s--"),
    "k-means": ("KMeans", "#b35900", "o-"),
    "mini-batch k-means": ("MiniBatchKMeans", "#8a8a8a", "o-"),
    "faiss k-means": ("faiss, 25 iterations", "#1a7f37", "o-"),
}
TITLES = {"N": "rows N", "D": "columns D", "K": "clusters K"}


def main() -> None:
    """Draw one column per axis: seconds above, megabytes below."""
    cells = json.loads((ROOT / "benchmarks" / "results" / "scale.json").read_text())
    figure, panels = plt.subplots(2, 3, figsize=(11, 6), sharex="col", layout="constrained")
    for column, (axis, title) in enumerate(TITLES.items()):
        for method, (name, color, style) in STYLES.items():
            done = [
                cell
                for key, cell in cells["results"].items()
                if key.split(" ", 2)[::2] == [axis, method] and "seconds" in cell
            ]
            values = [cell[axis] for cell in done]
            for row, quantity in enumerate(("seconds", "memory_mb")):
                heights = [max(cell[quantity], 0.1 if row else 0.001) for cell in done]
                panels[row, column].plot(values, heights, style, color=color, label=name, ms=4)
        for panel in panels[:, column]:
            panel.set(xscale="log", yscale="log")
            panel.grid(alpha=0.3)
        panels[1, column].set_xlabel(title)
    panels[0, 0].set_ylabel("seconds")
    panels[1, 0].set_ylabel("memory beside X, MB")
    panels[0, 0].legend(fontsize=8, frameon=False)
    figure.savefig(DOCS / "scale.png", dpi=110)
