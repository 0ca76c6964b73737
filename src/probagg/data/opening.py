"""Open whatever a user has, once: images, the rows of a matrix, or a table.

Named image sets are downloaded and checked by torchvision, into the folder that PROBAGG_DATA names,
by default the cache. Training and test images are joined, because the paper clusters both.
"""

import contextlib
import os
import pickle
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from probagg.data.arrays import (
    Matrix,
    checked_rows,
    is_annotated,
    matrix_of,
    matrix_of_annotated,
    read_annotated,
    read_numpy,
)
from probagg.data.images import ArrayImages, DatasetImages, FolderImages, ImageSet, converted
from probagg.data.photo import check_format, is_image, needs_package, why_not
from probagg.data.tables import SUFFIXES, Table, pandas, read_table, table_of_frame
from probagg.errors import NoData, closest, did_you_mean, first_line, import_optional
from probagg.storage import cache_folder, open_regular

FILE_SIZE = 96  # pixels that image files are decoded to by default, as in STL-10
FILES = f".npz, .npy, .h5ad, {', '.join(SUFFIXES)} or image file"
DIGITS = "digits"  # scikit-learn's, which are both images and a matrix
# The class of torchvision, and its folder.
_TORCHVISION = {
    "mnist": ("MNIST", "MNIST"),
    "cifar10": ("CIFAR10", "cifar-10-batches-py"),
    "cifar100-20": ("CIFAR100", "cifar-100-python"),
    "stl10": ("STL10", "stl10_binary"),
}
NAMED = (DIGITS, *_TORCHVISION)


def open_source(source: Any, *, prefer: str = "images") -> ImageSet | Matrix | Table:
    """Return the images, the matrix or the table of a source; its `kind` says which it is.

    Images are a folder, an image file or a list of them, an array or a .npz (X, and y if
    known) or .npy file of one, a map-style Dataset, or an image set. A matrix is an array of two
    dimensions, dense or sparse, or a file of one, or AnnData. A table is a .csv, .tsv, .txt or
    .parquet file, a DataFrame, or an Arrow table. Digits are images or a matrix, as `prefer` says.

    Nothing is decoded yet, and image files are for squares of 96 pixels.

    >>> open_source("digits").kind, open_source(np.zeros((5, 3))).kind
    ('images', 'matrix')
    """
    if _is_path(source):
        return _open_path(source, prefer)
    if isinstance(source, ImageSet):
        return source
    if hasattr(source, "collect"):
        raise NoData(f"The {type(source).__name__} is not computed yet. Pass source.collect().")
    if isinstance(source, Mapping):
        raise NoData("A dictionary is not a table. Pass pandas.DataFrame(source).")
    if is_annotated(source):
        return matrix_of_annotated(source)
    if hasattr(source, "columns"):
        # The frames of polars and the tables of pyarrow have `to_pandas`, which needs it.
        pandas()
        return table_of_frame(source.to_pandas() if hasattr(source, "to_pandas") else source)
    if getattr(source, "ndim", 3) not in (3, 4):
        return matrix_of(source)
    if isinstance(source, np.ndarray):
        return ArrayImages(source)
    if isinstance(source, list | tuple) and source and all(map(_is_path, source)):
        # Named as given, relative to the current folder.
        paths = [os.fspath(path) for path in source]
        path, times = Counter(paths).most_common(1)[0]
        if times > 1:
            raise NoData(f"{path!r} is in the list {times} times. List every image file once.")
        return FolderImages(Path.cwd(), FILE_SIZE, name="images", paths=paths)
    return DatasetImages(source)


def open_images(source: Any, *, size: int | None = None, channels: int | None = None) -> ImageSet:
    """Return the images of a source (see `open_source`); a matrix or a table is an error.

    They are squares of `size` pixels with `channels` where these are given.

    >>> open_images("digits")
    ArrayImages 'digits': 1797 x 8 x 8 x 1
    """
    check_format(size, channels)  # before anything is read
    if isinstance(source, np.ndarray):
        return converted(ArrayImages(source), size, channels)
    found = open_source(source)
    if isinstance(found, Matrix | Table):
        where = str(source) if _is_path(source) else f"The {type(source).__name__}"
        raise NoData(
            f"{where} is neither a folder of images nor a .npz, .npy or image file with images: it "
            f"holds a {found.kind}. Pass one of these, an array, or a Dataset."
        )
    return converted(found, size, channels)


def is_named(source: Any) -> TypeGuard[str]:
    """Return whether a source is the name of a set, and no path has it."""
    return isinstance(source, str) and source in NAMED and not Path(source).exists()


def n_classes(name: str) -> int:
    """Return the number of classes of a named set without loading it."""
    return 20 if name == "cifar100-20" else 10


def is_here(source: str) -> bool:
    """Return whether a source is not a named set that would be downloaded."""
    return not is_named(source) or source == DIGITS or (_home() / _TORCHVISION[source][1]).is_dir()


def suggest(path: str, names: Sequence[str] = ()) -> str:
    """Return a sentence that suggests a file or folder beside a path, or a name; or nothing."""
    place = Path(path).expanduser()
    try:
        names_there = set(os.listdir(place.parent)) - {place.name}
        beside = [name for name in names_there if not name.startswith(".")]
    except OSError:
        beside = []
    found = closest(place.name, sorted(beside))
    if found is None:
        return did_you_mean(path, names)
    return f" Did you mean {str(place.with_name(found))!r}?"


def _is_path(item: Any) -> bool:
    return isinstance(item, str | PathLike)


def _open_path(source: str | PathLike[str], prefer: str) -> ImageSet | Matrix | Table:
    if is_named(source):
        if source != DIGITS:
            return _from_torchvision(source)
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        if prefer != "images":
            return Matrix(DIGITS, X.astype(np.float32), y)
        # They are stored as 0 to 16.
        pixels = np.rint(X * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
        return ArrayImages(pixels, y, name=DIGITS, class_names=list("0123456789"))
    path = Path(source).expanduser()
    suffix = path.suffix.lower()
    if path.is_dir():
        return FolderImages(path, FILE_SIZE)
    if not path.exists():
        raise NoData(
            f"{str(source)!r} is not a file, a folder or a known data set: {', '.join(NAMED)}."
            f"{suggest(str(source), NAMED)}"
        )
    if is_image(path) and path.is_file():
        return FolderImages(path.parent, FILE_SIZE, name=path.stem, paths=[path.name])
    if suffix in (".npz", ".npy"):
        X, y = read_numpy(path)
        if X.ndim == 2:
            return Matrix(path.stem, checked_rows(X, str(path)), y)
        return ArrayImages(X, y, name=path.stem)
    if suffix in SUFFIXES:
        return read_table(path)
    if suffix == ".h5ad":
        return read_annotated(path)
    if needs_package(path):
        raise NoData(f"{path} cannot be read: {why_not(path)}")
    raise NoData(f"{path} is neither a folder of images nor a {FILES}. Pass one of these.")


def _home() -> Path:
    given = os.environ.get("PROBAGG_DATA")
    return Path(given).expanduser() if given else cache_folder()


def _from_torchvision(name: str) -> ArrayImages:
    """Return a set of torchvision, downloaded unless it is there."""
    datasets = import_optional("torchvision.datasets", f"The data set {name}", "deep")
    kind, folder = _TORCHVISION[name]
    place, extra = _home() / folder, None
    splits = ("train", "test") if name == "stl10" else (True, False)
    try:
        # torchvision writes about the download to the standard output, which is ours for results.
        with contextlib.redirect_stdout(sys.stderr):
            parts = [getattr(datasets, kind)(_home(), split, download=True) for split in splits]
        X = np.concatenate([np.asarray(part.data) for part in parts])
        names = list("0123456789") if kind == "MNIST" else list(parts[0].classes)
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
        raise NoData(
            f"{name!r} could not be downloaded to {_home()} and read ({first_line(error)}). Run "
            "again, or set PROBAGG_DATA to a folder that has it, or in which it can be written."
        ) from error
    return ArrayImages(np.ascontiguousarray(X), y, name=name, extra=extra, class_names=names)


def _unpickled(path: Path) -> dict[str, list]:
    with open_regular(path) as file:
        return pickle.load(file, encoding="latin1")
