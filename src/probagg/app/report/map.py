"""Positions on the 2-D map of a run: t-SNE of landmarks, the other samples between them."""

import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probagg.arrays import chunks
from probagg.errors import InputError
from probagg.progress import Progress

LANDMARKS = 2_000  # t-SNE takes seconds on two cores; of 50,000 rows it takes many minutes
DIMENSIONS = 50  # after PCA, about as t-SNE's authors do
NEIGHBOURS = 4  # another sample is placed between so many landmarks
STEPS = 600  # the map hardly changes after these
FEW = 10  # t-SNE of fewer rows is meaningless
_CHUNK = 4_096  # rows transformed at a time, so that the features need not fit twice


def positions(
    X: Any, *, random_state: int = 0, max_points: int = 50_000, progress: Progress | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of X (n,) and their positions on a map (n, 2) in [0, 1]; n <= `max_points`.

    PCA, then t-SNE of some landmarks. Any other sample lies at the mean of its nearest landmarks,
    weighted by 1 / distance^2, with a little noise so that points do not hide each other. NaN
    counts as the middle of its column, an infinite value as its end.

    >>> rows, xy = positions(np.eye(3))
    >>> rows.tolist(), xy.shape
    ([0, 1, 2], (3, 2))
    """
    X = X if hasattr(X, "ndim") else np.asarray(X)
    if X.ndim != 2 or 0 in X.shape or max_points < 1:
        raise InputError(
            f"X has shape {X.shape} and max_points is {max_points}. A map needs at least one row, "
            "one column and one point."
        )
    report = progress or (lambda done, total: None)
    rng = np.random.default_rng(random_state)
    if hasattr(X, "toarray"):  # sparse rows become their first singular vectors
        from sklearn.decomposition import TruncatedSVD

        kept = min(DIMENSIONS, X.shape[1])
        X = TruncatedSVD(kept, random_state=random_state).fit_transform(X)
    rows = np.arange(len(X))
    if len(X) > max_points:
        rows = np.sort(rng.choice(len(X), max_points, replace=False))
    # t-SNE's threads synchronise after every step: with other work on the machine, two are four
    # times slower than one.
    with threadpool_limits(1):
        report(0, 3)
        Z = _principal_axes(X, rows, rng)
        report(1, 3)
        landmarks = np.sort(rng.choice(len(rows), min(len(rows), LANDMARKS), replace=False))
        places = _embed(Z[landmarks], rng)
        report(2, 3)
        xy = _place_among(Z, Z[landmarks], places, rng)
    xy[landmarks] = places
    report(3, 3)
    # Centred in the unit square.
    low, high = xy.min(axis=0), xy.max(axis=0)
    side = max(float((high - low).max()), 1e-12)
    return rows, np.clip((xy - (low + high) / 2) / side + 0.5, 0.0, 1.0).astype(np.float32)


def _frame(X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the middle of each column (D,) and half the widest range; 0: the rows are equal."""
    low, high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    for chunk in chunks(len(rows), _CHUNK):
        x = X[rows[chunk]].astype(np.float64)
        finite = np.isfinite(x)
        low = np.minimum(low, x.min(axis=0, where=finite, initial=np.inf))
        high = np.maximum(high, x.max(axis=0, where=finite, initial=-np.inf))
    with np.errstate(invalid="ignore"):  # a column without a finite value has no middle
        # Halves first, since the sum of the largest floats overflows.
        return low / 2 + high / 2, max(float((high / 2 - low / 2).max()), 0.0)


def _framed(x: np.ndarray, middle: np.ndarray, half: float) -> np.ndarray:
    """Return rows scaled to [-1, 1] as float32, which holds no large offset or scale."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        x = (x.astype(np.float64) - middle) / (half or 1.0)
    return np.clip(np.nan_to_num(x), -1.0, 1.0).astype(np.float32)


def _principal_axes(X: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the rows on their first principal axes (n, 2 or more columns), float32."""
    from sklearn.decomposition import PCA

    frame = _frame(X, rows)
    some = rows[np.sort(rng.permutation(len(rows))[: 5 * LANDMARKS])]
    kept = min(DIMENSIONS, len(some), X.shape[1])
    seed = int(rng.integers(2**31))
    pca = PCA(kept, svd_solver="auto", random_state=seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # one row, or equal rows, have no variance
        parts = chunks(len(some), _CHUNK)
        pca.fit(np.concatenate([_framed(X[some[part]], *frame) for part in parts]))
    parts = chunks(len(rows), _CHUNK)
    Z = np.concatenate([pca.transform(_framed(X[rows[part]], *frame)) for part in parts])
    return np.pad(Z.astype(np.float32), ((0, 0), (0, max(0, 2 - kept))))


def _embed(Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return t-SNE of a few thousand rows; the first two axes of very few, or equal ones."""
    from sklearn.manifold import TSNE

    # Landmarks can be equal where the rows are not. t-SNE turns equal rows into NaN, which crash
    # the process in its tree.
    middle, half = _frame(Z, np.arange(len(Z)))
    if len(Z) < FEW or half == 0:
        return Z[:, :2] + 1e-6 * rng.standard_normal((len(Z), 2)).astype(np.float32)
    perplexity = min(30.0, (len(Z) - 1) / 3)
    seed = int(rng.integers(2**31))
    tsne = TSNE(2, perplexity=perplexity, init="pca", max_iter=STEPS, random_state=seed)
    return tsne.fit_transform(_framed(Z, middle, half)).astype(np.float32)


def _place_among(
    Z: np.ndarray, landmarks: np.ndarray, places: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return positions of the rows of Z: means of the nearest landmarks, by 1 / distance^2."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(landmarks)), algorithm="brute")
    distance, nearest = search.fit(landmarks).kneighbors(Z)
    weight = 1.0 / np.maximum(distance, 1e-9) ** 2
    weight /= weight.sum(axis=1, keepdims=True)
    xy = np.einsum("nk,nkd->nd", weight, places[nearest])
    # The gap between landmarks is about the side of the map over the root of their number.
    gap = np.ptp(places, axis=0).max() / np.sqrt(len(landmarks))
    return (xy + 0.4 * gap * rng.standard_normal(xy.shape)).astype(np.float32)
