"""Named data sets: `digits` comes with scikit-learn, the others from $PROBAGG_DATA or the web."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from probagg.data import archives, packed
from probagg.data.download import obtain
from probagg.data.folders import Progress
from probagg.data.images import ArrayImages, ImageSet, read_npz, refitted
from probagg.errors import NoData, did_you_mean

__all__ = [
    "ALL_NAMES",
    "IMAGE_NAMES",
    "NAMES",
    "Dataset",
    "load",
    "load_images",
    "n_classes",
]


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


_FILES = {  # name -> file in $PROBAGG_DATA, and the rows of it that the paper's Table 2 uses
    "pendigits": ("pendigits.npz", slice(None)),
    "isolet": ("isolet.npz", slice(None)),
    "mnist-test": ("mnist.npz", slice(-10_000, None)),
    "coil100": ("coil100_32.npz", slice(None)),
}
NAMES = ("digits", *_FILES)

_SYNSETS = {
    "imagenet10": (
        "n02056570 n02085936 n02128757 n02690373 n02692877 n03095699 n04254680 n04285008 "
        "n04467665 n07747607"
    ),
    "imagenet-dogs": (
        "n02085936 n02086646 n02088238 n02091467 n02097130 n02099601 n02101388 n02101556 "
        "n02102177 n02105056 n02105412 n02105855 n02107142 n02110958 n02112137"
    ),
}
_IMAGENET_SIZE = 224  # pixels; the files are photos of all sizes
_DIGITS = [str(digit) for digit in range(10)]
_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_N_CLASSES = {
    "digits": 10,
    "pendigits": 10,
    "isolet": 26,
    "mnist": 10,
    "mnist-test": 10,
    "coil100": 100,
    "cifar10": 10,
    "cifar100-20": 20,
    "stl10": 10,
    "imagenet10": 10,
    "imagenet-dogs": 15,
    "imagenette": 10,
}
ALL_NAMES = tuple(_N_CLASSES)  # for `load`, `load_images` or both


def n_classes(name: str) -> int:
    """How many classes a named set has; nothing is loaded.

    >>> n_classes("imagenet-dogs")
    15
    """
    if name not in _N_CLASSES:
        raise _unknown(name, ALL_NAMES)
    return _N_CLASSES[name]


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
        raise _unknown(name, NAMES)
    file, rows = _FILES[name]
    X, y = _arrays(name, file)
    return Dataset(name, X[rows].reshape(len(X[rows]), -1).astype(np.float32), y[rows])


def load_images(
    name: str, *, size: int | None = None, progress: Progress | None = None
) -> ImageSet:
    """An image set by name, at its own size or as squares of `size` pixels.

    MNIST, CIFAR and STL-10 are downloaded where $PROBAGG_DATA has no copy; `progress` is told the
    bytes done and in all. ImageNet's photos are read at 224 pixels where no `size` is given.

    >>> load_images("digits").read(np.array([0])).shape
    (1, 8, 8, 1)
    """
    if name in _SYNSETS:
        return _imagenet(name, _IMAGENET_SIZE if size is None else size)
    if name not in _READERS:
        raise _unknown(name, IMAGE_NAMES)
    return refitted(_READERS[name](progress), size, None)


def _unknown(name: str, names: tuple[str, ...]) -> NoData:
    hint = did_you_mean(name, names)
    return NoData(f"{name!r} is no known data set: there are {', '.join(names)}.{hint}")


def _in_data_folder(file: str) -> Path | None:
    """A file of $PROBAGG_DATA, where it is."""
    folder = os.environ.get("PROBAGG_DATA")
    path = Path(folder).expanduser() / file if folder else None
    return path if path is not None and path.is_file() else None


def _needed(name: str, file: str) -> Path:
    """A file of $PROBAGG_DATA, or an error that says to put it there."""
    folder = os.environ.get("PROBAGG_DATA")
    if not folder:
        raise NoData(
            f"{name!r} is read from {file} in the folder that PROBAGG_DATA names, and PROBAGG_DATA "
            "is not set. Set it to a folder with that file (arrays X and y), or use 'digits'."
        )
    path = _in_data_folder(file)
    if path is None:
        missing = Path(folder, file)
        raise NoData(f"{missing} does not exist. Put the file there or set PROBAGG_DATA elsewhere.")
    return path


def _arrays(name: str, file: str) -> tuple[np.ndarray, np.ndarray]:
    path = _needed(name, file)
    X, y = read_npz(path)
    if y is None:
        raise NoData(f"{path} is no .npz file with arrays X and y (no y). Put such a file there.")
    return X, y


def _release(
    name: str, reader: Callable[[Path], ArrayImages], progress: Progress | None
) -> ArrayImages:
    """A public release, from $PROBAGG_DATA where it lies there, else from the cache."""
    folder = os.environ.get("PROBAGG_DATA")
    place = archives.locate(Path(folder).expanduser(), name) if folder else None
    return reader(place or obtain(name, progress=progress))


def _digits(progress: Progress | None) -> ArrayImages:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    pixels = np.rint(X * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)  # stored as 0..16
    return ArrayImages(pixels, y, name="digits", class_names=_DIGITS)


def _mnist(progress: Progress | None) -> ArrayImages:
    if _in_data_folder("mnist.npz"):
        X, y = _arrays("mnist", "mnist.npz")
        return ArrayImages(X, y, name="mnist", class_names=_DIGITS)
    return _release("mnist", archives.read_mnist, progress)


def _mnist_test(progress: Progress | None) -> ArrayImages:
    both = _mnist(progress)
    assert both.y is not None
    last = np.arange(len(both))[-10_000:]
    return ArrayImages(both.read(last), both.y[last], name="mnist-test", class_names=_DIGITS)


def _coil100(progress: Progress | None) -> ArrayImages:
    return ArrayImages(*_arrays("coil100", "coil100_32.npz"), name="coil100")


def _cifar10(progress: Progress | None) -> ArrayImages:
    parts = [_in_data_folder(f"cifar10_part{part}.zip") for part in (0, 1)]
    if _in_data_folder("cifar10.npz"):
        images = ArrayImages(*_arrays("cifar10", "cifar10.npz"), name="cifar10")
    elif parts[0] and parts[1]:
        images = packed.read_sheets([parts[0], parts[1]])
    else:
        images = _release("cifar10", archives.read_cifar10, progress)
    images.class_names = images.class_names or _CIFAR10.split()
    return images


def _cifar100(progress: Progress | None) -> ArrayImages:
    return _release("cifar100", archives.read_cifar100, progress)


def _stl10(progress: Progress | None) -> ArrayImages:
    return _release("stl10", archives.read_stl10, progress)


def _imagenette(progress: Progress | None) -> ArrayImages:
    return packed.read_jpegs(_needed("imagenette", "imagenette_96.npz"))


def _imagenet(name: str, size: int) -> ImageSet:
    folder = os.environ.get("PROBAGG_IMAGENET")
    if not folder:
        raise NoData(
            f"{name!r} is made of ImageNet's training images, and PROBAGG_IMAGENET is not set. Set "
            "it to the folder with one sub-folder a class (n02056570, ...), or with train/."
        )
    images = archives.read_imagenet(folder, _SYNSETS[name].split(), size)
    images.name = name
    return images


_READERS: dict[str, Callable[[Progress | None], ArrayImages]] = {
    "digits": _digits,
    "mnist": _mnist,
    "mnist-test": _mnist_test,
    "coil100": _coil100,
    "cifar10": _cifar10,
    "cifar100-20": _cifar100,
    "stl10": _stl10,
    "imagenette": _imagenette,
}
IMAGE_NAMES = (*_READERS, *_SYNSETS)
