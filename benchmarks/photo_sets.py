"""Feature sets of photos for the studies of the photo job, and subsets of them.

    load(name) -> X, y

Features of EfficientNet-Lite0 are computed once and kept in probagg's cache of features. A suffix
makes a subset, the same for every seed: "-tail" leaves 1 to 1/10 of the photos of each class, in
geometric steps, "-10" the first ten classes in a random order, "-500" five hundred photos.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks.data import lab_matrix, load_features, open_lab_images, photo_features
from probagg.data.images import ArrayImages

MOST = {"cifar10": 2_000}  # photos of a set that go through the network
ROWS = 5_000  # of a set of features
TAIL = 10.0  # the largest class to the smallest


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and classes of a set, or of a subset of it."""
    for suffix, part in (("-tail", long_tail), ("-10", ten_classes), ("-500", few)):
        if name.endswith(suffix):
            X, y = load(name.removesuffix(suffix))
            rows = part(y, np.random.default_rng(0))
            return X[rows], y[rows]
    base, _, network = name.rpartition(":")
    if network == "lite0":
        X, y = photo_features(ArrayImages(*pixels(base)))
    elif network == "pixels":
        data = lab_matrix(base)
        X, y = np.asarray(data.X, np.float32), data.y
    else:
        X, y, _ = load_features("cifar10-simclr" if network == "simclr" else base)
    rows = some(len(X), ROWS)
    return X[rows], np.unique(y[rows], return_inverse=True)[1]


def pixels(base: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the photos of a set, and their classes."""
    if base == "coil100":
        with np.load(Path(os.environ["PROBAGG_DATA"]) / "coil100_32.npz") as file:
            rows = np.arange(0, len(file["y"]), 4)  # every fourth view
            return file["X"][rows], file["y"][rows]
    images = open_lab_images("imagenet-dogs" if base == "dogs" else base)
    rows = some(len(images), MOST.get(base, len(images)))
    assert images.y is not None
    return images.read(rows), images.y[rows]


def some(n: int, size: int) -> np.ndarray:
    """Return all rows, or random ones."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, size, replace=False))


def long_tail(y: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return rows of classes whose sizes fall from 1 to 1/10 of the smallest class."""
    K, size = int(y.max()) + 1, np.bincount(y).min()
    sizes = np.round(size * TAIL ** -(np.arange(K) / (K - 1))).astype(int)
    classes = generator.permutation(K)
    rows = [
        generator.permutation(np.flatnonzero(y == k))[:n]
        for k, n in zip(classes, sizes, strict=True)
    ]
    return np.sort(np.concatenate(rows))


def ten_classes(y: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the rows of ten classes."""
    return np.flatnonzero(np.isin(y, generator.permutation(int(y.max()) + 1)[:10]))


def few(y: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return five hundred rows."""
    return np.sort(generator.choice(len(y), 500, replace=False))
