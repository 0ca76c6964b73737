"""Draw docs/scale.png: time and memory by N, D and K (results/scale/full.json).

python -m benchmarks draw_scale
"""

import matplotlib.pyplot as plt

from benchmarks.figures.drawing import arguments, save
from benchmarks.figures.tables import recorded

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
    a = arguments(__doc__, "scale.png")
    figure, panels = plt.subplots(2, 3, figsize=(11, 6), sharex="col", layout="constrained")
    for column, (axis, title) in enumerate(TITLES.items()):
        for method, (name, color, style) in STYLES.items():
            done = [
                row
                for row in recorded("scale").of(method=method)
                if row.setting.startswith(f"{axis} ") and row.seconds is not None
            ]
            values = [row.settings[axis] for row in done]
            heights = (
                [max(row.seconds, 0.001) for row in done],
                [max(row["memory_mb"], 0.1) for row in done],
            )
            for panel, height in zip(panels[:, column], heights, strict=True):
                panel.plot(values, height, style, color=color, label=name, ms=4)
        for panel in panels[:, column]:
            panel.set(xscale="log", yscale="log")
            panel.grid(alpha=0.3)
        panels[1, column].set_xlabel(title)
    panels[0, 0].set_ylabel("seconds")
    panels[1, 0].set_ylabel("memory beside X, MB")
    panels[0, 0].legend(fontsize=8, frameon=False)
    save(figure, a.out, dpi=110)
