"""Named data sets, which scikit-learn and torchvision download once and check.

They are kept in the folder that PROBAGG_DATA names, by default in the cache. Training and test
images are joined, because the paper clusters both.
"""

import contextlib
import os
import pickle
import sys
from pathlib import Path

import numpy as np

from probagg.data.arrays import Matrix
from probagg.data.images import ArrayImages, ImageSet, converted
from probagg.errors import NoData, did_you_mean, first_line, import_optional
from probagg.storage import cache_folder, open_regular

# Numbers of the sets at OpenML.
_OPENML = {"pendigits": 32, "isolet": 300}
# The class and the folder of torchvision, and the shape.
_TORCHVISION = {
    "mnist": ("MNIST", "MNIST", (70_000, 28, 28, 1)),
    "mnist-test": ("MNIST", "MNIST", (10_000, 28, 28, 1)),
    "cifar10": ("CIFAR10", "cifar-10-batches-py", (60_000, 32, 32, 3)),
    "cifar100-20": ("CIFAR100", "cifar-100-python", (60_000, 32, 32, 3)),
    "stl10": ("STL10", "stl10_binary", (13_000, 96, 96, 3)),
}
_N_CLASSES = {"isolet": 26, "cifar100-20": 20}  # others have 10
_DIGITS = [str(digit) for digit in range(10)]
NAMES = ("digits", *_OPENML, "mnist-test")
IMAGE_NAMES = ("digits", *_TORCHVISION)
ALL_NAMES = ("digits", *_OPENML, *_TORCHVISION)


def n_classes(name: str) -> int:
    """Return the number of classes of a named set without loading it.

    >>> n_classes("cifar100-20")
    20
    """
    _check(name, ALL_NAMES)
    return _N_CLASSES.get(name, 10)


def load_rows(name: str) -> Matrix:
    """Return a named data set, its rows flattened to float32 vectors.

    >>> load_rows("digits").X.shape
    (1797, 64)
    """
    _check(name, NAMES)
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
    elif name in _OPENML:
        from sklearn.datasets import fetch_openml

        try:
            number, home = _OPENML[name], _home()
            found = fetch_openml(data_id=number, as_frame=False, parser="liac-arff", data_home=home)
        except (OSError, ValueError) as error:
            raise _unavailable(name, error) from error
        X, y = found.data, np.unique(found.target, return_inverse=True)[1]
    else:
        images = _from_torchvision(name)
        X, y = images.read(np.arange(len(images))), images.y
    return Matrix(name, X.reshape(len(X), -1).astype(np.float32), y)


def load_images(name: str, *, size: int | None = None) -> ImageSet:
    """Return a named image set, at its own size or as squares of `size` pixels.

    >>> load_images("digits").read(np.array([0])).shape
    (1, 8, 8, 1)
    """
    _check(name, IMAGE_NAMES)
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        pixels = np.rint(X * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)  # stored as 0..16
        return converted(ArrayImages(pixels, y, name=name, class_names=_DIGITS), size, None)
    return converted(_from_torchvision(name), size, None)


def outline(name: str) -> ImageSet | None:
    """Return blank images in the shape of a set that would be downloaded; None for any other."""
    if name not in _TORCHVISION or (_home() / _TORCHVISION[name][1]).is_dir():
        return None
    return ArrayImages(np.broadcast_to(np.uint8(0), _TORCHVISION[name][2]), name=name)


def _check(name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        hint = did_you_mean(name, names)
        raise NoData(f"{name!r} is not a known data set: there are {', '.join(names)}.{hint}")


def _home() -> Path:
    given = os.environ.get("PROBAGG_DATA")
    return Path(given).expanduser() if given else cache_folder()


def _unavailable(name: str, error: Exception) -> NoData:
    return NoData(
        f"{name!r} could not be downloaded to {_home()} and read ({first_line(error)}). Run again, "
        "or set PROBAGG_DATA to a folder that has it, or in which it can be written."
    )


def _from_torchvision(name: str) -> ArrayImages:
    """Return a set that torchvision knows, downloaded unless it is there."""
    datasets = import_optional("torchvision.datasets", f"The data set {name}", "deep")
    kind, folder, _ = _TORCHVISION[name]
    place, extra = _home() / folder, None
    splits = ("train", "test") if name == "stl10" else (True, False)
    try:
        # torchvision writes about the download to the standard output, which is ours for results.
        with contextlib.redirect_stdout(sys.stderr):
            parts = [getattr(datasets, kind)(_home(), split, download=True) for split in splits]
        X = np.concatenate([np.asarray(part.data) for part in parts])
        names = _DIGITS if kind == "MNIST" else list(parts[0].classes)
        if name == "stl10":
            X, y = X.transpose(0, 2, 3, 1), np.concatenate([part.labels for part in parts])
            # Mapped from disk, as they are 2.8 GB: planes of columns.
            with open_regular(place / "unlabeled_X.bin") as file:
                pixels = np.memmap(file, np.uint8, "r").reshape(-1, 3, 96, 96)
            extra = ArrayImages(pixels.transpose(0, 3, 2, 1), name="stl10-unlabelled")
        elif name == "cifar100-20":
            # torchvision reads the 100 classes only; it has checked these files.
            both = [_unpickled(place / part)["coarse_labels"] for part in ("train", "test")]
            y, names = np.concatenate(both), _unpickled(place / "meta")["coarse_label_names"]
        else:
            y = np.concatenate([np.asarray(part.targets) for part in parts])
    except Exception as error:  # network, disk, broken files: no common base class
        raise _unavailable(name, error) from error
    first = len(X) - 10_000 if name == "mnist-test" else 0
    return ArrayImages(
        np.ascontiguousarray(X[first:]), y[first:], name=name, extra=extra, class_names=names
    )


def _unpickled(path: Path) -> dict[str, list]:
    with open_regular(path) as file:
        return pickle.load(file, encoding="latin1")
