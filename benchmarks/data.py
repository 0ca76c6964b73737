"""Image sets that the benchmarks read from packed files in the folder that PROBAGG_DATA names.

CIFAR is packed as sheets of 50 x 50 tiles in two zip files, photos as JPEGs joined in one .npz. The
library reads the public releases of these sets; the packings are smaller, and private.
"""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np

from probagg.data.images import ArrayImages, ImageSet
from probagg.data.opening import open_images
from probagg.data.photo import decode_photo
from probagg.data.threads import in_threads, stack_in_threads

TILES, SIDE = 50, 32  # tiles per row and column of a sheet, pixels of a tile
SHEETS = {"cifar10": ("cifar10", "y.npy"), "cifar100-20": ("cifar100", "coarse.npy")}
PHOTOS = {"imagenette": "imagenette_96.npz", "imagenet-dogs": "imagenet_dogs_96.npz"}


def open_lab_images(source: str) -> ImageSet:
    """Return a packed image set by name, or whatever else `open_images` opens."""
    folder = Path(os.environ.get("PROBAGG_DATA", ""))
    if source in SHEETS:
        prefix, labels = SHEETS[source]
        parts = [folder / f"{prefix}_part{part}.zip" for part in (0, 1)]
        if all(part.is_file() for part in parts):
            return read_sheets(parts, labels, source)
    if source in PHOTOS and (folder / PHOTOS[source]).is_file():
        return read_photos(folder / PHOTOS[source], source)
    return open_images(source)


def read_sheets(archives: list[Path], labels: str, name: str) -> ArrayImages:
    """Return the tiles of all sheets, row by row, with the classes in the file `labels`."""
    sheets, classes = [], []
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            names = sorted(entry for entry in archive.namelist() if entry.endswith(".webp"))
            sheets += [archive.read(entry) for entry in names]
            classes.append(np.frombuffer(archive.read(labels), np.uint8))  # one byte per image

    def tiles(data: bytes) -> np.ndarray:
        sheet = decode_photo(io.BytesIO(data), None, 3)
        return sheet.reshape(TILES, SIDE, TILES, SIDE, 3).swapaxes(1, 2)

    X = stack_in_threads(tiles, sheets, (TILES, TILES, SIDE, SIDE, 3))
    return ArrayImages(X.reshape(-1, SIDE, SIDE, 3), np.concatenate(classes), name=name)


def read_photos(path: Path, name: str) -> ArrayImages:
    """Return JPEGs of one size that are joined in `data`, each starting where `off` says."""
    with np.load(path, allow_pickle=False) as arrays:
        data, off, y, names = (arrays[key] for key in ("data", "off", "y", "classes"))

    def photo(row: int) -> np.ndarray:
        return decode_photo(io.BytesIO(data[off[row] : off[row + 1]].tobytes()), None, 3)

    X = np.stack(list(in_threads(photo, range(len(y)))))
    class_names = [str(entry).partition(" ")[2] for entry in names]  # "n01440764 tench"
    return ArrayImages(X, y, name=name, class_names=class_names)
