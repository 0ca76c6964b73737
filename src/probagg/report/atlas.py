"""Where samples lie on the 2-D map of a run: a t-SNE of landmarks, and the others among them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Progress = Callable[[int, int], None]

LANDMARKS = 2_000  # t-SNE of these takes seconds on two cores, of 50,000 rows many minutes
DIMENSIONS = 50  # t-SNE's authors reduce to about this first
NEIGHBOURS = 4  # landmarks that place another point
STEPS = 600  # of t-SNE; the picture hardly changes after these
FEW = 10  # rows below which t-SNE says nothing
_CHUNK = 4_096  # rows turned at a time: a set of features need not fit twice


def positions(
    X: Any, *, random_state: int = 0, max_points: int = 50_000, progress: Progress | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of X (n,) and their places on a map (n, 2) in [0, 1], at most `max_points` of them.

    PCA, then t-SNE of some landmarks; every other point lies at the mean of its nearest landmarks'
    places, nearer ones counting more, with a little spread so that points do not hide each other.

    >>> rows, xy = positions(np.eye(3))
    >>> rows.tolist(), xy.shape
    ([0, 1, 2], (3, 2))
    """
    X = np.asarray(X)
    if X.ndim != 2 or not X.size or max_points < 1:
        raise ValueError(
            f"X has shape {X.shape} and max_points is {max_points}; a map needs rows and columns, "
            "one of each or more, and one point or more."
        )
    tell = progress or (lambda done, total: None)
    rng = np.random.default_rng(random_state)
    rows = np.arange(len(X))
    if len(X) > max_points:
        rows = np.sort(rng.choice(len(X), max_points, replace=False))
    # t-SNE's threads wait for each other after every step: where other work runs beside them, two
    # are four times slower than one.
    with threadpool_limits(1):
        tell(0, 3)
        Z = _principal_axes(X, rows, rng)
        tell(1, 3)
        landmarks = np.sort(rng.choice(len(rows), min(len(rows), LANDMARKS), replace=False))
        places = _embed(Z[landmarks], rng)
        tell(2, 3)
        xy = _place_among(Z, Z[landmarks], places, rng)
    xy[landmarks] = places
    tell(3, 3)
    return rows, _fit_to_square(xy)


def _principal_axes(X: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rows on their first principal axes (n, 2 or more columns), float32."""
    from sklearn.decomposition import PCA

    some = rows[np.sort(rng.permutation(len(rows))[: 5 * LANDMARKS])]
    kept = min(DIMENSIONS, len(some), X.shape[1])
    seed = int(rng.integers(2**31))
    pca = PCA(kept, svd_solver="auto", random_state=seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # one row, or equal rows: no variance, and no harm
        pca.fit(X[some].astype(np.float32))
    chunks = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
    Z = np.concatenate([pca.transform(X[chunk].astype(np.float32)) for chunk in chunks])
    Z = np.nan_to_num(Z.astype(np.float32))
    return np.pad(Z, ((0, 0), (0, max(0, 2 - kept))))


def _embed(Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """t-SNE of a few thousand rows; of very few, or equal ones, their first two axes."""
    from sklearn.manifold import TSNE

    if len(Z) < FEW or Z[:, 0].std() < 1e-12:
        return Z[:, :2] + 1e-6 * rng.standard_normal((len(Z), 2)).astype(np.float32)
    perplexity = min(30.0, (len(Z) - 1) / 3)
    seed = int(rng.integers(2**31))
    tsne = TSNE(2, perplexity=perplexity, init="pca", max_iter=STEPS, random_state=seed)
    return tsne.fit_transform(Z / Z[:, 0].std()).astype(np.float32)


def _place_among(
    Z: np.ndarray, landmarks: np.ndarray, places: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A place for each row of Z: the mean of its nearest landmarks', weighted by 1 / distance^2."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(landmarks)), algorithm="brute")
    distance, nearest = search.fit(landmarks).kneighbors(Z)
    weight = 1.0 / np.maximum(distance, 1e-9) ** 2
    weight /= weight.sum(axis=1, keepdims=True)
    xy = np.einsum("nk,nkd->nd", weight, places[nearest])
    # The gap between landmarks is about the side of the map over the root of their number.
    gap = np.ptp(places, axis=0).max() / np.sqrt(len(landmarks))
    return (xy + 0.4 * gap * rng.standard_normal(xy.shape)).astype(np.float32)


def _fit_to_square(xy: np.ndarray) -> np.ndarray:
    """The same picture in the middle of the unit square."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    side = max(float((high - low).max()), 1e-12)
    fitted = (xy - (low + high) / 2) / side + 0.5
    return np.clip(fitted, 0.0, 1.0).astype(np.float32)
