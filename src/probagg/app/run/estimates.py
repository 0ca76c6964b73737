"""How fast this machine is at the moment, for estimates of time."""

from __future__ import annotations

import functools
import time

import numpy as np

ROUNDS = 40
IDLE = 0.096  # seconds of `_work` on the two idle ARM cores that the estimates were measured on


@functools.cache
def slowness() -> float:
    """Return how many times longer work takes here and now than where estimates were measured.

    Other programs that use the processor count, so the time on the wall is taken.
    """
    _work(2)  # the first call loads libraries
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
