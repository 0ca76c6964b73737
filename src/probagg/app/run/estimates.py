"""How long a clustering takes, before it starts: good to a factor of 3.

The constants were measured on two idle ARM cores, and `slowness` is how much slower it is here and
now. What needs the data itself is timed where it is done: features (`embed.estimate`) and the
training of DPAC (`DPAC.estimate`).
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probagg.neighbours.joining import AXES, count_parts
from probagg.neighbours.smoothing import SAMPLE

ROUNDS = 40
# Seconds of `_work` on the two idle ARM cores.
IDLE = 0.096


@functools.cache
def slowness() -> float:
    """Return how many times longer work takes here and now than where estimates were measured.

    Other programs that use the processor count, so the time on the wall is taken. Threads do not:
    on a busy machine those of the BLAS wait for each other many times as long as they compute.
    """
    with threadpool_limits(1):
        # The first call loads libraries.
        _work(2)
        began = time.perf_counter()
        _work(ROUNDS)
        return (time.perf_counter() - began) / IDLE


def _work(rounds: int) -> None:
    """Compute what a sweep of PAC does, on small arrays."""
    X = np.random.default_rng(0).normal(size=(2000, 64))
    means = X[:20].copy()
    for _ in range(rounds):
        D = (X * X).sum(1)[:, None] - 2.0 * X @ means.T + (means * means).sum(1) + 1.0
        P = np.exp(-np.log(np.maximum(D, 1e-9)) / 0.03 * 0.01)
        P /= P.sum(1, keepdims=True)
        means = P.T @ X / P.sum(0)[:, None]


def seconds_of_pac(N: int, D: int, K: int, n_init: int, balance: float | str) -> float:
    """Estimate PAC on N rows of D columns; balance="auto" first clusters a sample."""
    rows = N + 4 * min(N, 5000) * (balance == "auto")
    return slowness() * (0.2 + 1e-8 * rows * D * K * n_init)


def seconds_of_choice(candidates: Any, N: int, D: int) -> float:
    """Estimate the choice of K."""
    from probagg.pac.n_clusters import selection_seconds  # scikit-learn is slow to import

    return slowness() * selection_seconds(candidates, N, D)


def seconds_of_smoothing(N: int, D: int, K: int) -> float:
    """Estimate the smoothing of K clusters over the kNN graph of N rows, with joined parts."""
    compared, sample = N + SAMPLE if N > SAMPLE else N, min(N, SAMPLE)
    # The products of rows, and the choice of the nearest.
    graph = compared * sample * (6e-11 * D + 6e-9)
    return slowness() * (graph + 1e-7 * sample * min(D, AXES) * count_parts(sample, K))


def seconds_of_pairs(N: int, D: int) -> float:
    """Estimate the comparison of all pairs of images, in which near-duplicates are found."""
    return 5e-11 * N * N * D


def seconds_of_page(n_samples: int) -> float:
    """Estimate the page with its map."""
    return slowness() * (1.0 + min(n_samples, 2000) / 220)
