"""Draw docs/opa.png: targets of a batch, and OPA by batch size and m (results/opa_sphere).

python -m benchmarks draw_opa
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from benchmarks.figures.drawing import arguments, save
from benchmarks.figures.tables import number, recorded
from probagg import opa_targets

COLOURS = np.array([[0.84, 0.27, 0.23], [0.16, 0.47, 0.71], [0.95, 0.65, 0.15]])
SCORES = (
    ("acc", "o-", COLOURS[1], "ACC"),
    ("sharpness", "s-", COLOURS[2], "mean largest probability"),
)


def batch():
    """Return rows in three directions of the plane, and weak probabilities of a classifier."""
    rng = np.random.default_rng(4)
    y = rng.integers(3, size=240)
    X = np.stack([np.cos(2.1 * y), np.sin(2.1 * y)], 1) * 3 + 0.8 * rng.standard_normal((240, 2))
    logits = 0.25 * X @ rng.standard_normal((2, 3))
    P = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return torch.tensor(X), torch.tensor(P)


def scatter(axis, X, P, title):
    """Draw rows in the colours of their clusters, mixed by probability."""
    axis.scatter(*X.numpy().T, c=(P.numpy() @ COLOURS).clip(0, 1), s=9)
    axis.set(xticks=[], yticks=[], aspect="equal")
    axis.set_title(title, fontsize=10)


def main():
    """Draw the picture."""
    a = arguments(__doc__, "opa.png")
    runs = recorded("opa_sphere").of(method="opa")
    critical = number("opa_sphere", "method=prediction", "critical_m")
    figure, axes = plt.subplots(
        1, 4, figsize=(13, 3.1), width_ratios=[1, 1, 1.3, 1.3], layout="constrained"
    )
    X, P = batch()
    scatter(axes[0], X, P, "probabilities P of a batch")
    scatter(axes[1], X, opa_targets(X, P, metric="sqeuclidean"), "targets Q, one aggregation later")
    series = (
        (axes[2], "batch", {"m": 1.03}, "batch size (m = 1.03)"),
        (axes[3], "m", {"batch": 1024}, "m (batch 1024)"),
    )
    for axis, key, fixed, label in series:
        rows = [r for r in runs if fixed.items() <= r.settings.items()]
        x = sorted({r.settings[key] for r in rows})
        for score, style, colour, name in SCORES:
            means = [np.mean([r[score] for r in rows if r.settings[key] == at]) for at in x]
            axis.plot(x, means, style, c=colour, ms=4, label=name)
        axis.set(xlabel=label, ylim=(0, 1.05))
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].set_xscale("log", base=2)
    axes[2].legend(fontsize=8, frameon=False, loc="lower right")
    axes[3].axvline(critical, c="0.4", ls="--")
    axes[3].text(critical + 0.004, 0.6, "critical m,\npredicted", c="0.3", fontsize=9)
    save(figure, a.out)
