"""Named data sets: `digits` comes with scikit-learn, the others from the folder $PROBAGG_DATA."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """Rows to cluster, and their classes, which are only ever reported against."""

    name: str
    X: np.ndarray
    y: np.ndarray

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(np.unique(self.y))


class NoData(ValueError):
    """A source that holds nothing to cluster; the message says what to do."""


_FILES = {  # name -> file in $PROBAGG_DATA, and the rows of it that the paper's Table 2 uses
    "pendigits": ("pendigits.npz", slice(None)),
    "isolet": ("isolet.npz", slice(None)),
    "mnist-test": ("mnist.npz", slice(-10_000, None)),
    "coil100": ("coil100_32.npz", slice(None)),
}
NAMES = ("digits", *_FILES)


def load(name: str) -> Dataset:
    """A data set by name, its rows flattened to float32 vectors.

    >>> load("digits").X.shape
    (1797, 64)
    """
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return Dataset(name, X.astype(np.float32), y)
    if name not in _FILES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise NoData(f"{name!r} is no known data set: there are {', '.join(NAMES)}.{hint}")
    file, rows = _FILES[name]
    folder = os.environ.get("PROBAGG_DATA")
    if folder is None:
        raise NoData(
            f"{name!r} is read from {file} in the folder that PROBAGG_DATA names, and PROBAGG_DATA "
            "is not set. Set it to a folder with that file (arrays X and y), or use 'digits'."
        )
    path = Path(folder) / file
    if not path.is_file():
        raise NoData(f"{path} does not exist. Put the file there or set PROBAGG_DATA elsewhere.")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            X, y = arrays["X"][rows], arrays["y"][rows]
    except (OSError, ValueError, KeyError) as error:
        raise NoData(
            f"{path} is no .npz file with arrays X and y ({error}). Put such a file there."
        ) from error
    return Dataset(name, X.reshape(len(X), -1).astype(np.float32), y)
