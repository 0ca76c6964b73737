"""Image sets packed into few files: CIFAR-10 as sheets of tiles, Imagenette as joined JPEGs."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from probagg.data.decoding import BadImage, decode, in_threads
from probagg.data.images import ArrayImages
from probagg.errors import NoData

TILES, SIDE = 50, 32  # a sheet holds 50 x 50 images of 32 x 32 pixels, row by row


def read_sheets(archives: Sequence[Path]) -> ArrayImages:
    """CIFAR-10 from zip files of lossless sheets, in their order, with the classes in y.npy."""
    sheets, labels = [], []
    for path in archives:
        try:
            with zipfile.ZipFile(path) as archive:
                names = sorted(name for name in archive.namelist() if name.endswith(".webp"))
                sheets += [archive.read(name) for name in names]
                labels.append(np.frombuffer(archive.read("y.npy"), np.uint8))  # bare bytes
        except (OSError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise NoData(f"{path} is no zip of image sheets ({error}). Copy it again.") from error
    y = np.concatenate(labels)
    X = np.empty((len(sheets), TILES, TILES, SIDE, SIDE, 3), np.uint8)
    if len(y) != len(sheets) * TILES**2:
        raise NoData(
            f"{archives[0].parent} has {len(y):,} classes for {len(sheets)} sheets of {TILES**2:,} "
            "images. Copy the archives again."
        )

    def fill(number: int) -> None:
        try:
            sheet = decode(io.BytesIO(sheets[number]), None, 3)
            X[number] = sheet.reshape(TILES, SIDE, TILES, SIDE, 3).swapaxes(1, 2)
        except ValueError as bad:
            raise NoData(f"Sheet {number} of {archives[0].parent} is broken: {bad}.") from bad

    for _ in in_threads(fill, range(len(sheets))):
        pass
    return ArrayImages(X.reshape(-1, SIDE, SIDE, 3), y, name="cifar10")


def read_jpegs(path: Path) -> ArrayImages:
    """Imagenette from a .npz with the JPEG files end to end in `data`, bounds in `off`, and y."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            data, off, y, names = (arrays[key] for key in ("data", "off", "y", "classes"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise NoData(
            f"{path} is no .npz file with arrays data, off, y and classes ({error}). Copy it again."
        ) from error

    def photo(row: int) -> np.ndarray:
        try:
            return decode(io.BytesIO(data[off[row] : off[row + 1]].tobytes()), None, 3)
        except BadImage as bad:
            raise NoData(f"Photo {row} of {path} is broken: {bad}. Copy it again.") from bad

    X = np.stack(list(in_threads(photo, range(len(off) - 1))))
    class_names = [str(name).partition(" ")[2] for name in names]  # "n01440764 tench"
    return ArrayImages(X, y, name="imagenette", class_names=class_names)
