"""Draw docs/opa.png: targets of a batch, and OPA by batch size and m (results/opa_sphere.json).

python -m benchmarks draw_opa
"""

import json

import matplotlib.pyplot as plt
import numpy as np
import torch

from benchmarks import ROOT
from probagg import opa_targets

DOCS = ROOT / "docs"
COLOURS = np.array([[0.84, 0.27, 0.23], [0.16, 0.47, 0.71], [0.95, 0.65, 0.15]])


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
    plt.rcParams |= {"font.family": "DejaVu Sans", "font.size": 10}
    sphere = json.loads((ROOT / "benchmarks/results/opa_sphere.json").read_text())["results"]
    figure, axes = plt.subplots(
        1, 4, figsize=(13, 3.1), width_ratios=[1, 1, 1.3, 1.3], layout="constrained"
    )
    X, P = batch()
    scatter(axes[0], X, P, "probabilities P of a batch")
    scatter(axes[1], X, opa_targets(X, P, metric="sqeuclidean"), "targets Q, one aggregation later")
    series = [
        (axes[2], "batch", [r for r in sphere["rows"][:5]], "batch size (m = 1.03)"),
        (axes[3], "m", [r for r in sphere["rows"][5:]], "m (batch 1024)"),
    ]
    for axis, key, rows, label in series:
        x = [r[key] for r in rows]
        axis.plot(x, [np.mean(r["acc"]) for r in rows], "o-", c=COLOURS[1], ms=4, label="ACC")
        sharpness = [np.mean(r["sharpness"]) for r in rows]
        axis.plot(x, sharpness, "s-", c=COLOURS[2], ms=4, label="mean largest probability")
        axis.set(xlabel=label, ylim=(0, 1.05))
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].set_xscale("log", base=2)
    axes[2].legend(fontsize=8, frameon=False, loc="lower right")
    axes[3].axvline(sphere["critical_m"], c="0.4", ls="--")
    axes[3].text(sphere["critical_m"] + 0.004, 0.6, "critical m,\npredicted", c="0.3", fontsize=9)
    path = DOCS / "opa.png"
    figure.savefig(path, dpi=130)
    print(f"written to {path}")
