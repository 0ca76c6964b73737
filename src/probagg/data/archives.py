"""Readers of the public releases in their binary form; none of them unpickles anything.

Training and test images are joined, as the paper clusters both.
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

from probagg.data.folders import FolderImages
from probagg.data.images import ArrayImages
from probagg.errors import NoData

Folder = str | PathLike[str]


@dataclass(frozen=True)
class Release:
    """The files of a release, and the folders they may lie in below the one that is given."""

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


def locate(folder: Folder, release: str) -> Path | None:
    """Where below `folder` the files of a release lie, or at least one of them."""
    for candidate in (Path(folder), *(Path(folder, name) for name in RELEASES[release].folders)):
        if any(_plain_or_gz(candidate / file) for file in RELEASES[release].files):
            return candidate
    return None


def _files(folder: Folder, release: str) -> list[Path]:
    """Every file of a release, or one error that names all that are missing."""
    files = RELEASES[release].files
    place = locate(folder, release)
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
    """CIFAR-10 (60,000): data_batch_1.bin to data_batch_5.bin, then test_batch.bin."""
    return _read_cifar(folder, "cifar10", header=1, n_classes=10, names="batches.meta.txt")


def read_cifar100(folder: Folder) -> ArrayImages:
    """CIFAR-100 (60,000) with its 20 super-classes: train.bin, then test.bin."""
    return _read_cifar(folder, "cifar100", header=2, n_classes=20, names="coarse_label_names.txt")


def _read_cifar(
    folder: Folder, release: str, header: int, n_classes: int, names: str
) -> ArrayImages:
    """Records of `header` label bytes, the first of which counts, and 32 x 32 red, green, blue."""
    paths, length = _files(folder, release), header + 3 * 32 * 32
    images, labels = [], []
    for path in paths:
        records = np.fromfile(path, np.uint8)
        if len(records) == 0 or len(records) % length:
            raise _cut(path, f"{len(records):,} bytes, no multiple of the {length} of a record")
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
    """STL-10: train and test with classes (13,000); `extra`, mapped from disk, 100,000 without."""
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
    """A view (N, H, W, C) of the file, which holds (N, C, W, H): each plane column by column."""
    length, size = 3 * 96 * 96, path.stat().st_size
    if size == 0 or size % length:
        raise _cut(path, f"{size:,} bytes, no multiple of the {length} of an image")
    return np.memmap(path, np.uint8, "r", shape=(size // length, 3, 96, 96)).transpose(0, 3, 2, 1)


def _stl_classes(path: Path, n_images: int) -> np.ndarray:
    labels = np.fromfile(path, np.uint8)
    if len(labels) != n_images:
        raise _cut(path, f"{len(labels):,} classes for {n_images:,} images")
    return _classes_below(labels - 1, 10, path)  # stored as 1..10; 0 wraps round to 255


def read_mnist(folder: Folder) -> ArrayImages:
    """MNIST (70,000): the training images, then the 10,000 test images; IDX files, .gz or not."""
    train_X, train_y, test_X, test_y = _files(folder, "mnist")
    X = [_read_idx(train_X, 3), _read_idx(test_X, 3)]
    y = [_read_idx(train_y, 1), _read_idx(test_y, 1)]
    for images, labels, path in zip(X, y, (train_y, test_y), strict=True):
        if len(images) != len(labels):
            raise _cut(path, f"{len(labels):,} classes for {len(images):,} images")
    names = [str(digit) for digit in range(10)]
    return ArrayImages(np.concatenate(X), np.concatenate(y), name="mnist", class_names=names)


def _read_idx(path: Path, n_axes: int) -> np.ndarray:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise _cut(path, str(error)) from error
    start = 4 + 4 * n_axes
    if len(data) < start or data[:4] != bytes((0, 0, 8, n_axes)):  # 8: unsigned bytes
        raise _cut(path, f"it does not begin as an IDX file of bytes with {n_axes} axes")
    shape = struct.unpack(f">{n_axes}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise _cut(path, f"{len(data) - start:,} values where its head says {math.prod(shape):,}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_imagenet(folder: Folder, synsets: Collection[str], size: int) -> FolderImages:
    """Training images of some ImageNet classes: `folder/n02056570/*.JPEG`, or `folder/train/...`.

    `class_names` are the synsets, in sorted order.
    """
    top = Path(folder).expanduser()
    below = top / "train"
    place = below if any((below / synset).is_dir() for synset in synsets) else top
    missing = [synset for synset in sorted(synsets) if not (place / synset).is_dir()]
    if missing:
        raise NoData(
            f"{place} lacks the ImageNet classes {', '.join(missing)}. Put the folder of training "
            "images of each there, under these names."
        )
    images = FolderImages(place, size, only=synsets)
    empty = sorted(set(synsets) - set(images.class_names or synsets))
    if empty:
        raise NoData(f"{place} has no image in {', '.join(empty)}. Unpack these classes again.")
    return images


def _classes_below(labels: np.ndarray, n_classes: int, path: Path) -> np.ndarray:
    if labels.max() >= n_classes:
        raise NoData(
            f"{path} has class bytes beyond its {n_classes} classes. Use the file of the release "
            "that is named 'binary version'."
        )
    return labels


def _names(path: Path) -> list[str] | None:
    """The lines of a file of class names, where the release has one."""
    if not path.is_file():
        return None
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]


def _cut(path: Path, what: str) -> NoData:
    return NoData(f"{path} is cut short or of another format: {what}. Fetch or unpack it again.")
