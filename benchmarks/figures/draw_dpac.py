"""Draw docs/dpac.png from a run folder of digits.

make demo && python -m benchmarks draw_dpac runs/demo
"""

import csv
import json

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.figures.drawing import arguments, save
from probagg.data.opening import open_images

STAGES = {"pretrain": "#4477aa", "cluster": "#cc6677", "self_label": "#228833"}


def main() -> None:
    """Draw curves of the three stages, and the most and least certain images per cluster."""
    a = arguments(__doc__, "dpac.png", "run")
    run = a.run
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    with (run / "assignments.csv").open() as file:
        rows = list(csv.DictReader(file))
    labels = np.array([int(row["cluster"]) for row in rows])
    probability = np.array([float(row["probability"]) for row in rows])
    data = open_images("digits")
    images = data.read(np.arange(len(data)))[..., 0]

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.2), width_ratios=[1, 1.5], layout="constrained"
    )
    first = 0
    for stage, colour in STAGES.items():
        mine = [r for r in records if r["stage"] == stage]
        epochs = first + np.arange(1, len(mine) + 1)
        first += len(mine)
        for name, style in (("sharpness", "-"), ("confident", "--"), ("kl", ":")):
            if name in mine[0]:
                left.plot(epochs, [r[name] for r in mine], style, color=colour, label=name)
        left.axvspan(epochs[0], epochs[-1], color=colour, alpha=0.07, lw=0)
        left.text(epochs.mean(), 1.06, stage, color=colour, ha="center")
    left.set(xlabel="epoch", ylim=(0, 1.15), yticks=[0, 0.5, 1])
    left.legend(frameon=False, loc="center left")
    left.spines[["top", "right"]].set_visible(False)

    tiles = np.full((10 * 9, 15 * 9 + 6), 255.0)
    for k in range(10):
        mine = np.flatnonzero(labels == k)
        order = mine[np.argsort(-probability[mine], kind="stable")]
        for place, row in enumerate([*order[:11], *order[-4:]]):
            across = 9 * place + (6 if place >= 11 else 0)
            tiles[9 * k : 9 * k + 8, across : across + 8] = 255.0 - images[row]
    right.imshow(tiles, cmap="gray", interpolation="nearest")
    right.set(xticks=[49, 122], yticks=[])
    right.set_xticklabels(["most certain", "least certain"])
    right.set_ylabel("one row per cluster")
    right.tick_params(length=0)
    right.spines[:].set_visible(False)
    save(figure, a.out, dpi=110)
