"""Positions of some samples on the 2-D map of a run, by t-SNE."""

import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

MOST = 1_500  # samples: t-SNE takes two seconds, and more points hide each other
DIMENSIONS = 50  # after PCA, about as t-SNE's authors do
STEPS = 600  # the map hardly changes after these
FEW = 10  # t-SNE of fewer rows is meaningless


def positions(X: Any, *, random_state: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return at most 1,500 random rows of X (n,) and their positions in the unit square (n, 2).

    >>> rows, xy = positions(np.eye(3))
    >>> rows.tolist(), xy.shape
    ([0, 1, 2], (3, 2))
    """
    rng = np.random.default_rng(random_state)
    rows = np.sort(rng.choice(X.shape[0], min(X.shape[0], MOST), replace=False))
    # t-SNE's threads synchronise after every step: beside other work two are slower than one.
    with threadpool_limits(1):
        xy = _embed(_principal_axes(X[rows], random_state), random_state)
    low, high = xy.min(axis=0), xy.max(axis=0)
    return rows, ((xy - low) / np.maximum(high - low, 1e-12)).astype(np.float32)


def _principal_axes(rows: Any, seed: int) -> np.ndarray:
    """Return rows on their first principal axes (n, 2 or more columns), the longest of length 1."""
    from sklearn.decomposition import PCA, TruncatedSVD

    kept = min(DIMENSIONS, *rows.shape)
    largest = float(abs(rows).max()) or 1.0  # squares neither overflow nor vanish
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # one row, or equal rows, have no variance
        if hasattr(rows, "toarray"):  # sparse
            Z = TruncatedSVD(kept, random_state=seed).fit_transform(rows / largest)
        else:
            dense = np.asarray(rows, dtype=np.float64) / largest
            Z = PCA(kept, random_state=seed).fit_transform(dense)
    Z = np.pad(Z, ((0, 0), (0, max(0, 2 - kept))))
    return Z / (float(abs(Z).max()) or 1.0)


def _embed(Z: np.ndarray, seed: int) -> np.ndarray:
    """Return t-SNE of the rows; of very few or equal ones, which it cannot do, two axes."""
    from sklearn.manifold import TSNE

    if len(Z) < FEW or float(np.ptp(Z)) == 0.0:
        return Z[:, :2]
    perplexity = min(30.0, (len(Z) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", max_iter=STEPS, random_state=seed)
    return tsne.fit_transform(Z.astype(np.float32))
