"""Draw docs/pac.png: PAC from a near-uniform start, and its time beside Algorithm 1 as printed.

python -m benchmarks draw_pac
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from benchmarks.figures.drawing import arguments, save
from probagg import PAC

COLOURS = np.array([[0.84, 0.27, 0.23], [0.16, 0.47, 0.71], [0.95, 0.65, 0.15], [0.24, 0.62, 0.36]])
SWEEPS = (1, 4, 5, 20)
SIZES = (500, 1000, 2000, 4000, 8000, 16_000, 64_000, 256_000)
QUADRATIC_UP_TO = 4000


def after(X, P, sweeps, m=1.03):
    """Return P after some sweeps."""
    pac = PAC(4, m=m, init=P, max_iter=sweeps, tol=0.0, random_state=0)
    return pac.fit(X).probabilities_


def seconds_linear(X, P):
    """Time a sweep of PAC: a tenth of ten, with the preparation."""
    began = time.perf_counter()
    after(X, P, 10)
    return (time.perf_counter() - began) / 10


def seconds_quadratic(X, P):
    """Time a sweep of Algorithm 1, written with NumPy rows."""
    P, began = P.copy(), time.perf_counter()
    for i in range(len(X)):
        s = ((X - X[i]) ** 2).sum(1) @ P
        powers = (s / s.min()) ** (-1 / 0.03)
        P[i] = powers / powers.sum()
    return time.perf_counter() - began


def start(N):
    """Return a near-uniform P."""
    P = 1 + 0.02 * np.random.default_rng(0).random((N, 4))
    return P / P.sum(1, keepdims=True)


def main():
    """Draw the picture."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    a = arguments(__doc__, "pac.png")
    centers = [[0, 0], [5, 1], [1, 5], [6, 6]]
    X, _ = make_blobs(600, centers=centers, cluster_std=1.5, random_state=2)
    figure, axes = plt.subplots(1, 5, figsize=(13, 2.9), width_ratios=[1, 1, 1, 1, 1.35])
    for axis, sweeps in zip(axes, SWEEPS, strict=False):
        axis.scatter(*X.T, c=(after(X, start(600), sweeps, m=1.2) @ COLOURS).clip(0, 1), s=9)
        axis.set(xticks=[], yticks=[], aspect="equal")
        axis.set_title("after 1 sweep" if sweeps == 1 else f"after {sweeps} sweeps", fontsize=10)
    rng, times = np.random.default_rng(0), {"linear": [], "quadratic": []}
    for N in SIZES:
        rows = rng.standard_normal((N, 32)) + 3 * np.eye(32)[rng.integers(4, size=N)]
        times["linear"].append(min(seconds_linear(rows, start(N)) for _ in range(3)))
        if N <= QUADRATIC_UP_TO:
            times["quadratic"].append(seconds_quadratic(rows, start(N)))
    axis = axes[-1]
    axis.loglog(SIZES[: len(times["quadratic"])], times["quadratic"], "o-", c="0.55", ms=4)
    axis.loglog(SIZES, times["linear"], "o-", c=COLOURS[1], ms=4)
    axis.text(0.4, 0.9, "Algorithm 1 as printed", c="0.4", transform=axis.transAxes)
    axis.text(0.6, 0.15, "probagg", c=COLOURS[1], transform=axis.transAxes)
    axis.set(xlabel="samples (32 dimensions, 4 clusters)", title="seconds per sweep")
    axis.title.set_fontsize(10)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    save(figure, a.out)
