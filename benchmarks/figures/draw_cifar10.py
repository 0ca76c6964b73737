"""Draw docs/cifar10.png: 20-NN accuracy and ACC by minutes of training on CIFAR-10.

python -m benchmarks draw_cifar10 [--out FILE]
"""

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from benchmarks.figures.drawing import arguments, save
from benchmarks.figures.tables import expected, recorded

RUNS = {  # name, colour, and the size of `training` in whose file the run is
    "ResNet-34, seed 2": ("#2878b5", "cifar10_resnet34_seed2"),
    "ResNet-18, BYOL, seed 14": ("#d6453b", "cifar10_byol_seed14"),
    "ResNet-18, seed 13": ("#3a8f4d", "cifar10_seed13"),
}
STAGES = ("pretrain", "cluster", "self_label")
PROPOS = 94.3  # ACC, arXiv 2111.11821


def points(size):
    """Yield minutes and scores of a run, all epochs of a stage as long as its last one.

    The last point of a stage is its result. Of self-labelling there is no other, since the points
    of its curve are of the classifier and not of the head that gives the labels.
    """
    begin = 0.0
    for stage in (row for row in recorded(f"training/{size}").rows if row.method in STAGES):
        minutes = stage["label_free"]["last_epoch"]["seconds"] / 60
        last = max(point["epoch"] for point in stage["curve"])
        for point in stage["curve"]:
            scores = stage.values if point["epoch"] == last else point
            if stage.method != "self_label" or point["epoch"] == last:
                yield begin + point["epoch"] * minutes, scores
        begin += last * minutes


def main():
    """Draw the picture."""
    a = arguments(__doc__, "cifar10.png")
    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    for colour, size in RUNS.values():
        found = list(points(size))
        times = [minutes for minutes, _ in found]
        axis.plot(times, [100 * scores["knn"] for _, scores in found], c=colour, ls=":")
        clustered = [(minutes, 100 * scores["acc"]) for minutes, scores in found if "acc" in scores]
        axis.plot(*zip(*clustered, strict=True), c=colour, marker="o", ms=4)
    paper = expected("table4", "cifar10", "dpac-opa-self-label", "acc")
    for level, name in ((paper, "the paper, self-labelled"), (PROPOS, "ProPos")):
        axis.axhline(level, c="#888888", lw=0.8, ls="--")
        axis.text(0, level + 0.1, f"{name}: {level}", c="#555555", fontsize=9)
    lines = [Line2D([], [], c=colour, label=name) for name, (colour, _) in RUNS.items()]
    lines += [
        Line2D([], [], c="#333333", ls=":", label="20-NN"),
        Line2D([], [], c="#333333", marker="o", ms=4, label="ACC"),
    ]
    axis.legend(handles=lines, fontsize=9, frameon=False, loc="lower right")
    axis.set(xlabel="minutes of epochs on one H200", ylabel="%", xlim=(0, None), ylim=(80, 95.5))
    axis.spines[["top", "right"]].set_visible(False)
    save(figure, a.out)
