"""Small random problems."""

import numpy as np


def soft(rng, N, K):
    """Return a random P."""
    P = rng.random((N, K)) + 0.1
    return P / P.sum(1, keepdims=True)


def bar_and_dot(n, seed=0):
    """Return directions of two groups of one size, a long one and a compact one, and the groups."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    along = rng.uniform(-1.0, 1.0, n) * np.array([1.2, 0.2])[y]
    across = 0.9 * y + rng.normal(0.0, 0.08, n)
    flat = np.cos(across)
    return np.stack([flat * np.cos(along), flat * np.sin(along), np.sin(across)], 1), y
