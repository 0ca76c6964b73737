"""Readers of public image releases as their authors publish them; nothing is unpickled.

Training and test images are joined, because the paper clusters both.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from probagg.data.images import ArrayImages
from probagg.data.photos import FolderImages
from probagg.errors import NoData

Folder = str | PathLike[str]


@dataclass(frozen=True)
class Release:
    """The files of a release, and the sub-folders that may contain them."""

    files: tuple[str, ...]
    folders: tuple[str, ...]


RELEASES = {
    "cifar10": Release(
        (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
        ("cifar-10-batches-bin",),
    ),
    "cifar100": Release(("train.bin", "test.bin"), ("cifar-100-binary",)),
    "stl10": Release(
        ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "unlabeled_X.bin"),
        ("stl10_binary",),
    ),
    "mnist": Release(
        (
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        ),
        ("mnist", "MNIST/raw"),
    ),
}


IMAGENETTE = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


def find_release(folder: Folder, release: str) -> Path | None:
    """Return the folder, at or below `folder`, that contains a file of the release, or None."""
    for candidate in (Path(folder), *(Path(folder, name) for name in RELEASES[release].folders)):
        if any(_plain_or_gz(candidate / file) for file in RELEASES[release].files):
            return candidate
    return None


def _files(folder: Folder, release: str) -> list[Path]:
    """Return the path of every file of a release, or raise an error that names all missing ones."""
    files = RELEASES[release].files
    place = find_release(folder, release)
    found = [_plain_or_gz((place or Path(folder)) / file) for file in files]
    missing = [file for file, path in zip(files, found, strict=True) if path is None]
    if missing:
        raise NoData(
            f"{place or folder} lacks {', '.join(missing)} of the binary {release} release. "
            "Unpack the whole archive there."
        )
    return [path for path in found if path is not None]


def _plain_or_gz(path: Path) -> Path | None:
    zipped = path.with_name(path.name + ".gz")
    return next((p for p in (path, zipped) if p.is_file()), None)


def read_cifar10(folder: Folder) -> ArrayImages:
    """Read CIFAR-10 (60,000): data_batch_1.bin to data_batch_5.bin, then test_batch.bin."""
    return _read_cifar(folder, "cifar10", header=1, n_classes=10, names="batches.meta.txt")


def read_cifar100(folder: Folder) -> ArrayImages:
    """Read CIFAR-100 (60,000) with its 20 superclasses: train.bin, then test.bin."""
    return _read_cifar(folder, "cifar100", header=2, n_classes=20, names="coarse_label_names.txt")


def _read_cifar(
    folder: Folder, release: str, header: int, n_classes: int, names: str
) -> ArrayImages:
    """Read records of `header` label bytes, the first of which is used, and 32 x 32 x RGB."""
    paths, length = _files(folder, release), header + 3 * 32 * 32
    images, labels = [], []
    for path in paths:
        records = np.fromfile(path, np.uint8)
        if len(records) == 0 or len(records) % length:
            raise _truncated(
                path, f"{len(records):,} bytes, not a multiple of the {length} of a record"
            )
        records = records.reshape(-1, length)
        images.append(records[:, header:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(_classes_below(records[:, 0], n_classes, path))
    return ArrayImages(
        np.ascontiguousarray(np.concatenate(images)),
        np.concatenate(labels),
        name="cifar100-20" if release == "cifar100" else release,
        class_names=_names(paths[0].with_name(names)),
    )


def read_stl10(folder: Folder) -> ArrayImages:
    """Read STL-10: 13,000 images with classes; `extra` is 100,000 without, mapped from disk."""
    train_X, train_y, test_X, test_y, unlabelled = _files(folder, "stl10")
    parts = [_stl_images(train_X), _stl_images(test_X)]
    labels = [_stl_classes(train_y, len(parts[0])), _stl_classes(test_y, len(parts[1]))]
    array = np.empty((len(parts[0]) + len(parts[1]), 96, 96, 3), np.uint8)
    array[: len(parts[0])], array[len(parts[0]) :] = parts
    return ArrayImages(
        array,
        np.concatenate(labels),
        name="stl10",
        extra=ArrayImages(_stl_images(unlabelled), name="stl10-unlabelled"),
        class_names=_names(train_X.with_name("class_names.txt")),
    )


def _stl_images(path: Path) -> np.ndarray:
    """Return a view (N, H, W, C) of the file, whose order is (N, C, W, H)."""
    length, size = 3 * 96 * 96, path.stat().st_size
    if size == 0 or size % length:
        raise _truncated(path, f"{size:,} bytes, not a multiple of the {length} of an image")
    return np.memmap(path, np.uint8, "r", shape=(size // length, 3, 96, 96)).transpose(0, 3, 2, 1)


def _stl_classes(path: Path, n_images: int) -> np.ndarray:
    labels = np.fromfile(path, np.uint8)
    if len(labels) != n_images:
        raise _truncated(path, f"{len(labels):,} classes for {n_images:,} images")
    return _classes_below(labels - 1, 10, path)  # stored as 1..10; 0 becomes 255


def read_mnist(folder: Folder) -> ArrayImages:
    """Read MNIST (70,000), the 10,000 test images last: IDX files, compressed (.gz) or not."""
    train_X, train_y, test_X, test_y = _files(folder, "mnist")
    X = [_read_idx(train_X, 3), _read_idx(test_X, 3)]
    y = [_read_idx(train_y, 1), _read_idx(test_y, 1)]
    for images, labels, path in zip(X, y, (train_y, test_y), strict=True):
        if len(images) != len(labels):
            raise _truncated(path, f"{len(labels):,} classes for {len(images):,} images")
    names = [str(digit) for digit in range(10)]
    return ArrayImages(np.concatenate(X), np.concatenate(y), name="mnist", class_names=names)


def _read_idx(path: Path, n_axes: int) -> np.ndarray:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise _truncated(path, str(error)) from error
    start = 4 + 4 * n_axes
    if len(data) < start or data[:4] != bytes((0, 0, 8, n_axes)):  # 8: unsigned bytes
        raise _truncated(path, f"it does not start like an IDX file of bytes with {n_axes} axes")
    shape = struct.unpack(f">{n_axes}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise _truncated(
            path, f"{len(data) - start:,} values where its header says {math.prod(shape):,}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_imagenet(folder: Folder, synsets: Collection[str], size: int) -> FolderImages:
    """Read training images of ImageNet classes: `folder/n02056570/*.JPEG`, or `folder/train/...`.

    `class_names` are the synsets, in sorted order.
    """
    top = Path(folder).expanduser()
    below = top / "train"
    place = below if any((below / synset).is_dir() for synset in synsets) else top
    missing = [synset for synset in sorted(synsets) if not (place / synset).is_dir()]
    if missing:
        raise NoData(
            f"{place} lacks the ImageNet classes {', '.join(missing)}. Put the folder of training "
            "images of each class there, named by its synset."
        )
    images = FolderImages(place, size, only=synsets)
    empty = sorted(set(synsets) - set(images.class_names or synsets))
    if empty:
        raise NoData(f"{place} has no image in {', '.join(empty)}. Unpack these classes again.")
    return images


def read_imagenette(folder: Folder, size: int) -> FolderImages:
    """Read Imagenette (13,394 photos): `folder/train/n01440764/*.JPEG`, and the same in val."""
    images = FolderImages(folder, size, name="imagenette", only=("train", "val"), class_level=1)
    if images.class_names != list(IMAGENETTE):
        raise NoData(
            f"{folder} is not Imagenette: its folders train and val must contain a folder for each "
            f"of {', '.join(IMAGENETTE)}. Unpack the archive again."
        )
    images.class_names = list(IMAGENETTE.values())
    return images


def _classes_below(labels: np.ndarray, n_classes: int, path: Path) -> np.ndarray:
    if labels.max() >= n_classes:
        raise NoData(
            f"{path} has class numbers beyond its {n_classes} classes. Use the file of the release "
            "that is named 'binary version'."
        )
    return labels


def _names(path: Path) -> list[str] | None:
    """Return the lines of a file of class names, or None where the release has none."""
    if not path.is_file():
        return None
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]


def _truncated(path: Path, what: str) -> NoData:
    return NoData(f"{path} is truncated or of another format: {what}. Fetch or unpack it again.")
