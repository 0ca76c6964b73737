"""Algorithm 1 symbol for symbol, in O(N^2 K): slow on purpose, the reference for the tests."""

from __future__ import annotations

import numpy as np


def algorithm_1(
    D: np.ndarray,
    P: np.ndarray,
    m: float,
    n_sweeps: int,
    *,
    w: np.ndarray | None = None,
    aggregate: str = "p",
    balance: float = 1.0,
) -> np.ndarray:
    """Return P after `n_sweeps` of Algorithm 1 on distances D (N, N), from the start P (N, K).

    Added to the paper's symbols: sample weights w, p^m in the sum (`aggregate="p_m"`), and the
    exponent `balance` of the mass. Within a row the scores do not depend on p_i, so the inner loop
    over k may fill s_i first.
    """
    N, K = P.shape
    P, alpha = P.astype(np.float64), 1.0 / (m - 1.0)
    w = np.ones(N) if w is None else w
    for _ in range(n_sweeps):
        for i in range(N):
            s = np.zeros(K)
            for k in range(K):
                p = P[:, k] if aggregate == "p" else P[:, k] ** m
                others = np.arange(N) != i
                s[k] = np.sum(w[others] * p[others] * D[i, others])
                s[k] *= np.sum(w * p) ** (balance - 1.0)
            powers = (s / s.min()) ** -alpha
            P[i] = powers / powers.sum()  # Eq. 8
    return P


def equation_5(D: np.ndarray, P: np.ndarray, m: float = 1.0) -> float:
    """Return Eq. 5 term by term; Eq. 1 for m = 1."""
    N, K = P.shape
    total = 0.0
    for i in range(N):
        for j in range(N):
            total += D[i, j] * sum(P[i, k] ** m * P[j, k] for k in range(K))
    return float(total)
