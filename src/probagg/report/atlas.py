"""Where samples lie on the 2-D map of a run: a t-SNE of landmarks, and the others among them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probagg.errors import InputError
from probagg.run.folder import RunFolderError, add_to_run

Progress = Callable[[int, int], None]

FILE = "map.npz"
FEATURES = "embeddings.npy"
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
    NaN lies in the middle of its column, an infinite value at its end.

    >>> rows, xy = positions(np.eye(3))
    >>> rows.tolist(), xy.shape
    ([0, 1, 2], (3, 2))
    """
    X = np.asarray(X)
    if X.ndim != 2 or not X.size or max_points < 1:
        raise InputError(
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


def add_map(run: str | PathLike[str], n_samples: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Place the features of a run on a map, keep it in the folder and return it.

    None where the run has no features, as one of a matrix.
    """
    path = Path(run) / FEATURES
    if not path.is_file():
        return None
    remedy = "Run the command again, or take the file away for a page without a map."
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise RunFolderError(f"{path} holds no array ({error}). {remedy}") from error
    if X.ndim != 2 or len(X) != n_samples:
        raise RunFolderError(
            f"{path} has shape {X.shape}, but a row for each of {n_samples} samples is needed. "
            f"{remedy}"
        )
    return save_map(run, X)


def save_map(
    run: str | PathLike[str], X: Any, progress: Progress | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Place rows on a map and keep it in the folder of a finished run."""
    rows, xy = positions(X, progress=progress)
    buffer = io.BytesIO()
    np.savez(buffer, rows=rows, xy=xy)
    add_to_run(run, FILE, buffer.getvalue())
    return rows, xy


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]


def _frame(X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """The middle of each column (D,) and half the widest column's range; 0: the rows are equal."""
    low, high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    for chunk in _chunks(rows):
        x = X[chunk].astype(np.float64)
        finite = np.isfinite(x)
        low = np.minimum(low, x.min(axis=0, where=finite, initial=np.inf))
        high = np.maximum(high, x.max(axis=0, where=finite, initial=-np.inf))
    with np.errstate(invalid="ignore"):  # a column without a finite value has no middle
        # Halves first: a sum of the largest numbers is none.
        return low / 2 + high / 2, max(float((high / 2 - low / 2).max()), 0.0)


def _framed(x: np.ndarray, middle: np.ndarray, half: float) -> np.ndarray:
    """Rows in [-1, 1] as float32, which holds neither a large offset nor a large scale."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        x = (x.astype(np.float64) - middle) / (half or 1.0)
    return np.clip(np.nan_to_num(x), -1.0, 1.0).astype(np.float32)


def _principal_axes(X: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rows on their first principal axes (n, 2 or more columns), float32."""
    from sklearn.decomposition import PCA

    frame = _frame(X, rows)
    some = rows[np.sort(rng.permutation(len(rows))[: 5 * LANDMARKS])]
    kept = min(DIMENSIONS, len(some), X.shape[1])
    seed = int(rng.integers(2**31))
    pca = PCA(kept, svd_solver="auto", random_state=seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # one row, or equal rows: no variance, and no harm
        pca.fit(np.concatenate([_framed(X[chunk], *frame) for chunk in _chunks(some)]))
    Z = np.concatenate([pca.transform(_framed(X[chunk], *frame)) for chunk in _chunks(rows)])
    return np.pad(Z.astype(np.float32), ((0, 0), (0, max(0, 2 - kept))))


def _embed(Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """t-SNE of a few thousand rows; of very few, or equal ones, their first two axes."""
    from sklearn.manifold import TSNE

    # Landmarks can be equal where the rows are not. Of equal ones t-SNE makes NaN, and ends the
    # process when it sorts these into its tree.
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
