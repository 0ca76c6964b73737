"""Small random problems."""


def soft(rng, N, K):
    """Return a random P."""
    P = rng.random((N, K)) + 0.1
    return P / P.sum(1, keepdims=True)
