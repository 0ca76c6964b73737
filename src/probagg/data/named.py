"""Named data sets: from scikit-learn, from files in $PROBAGG_DATA, or from the web.

Releases of images are read by `archives` and not by torchvision, which unpickles CIFAR, knows no
superclasses of CIFAR-100, and loads the 100,000 unlabelled images of STL-10 into memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from probagg.data import archives
from probagg.data.arrays import Matrix, read_numpy
from probagg.data.download import is_here, obtain
from probagg.data.images import ArrayImages, ImageSet, converted
from probagg.data.photos import FolderImages
from probagg.errors import NoData, did_you_mean, first_line
from probagg.progress import Progress
from probagg.storage import cache_folder

_OPENML = {"pendigits": 32, "isolet": 300}  # numbers of the sets at OpenML
_PACKED = "coil100"  # only as a file of ours in $PROBAGG_DATA: not listed
_FILES = {  # name -> file in $PROBAGG_DATA that comes first
    "pendigits": "pendigits.npz",
    "isolet": "isolet.npz",
    "mnist-test": "mnist.npz",
    _PACKED: "coil100_32.npz",
}
NAMES = ("digits", "pendigits", "isolet", "mnist-test")

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
_IMAGENETTE_FOLDERS = ("imagenette2-160", "imagenette2-320", "imagenette2")
_IMAGENETTE_SIZE = 160
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
_DOWNLOADED = {  # name -> release, file in $PROBAGG_DATA that replaces it, and shape
    "mnist": ("mnist", "mnist.npz", (70_000, 28, 28, 1)),
    "mnist-test": ("mnist", "mnist.npz", (10_000, 28, 28, 1)),
    "cifar10": ("cifar10", "cifar10.npz", (60_000, 32, 32, 3)),
    "cifar100-20": ("cifar100", None, (60_000, 32, 32, 3)),
    "stl10": ("stl10", None, (13_000, 96, 96, 3)),
}
ALL_NAMES = tuple(name for name in _N_CLASSES if name != _PACKED)


def n_classes(name: str) -> int:
    """Return the number of classes of a named set without loading it.

    >>> n_classes("imagenet-dogs")
    15
    """
    if name not in _N_CLASSES:
        raise _unknown(name, ALL_NAMES)
    return _N_CLASSES[name]


def load_rows(name: str) -> Matrix:
    """Return a named data set, its rows flattened to float32 vectors.

    >>> load_rows("digits").X.shape
    (1797, 64)
    """
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return Matrix(name, X.astype(np.float32), y)
    if name not in _FILES:
        raise _unknown(name, NAMES)
    if name in _OPENML and not _has(_FILES[name]):
        return _from_openml(name)
    if name == "mnist-test":
        images = _mnist_test(None)
        X, y = images.read(np.arange(len(images))), images.y
    else:
        X, y = _arrays(name, _FILES[name])
    return Matrix(name, X.reshape(len(X), -1).astype(np.float32), y)


def _from_openml(name: str) -> Matrix:
    """Return a set of OpenML, which scikit-learn downloads once and checks by its MD5."""
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(
            data_id=_OPENML[name], as_frame=False, parser="liac-arff", data_home=cache_folder()
        )
    except (OSError, ValueError) as error:
        raise NoData(
            f"{name!r} could not be fetched from OpenML ({first_line(error)}). Run again, or save "
            f"its arrays X and y as {_FILES[name]} in the folder that PROBAGG_DATA names."
        ) from error
    X, y = np.asarray(found.data, np.float32), np.unique(found.target, return_inverse=True)[1]
    return Matrix(name, X, y)


def load_images(
    name: str, *, size: int | None = None, progress: Progress | None = None
) -> ImageSet:
    """Return a named image set, at its own size or as squares of `size` pixels.

    MNIST, CIFAR and STL-10 are downloaded where $PROBAGG_DATA has no copy; `progress` is called
    with the bytes so far and the total. Photos are read at 224 pixels (ImageNet) or 160
    (Imagenette) where no `size` is given.

    >>> load_images("digits").read(np.array([0])).shape
    (1, 8, 8, 1)
    """
    if name not in _READERS:
        raise _unknown(name, IMAGE_NAMES)
    return converted(_READERS[name](progress), size, None)


def outline(name: str) -> ImageSet | None:
    """Return blank images in the shape of a set that would be downloaded; None for any other."""
    if name not in _DOWNLOADED:
        return None
    release, file, shape = _DOWNLOADED[name]
    folder = _data_folder()
    if (
        (file and _has(file))
        or (folder and archives.find_release(folder, release))
        or is_here(release)
    ):
        return None
    return ArrayImages(np.broadcast_to(np.uint8(0), shape), name=name)


def _unknown(name: str, names: tuple[str, ...]) -> NoData:
    hint = did_you_mean(name, names)
    return NoData(f"{name!r} is not a known data set: there are {', '.join(names)}.{hint}")


def _data_folder() -> Path | None:
    folder = os.environ.get("PROBAGG_DATA")
    return Path(folder).expanduser() if folder else None


def _needed(name: str, entries: tuple[str, ...], content: str) -> Path:
    """Return the first of these files or folders in $PROBAGG_DATA, or say what to put there."""
    folder, wanted = _data_folder(), " or ".join(entries)
    if folder is None:
        raise NoData(
            f"{name!r} is read from {wanted} in the folder that PROBAGG_DATA names, and "
            f"PROBAGG_DATA is not set. Set it to a folder with {content}, or use 'digits'."
        )
    found = [folder / entry for entry in entries if (folder / entry).exists()]
    if not found:
        raise NoData(
            f"{folder / wanted} does not exist. Put {content} there, or set PROBAGG_DATA to the "
            "folder that contains it."
        )
    return found[0]


def _arrays(name: str, file: str) -> tuple[np.ndarray, np.ndarray]:
    content = "a .npz file with arrays X and y"
    path = _needed(name, (file,), content)
    X, y = read_numpy(path)
    if y is None:
        raise NoData(f"{path} has no array y. Put {content} there.")
    return X, y


def _release(
    name: str, reader: Callable[[Path], ArrayImages], progress: Progress | None
) -> ArrayImages:
    """Return a public release from $PROBAGG_DATA where it is there, else from the cache."""
    folder = _data_folder()
    place = archives.find_release(folder, name) if folder else None
    return reader(place or obtain(name, progress=progress))


def _digits(progress: Progress | None) -> ArrayImages:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    pixels = np.rint(X * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)  # stored as 0..16
    return ArrayImages(pixels, y, name="digits", class_names=_DIGITS)


def _mnist(progress: Progress | None) -> ArrayImages:
    if _has("mnist.npz"):
        return ArrayImages(*_arrays("mnist", "mnist.npz"), name="mnist", class_names=_DIGITS)
    return _release("mnist", archives.read_mnist, progress)


def _mnist_test(progress: Progress | None) -> ArrayImages:
    both = _mnist(progress)
    assert both.y is not None
    last = np.arange(len(both))[-10_000:]
    return ArrayImages(both.read(last), both.y[last], name="mnist-test", class_names=_DIGITS)


def _coil100(progress: Progress | None) -> ArrayImages:
    return ArrayImages(*_arrays("coil100", "coil100_32.npz"), name="coil100")


def _cifar10(progress: Progress | None) -> ArrayImages:
    if _has("cifar10.npz"):
        images = ArrayImages(*_arrays("cifar10", "cifar10.npz"), name="cifar10")
    else:
        images = _release("cifar10", archives.read_cifar10, progress)
    images.class_names = images.class_names or _CIFAR10.split()
    return images


def _has(file: str) -> bool:
    folder = _data_folder()
    return folder is not None and (folder / file).is_file()


def _cifar100(progress: Progress | None) -> ArrayImages:
    return _release("cifar100", archives.read_cifar100, progress)


def _stl10(progress: Progress | None) -> ArrayImages:
    return _release("stl10", archives.read_stl10, progress)


def _imagenette(progress: Progress | None) -> FolderImages:
    content = "the unpacked archive imagenette2-160.tgz of https://github.com/fastai/imagenette"
    place = _needed("imagenette", _IMAGENETTE_FOLDERS, content)
    return archives.read_imagenette(place, _IMAGENETTE_SIZE)


def _imagenet(name: str) -> FolderImages:
    folder = os.environ.get("PROBAGG_IMAGENET")
    if not folder:
        raise NoData(
            f"{name!r} consists of ImageNet's training images, and PROBAGG_IMAGENET is not set. "
            "Set it to the folder with one sub-folder per class (n02056570, ...), or with train/."
        )
    images = archives.read_imagenet(folder, _SYNSETS[name].split(), _IMAGENET_SIZE)
    images.name = name
    return images


_READERS: dict[str, Callable[[Progress | None], ArrayImages | FolderImages]] = {
    "digits": _digits,
    "mnist": _mnist,
    "mnist-test": _mnist_test,
    "coil100": _coil100,
    "cifar10": _cifar10,
    "cifar100-20": _cifar100,
    "stl10": _stl10,
    "imagenette": _imagenette,
    "imagenet10": lambda progress: _imagenet("imagenet10"),
    "imagenet-dogs": lambda progress: _imagenet("imagenet-dogs"),
}
IMAGE_NAMES = tuple(name for name in _READERS if name != _PACKED)
