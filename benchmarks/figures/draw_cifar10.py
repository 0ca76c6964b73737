"""Draw docs/cifar10.png: 20-NN accuracy and ACC by minutes of training on CIFAR-10.

python -m benchmarks draw_cifar10 [--out FILE]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from benchmarks import ROOT
from benchmarks.figures.tables import expected, results

DOCS = ROOT / "docs"
RUNS = {  # name, colour, and where the result files have a stage and the curves
    "ResNet-34, seed 2": (
        "#2878b5",
        {
            "pretrain": ("dpac_cifar10", "pretraining.seeds.2"),
            "cluster": ("dpac_cifar10", "stages.seeds.2"),
            "self_label": ("dpac_cifar10", "stages.seeds.2"),
        },
        [("dpac_cifar10", "pretraining.curve"), ("dpac_cifar10", "stages.curve")],
    ),
    "ResNet-18, BYOL, seed 14": (
        "#d6453b",
        {
            stage: ("dpac_cifar10_byol_seed14", "seeds.14")
            for stage in ("pretrain", "cluster", "self_label")
        },
        [("dpac_cifar10_byol_seed14", "curve")],
    ),
    "ResNet-18, seed 13": (
        "#3a8f4d",
        {stage: ("dpac_cifar10_seed13", "seeds.13") for stage in ("pretrain", "cluster")},
        [("dpac_cifar10_seed13", "curve")],
    ),
}
PROPOS = 94.3  # ACC, arXiv 2111.11821


def points(stages, curves):
    """Yield minutes and scores of a run, all epochs of a stage as long as its last one.

    The last point of a stage is its result. Of self-labelling there is no other, since the points
    of its curve are of the classifier and not of the head that gives the labels.
    """
    found = [point for name, path in curves for point in results(name, path)]
    begin = 0.0
    for stage, where in stages.items():
        read = results(*where)[stage]
        minutes = read["label_free"]["last_epoch"]["seconds"] / 60
        mine = [point for point in found if point["stage"] == stage]
        last = max(point["epoch"] for point in mine)
        for point in mine:
            scores = read["revealed"] if point["epoch"] == last else point
            if stage != "self_label" or point["epoch"] == last:
                yield begin + point["epoch"] * minutes, scores
        begin += last * minutes


def main():
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=DOCS / "cifar10.png")
    a = parser.parse_args()
    plt.rcParams |= {"font.family": "DejaVu Sans", "font.size": 10}
    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    for colour, stages, curves in RUNS.values():
        found = list(points(stages, curves))
        times = [minutes for minutes, _ in found]
        axis.plot(times, [100 * scores["knn"] for _, scores in found], c=colour, ls=":")
        clustered = [(minutes, 100 * scores["acc"]) for minutes, scores in found if "acc" in scores]
        axis.plot(*zip(*clustered, strict=True), c=colour, marker="o", ms=4)
    paper = expected("table4", "cifar10", "dpac-opa-self-label", "acc")
    for level, name in ((paper, "the paper, self-labelled"), (PROPOS, "ProPos")):
        axis.axhline(level, c="#888888", lw=0.8, ls="--")
        axis.text(0, level + 0.1, f"{name}: {level}", c="#555555", fontsize=9)
    lines = [Line2D([], [], c=colour, label=name) for name, (colour, *_) in RUNS.items()]
    lines += [
        Line2D([], [], c="#333333", ls=":", label="20-NN"),
        Line2D([], [], c="#333333", marker="o", ms=4, label="ACC"),
    ]
    axis.legend(handles=lines, fontsize=9, frameon=False, loc="lower right")
    axis.set(xlabel="minutes of epochs on one H200", ylabel="%", xlim=(0, None), ylim=(80, 95.5))
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(a.out, dpi=130)
    print(f"written to {a.out}")
