"""What a set of images is: an array, a Dataset, or the files of a folder; each in any format."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from probagg.arrays import check_mapped, chunks
from probagg.data.arrays import numpy_of_tensor
from probagg.data.photo import (
    BadImage,
    check_format,
    convert,
    count_by_kind,
    decode_photo,
    is_clutter,
    is_grey,
    is_image,
    to_channels,
)
from probagg.errors import NoData
from probagg.progress import Progress
from probagg.storage import fingerprint
from probagg.threads import in_threads, stack_in_threads

OUTSIDE = "a link that leads out of the folder, which is not followed"


class ImageSet(ABC):
    """Images of one size that are read by row; classes are used for reporting only.

    `size` is the (height, width) that `read` returns, `channels` is 1 (grey) or 3 (RGB). `paths`
    are those of a folder's files, relative to it. `extra` are more images for pre-training.
    """

    kind: ClassVar = "images"
    name: str
    channels: int
    size: tuple[int, int]
    y: np.ndarray | None = None
    class_names: list[str] | None = None
    paths: list[str] | None = None
    extra: ImageSet | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return the images of the given rows, in that order: uint8 (n, H, W, C)."""

    def fingerprint(self) -> str:
        """Return a short digest of the images, without `extra`; each is read once."""
        return fingerprint(self._parts())

    @abstractmethod
    def _parts(self) -> Iterator[str | bytes | memoryview]:
        """Yield what identifies the images."""


class ArrayImages(ImageSet):
    """An array of images (N, H, W) or (N, H, W, C), C = 1 or 3: uint8, or float in [0, 1].

    A memory map of uint8 stays one.

    >>> images = ArrayImages(np.zeros((5, 8, 8), np.uint8))
    >>> images.read(np.array([3, 1])).shape
    (2, 8, 8, 1)
    """

    def __init__(
        self,
        array: np.ndarray,
        y: np.ndarray | None = None,
        name: str = "images",
        extra: ImageSet | None = None,
        *,
        class_names: list[str] | None = None,
    ) -> None:
        _check_shape(array)
        array = grey_levels(array, f"The images are {array.dtype} of shape {array.shape}")
        self._array = array if array.ndim == 4 else array[..., None]
        self.y = None if y is None else _checked_classes(y, len(array))
        self.name = name
        self.extra = extra
        self.class_names = class_names
        self.size, self.channels = self._array.shape[1:3], self._array.shape[3]

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return f"ArrayImages {self.name!r}: {' x '.join(map(str, self._array.shape))}"

    def read(self, rows: np.ndarray) -> np.ndarray:
        check_mapped(self._array)
        return np.ascontiguousarray(np.asarray(self._array)[rows])

    def _parts(self) -> Iterator[str | bytes | memoryview]:
        yield repr(self._array.shape)
        for start in range(0, len(self), 1024):  # a memory map is read piece by piece
            yield np.ascontiguousarray(self._array[start : start + 1024]).data


class DatasetImages(ImageSet):
    """The images `dataset[i]`, alone or first in a tuple, for i in range(len(dataset)).

    An image is a PIL image, an array (H, W) or (H, W, C), or a tensor (H, W) or (C, H, W); both are
    uint8 or float in [0, 1]. All must have one size. Classes are not read: that would decode all.
    Random transforms change the fingerprint each time.
    """

    def __init__(self, dataset: Any, name: str | None = None) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise NoData(
                f"{type(dataset).__name__} has no length or no items. Pass a folder, a .npz or "
                ".npy file, a list of image files, an array, or a map-style Dataset (with "
                "__len__ and __getitem__)."
            )
        if len(dataset) == 0:
            raise NoData(f"The {type(dataset).__name__} is empty. Pass one with images.")
        self._lock = Lock()
        self._dataset = dataset
        self.name = name or type(dataset).__name__
        height, width, self.channels = self._image(0).shape
        self.size = (height, width)

    def __len__(self) -> int:
        return len(self._dataset)

    def __repr__(self) -> str:
        return f"DatasetImages {self.name!r}: {len(self)} images"

    def read(self, rows: np.ndarray) -> np.ndarray:
        rows = np.arange(len(self))[rows]
        images = np.empty((len(rows), *self.size, self.channels), np.uint8)
        with self._lock:  # a feed reads ahead in threads, and many datasets share an open file
            for position, row in enumerate(rows):
                images[position] = self._fitting(int(row))
        return images

    def _parts(self) -> Iterator[str | bytes | memoryview]:
        yield repr((len(self), self.size))
        for row in range(len(self)):
            yield np.ascontiguousarray(self._fitting(row)).data

    def _image(self, row: int) -> np.ndarray:
        item = self._dataset[row]
        image = item[0] if isinstance(item, tuple | list) else item
        if hasattr(image, "getbands"):
            channels = 1 if is_grey(image) else 3
            pixels = np.asarray(to_channels(image, channels))
            return pixels.reshape(image.height, image.width, channels)
        if isinstance(image, np.ndarray):
            pixels = grey_levels(image, f"Image {row} is an array of {image.dtype}")
            return _last_is_channel(pixels, row, "(H, W) or (H, W, C)")
        if hasattr(image, "detach"):
            given = f"Image {row} is a tensor of {image.dtype}"
            pixels = grey_levels(numpy_of_tensor(image), given)
            pixels = pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels
            return _last_is_channel(pixels, row, "(H, W) or (C, H, W)")
        raise NoData(
            f"Item {row} is a {type(image).__name__}. A Dataset must return an image (PIL, array "
            "or tensor), or a tuple that begins with one. Pass rows of numbers as an array."
        )

    def _fitting(self, row: int) -> np.ndarray:
        image = self._image(row)
        if image.shape[:2] != self.size:
            raise NoData(
                f"Image {row} is {_by(image.shape)} but the first is {_by(self.size)}. Resize all "
                "to one size in the Dataset, for example with Resize and CenterCrop."
            )
        if image.shape[2] > self.channels:
            raise NoData(
                f"Image {row} has colour but the first has none. Convert all to one mode in the "
                "Dataset, for example with image.convert('RGB')."
            )
        return image  # a grey one among colour images is broadcast to all three channels


def _by(size: tuple[int, ...]) -> str:
    return " x ".join(map(str, size[:2]))


def grey_levels(pixels: np.ndarray, given: str) -> np.ndarray:
    """Return pixels that are uint8 or float in [0, 1] as uint8; others are an error.

    >>> grey_levels(np.array([0.0, 0.5, 1.0]), "The image")
    array([  0, 128, 255], dtype=uint8)
    """
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind != "f":
        raise NoData(
            f"{given}, but uint8, or float in [0, 1], is needed. Pass x.astype(np.uint8) where the "
            "values are in 0..255."
        )
    found = np.empty(pixels.shape, np.uint8)
    for rows in chunks(len(pixels), 1024):
        low, high = float(pixels[rows].min()), float(pixels[rows].max())
        if not (low >= 0.0 and high <= 1.0):
            raise NoData(
                f"{given} with values from {low:.3g} to {high:.3g}, but [0, 1] is needed. Leave "
                "Normalize out, or divide by the largest value that a pixel can have."
            )
        found[rows] = np.rint(255.0 * pixels[rows])
    return found


def _last_is_channel(pixels: np.ndarray, row: int, needed: str) -> np.ndarray:
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise NoData(
            f"Image {row} is {pixels.shape} when its channels are put last; {needed} with 1 or 3 "
            "channels is needed. Transpose it, or drop its transparency."
        )
    return pixels


class FolderImages(ImageSet):
    """Image files of a folder and its sub-folders, decoded to centred squares of `size` pixels.

    Files are recognised by `is_image` and sorted by their path; hidden files are ignored. Where
    every image is in a sub-folder and there are at least two of these, these are `class_names` and
    `y`, used for reporting only. With `paths`, which may be absolute, exactly these files are read,
    in this order and without classes. Nothing is decoded before `read`.

    A link that leads out of the folder is not followed: `outside` has its path and the reason.
    `passed` are the paths of all other files that are not read as images, by their names.
    """

    paths: list[str]

    def __init__(
        self,
        folder: str | PathLike[str],
        size: int,
        channels: int = 3,
        *,
        name: str | None = None,
        paths: list[str] | None = None,
    ) -> None:
        self.folder = Path(folder).expanduser()
        # Where images are found, they stay; listed ones may be anywhere.
        self._root = os.path.realpath(self.folder) if paths is None else None
        self.name = name or self.folder.resolve().name
        check_format(size, channels)
        self.size, self.channels = (size, size), channels
        self.outside: list[tuple[str, str]] = []
        self.passed: list[str] = []
        self.paths = self._find_images() if paths is None else paths
        self.y, self.class_names = _classes_of(self.paths) if paths is None else (None, None)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"FolderImages({str(self.folder)!r}, size={self.size[0]}): {len(self)} images"

    def _find_images(self) -> list[str]:
        """Return the image files below the folder; note links that lead out and other files."""
        folder = self.folder
        paths: list[str] = []
        if not folder.exists():
            raise NoData(f"{folder} does not exist. Pass the path of a folder with images.")
        if not folder.is_dir():
            raise NoData(f"{folder} is a file. Pass the folder that contains it.")
        root = os.path.realpath(folder)

        def is_inside(path: Path) -> bool:
            try:
                return not path.is_symlink() or bool(check_inside(path, root))
            except BadImage as bad:
                self.outside.append((path.relative_to(folder).as_posix(), str(bad)))
                return False

        for here, folders, files in _walk(folder):
            folders[:] = [name for name in folders if is_inside(Path(here, name))]
            for name in sorted(name for name in files if not is_clutter(name)):
                path = Path(here, name)
                inside = path.relative_to(folder).as_posix()
                if path.suffix and not is_image(name):
                    self.passed.append(inside)
                elif is_inside(path):
                    (paths if is_image(path) else self.passed).append(inside)
        if not paths:
            raise NoData(
                f"{folder} contains no image that can be read{self._describe_rest()}. Pass a "
                "folder with images, or convert them to JPEG or PNG."
            )
        return sorted(paths)

    def _describe_rest(self) -> str:
        """Return in words what a folder without images has."""
        parts = [count_by_kind(self.passed)] if self.passed else []
        if self.outside:
            parts.append(f"{len(self.outside)} links that lead out of it")
        return f": {', '.join(parts) or 'it is empty'}"

    def read(self, rows: np.ndarray) -> np.ndarray:
        rows = np.arange(len(self))[rows]
        return stack_in_threads(self._decode, rows.tolist(), (*self.size, self.channels))

    def place(self, row: int) -> Path:
        """Return the file of a row; one that is by now a link out of the folder is `BadImage`."""
        path = self.folder / self.paths[row]
        return path if self._root is None else check_inside(path, self._root)

    def _decode(self, row: int) -> np.ndarray:
        try:
            return decode_photo(self.place(row), self.size[0], self.channels)
        except BadImage as bad:
            raise NoData(
                f"{self.folder / self.paths[row]} cannot be read: {bad}. Remove it, or leave out "
                "all such files with check()."
            ) from bad

    def check(self, progress: Progress | None = None) -> tuple[FolderImages, list[tuple[str, str]]]:
        """Decode every file once; return the set of good ones, and (path, reason) of the others."""

        def reason(row: int) -> str | None:
            try:
                decode_photo(self.place(row), self.size[0], self.channels)
            except BadImage as bad:
                return str(bad)
            return None

        good, bad = [], []
        for row, why in enumerate(in_threads(reason, range(len(self)))):
            if why is None:
                good.append(row)
            else:
                bad.append((self.paths[row], why))
            if progress:
                progress(row + 1, len(self))
        if not good:
            raise NoData(
                f"None of the {len(self)} image files in {self.folder} can be read; "
                f"{bad[0][0]}: {bad[0][1]}. Pass images that other programs can open."
            )
        kept = copy.copy(self)
        kept.paths = [self.paths[row] for row in good]
        kept.y = None if self.y is None else self.y[good]
        return kept, bad

    def _parts(self) -> Iterator[str | bytes | memoryview]:
        """Yield the format, and the path, length and time of every file."""
        yield repr((self.size, self.channels))
        for path in self.paths:
            try:
                status = (self.folder / path).stat()
                facts = (status.st_size, status.st_mtime_ns)
            except OSError:  # a broken link, which check() reports
                facts = (-1, -1)
            yield os.fsencode(path) + b"\0%d %d\0" % facts


def check_inside(path: Path, root: str) -> Path:
    """Return a path that leads to somewhere in the folder `root`, or raise `BadImage`."""
    if not Path(os.path.realpath(path)).is_relative_to(root):
        raise BadImage(OUTSIDE)
    return path


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what `os.walk` does, without hidden folders and without loops of links.

    The caller may remove from the list of sub-folders those that it does not want.
    """
    seen = set()
    for here, folders, files in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(here)
        if real in seen:  # a link back to a folder that was already read: a loop
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield here, folders, files


def _refuse(error: OSError) -> None:
    raise NoData(
        f"{error.filename} cannot be listed ({error.strerror}). Make it readable or move it away."
    ) from error


def _classes_of(paths: list[str]) -> tuple[np.ndarray | None, list[str] | None]:
    folders = [path.split("/")[:-1] for path in paths]
    names = sorted({below[0] for below in folders if below})
    if not all(folders) or len(names) < 2:
        return None, None
    number = {name: k for k, name in enumerate(names)}
    return np.array([number[below[0]] for below in folders]), names


class ConvertedImages(ImageSet):
    """An image set converted to centred squares of a size or other channels as it is read."""

    def __init__(self, images: ImageSet, size: int | None, channels: int | None) -> None:
        self._images = images
        self._size = size
        self.channels = channels or images.channels
        self.size = (size, size) if size else images.size
        self.name, self.y, self.class_names = images.name, images.y, images.class_names
        self.paths = images.paths
        self.extra = None if images.extra is None else converted(images.extra, size, channels)

    def __len__(self) -> int:
        return len(self._images)

    def read(self, rows: np.ndarray) -> np.ndarray:
        pixels = self._images.read(rows)
        convert_one = partial(convert, size=self._size, channels=self.channels)
        return stack_in_threads(convert_one, list(pixels), (*self.size, self.channels))

    def _parts(self) -> Iterator[str | bytes | memoryview]:
        yield repr((self._images.fingerprint(), self.size, self.channels))


def converted(images: ImageSet, size: int | None, channels: int | None) -> ImageSet:
    """Return `images` as squares of `size` pixels with `channels`; None keeps either as it is."""
    check_format(size, channels)
    same_size = size is None or images.size == (size, size)
    if same_size and channels in (None, images.channels):
        return images
    if isinstance(images, FolderImages):
        decoded = copy.copy(images)
        side = size or images.size[0]
        decoded.size, decoded.channels = (side, side), channels or images.channels
        return decoded
    return ConvertedImages(images, size, channels)


def _check_shape(array: np.ndarray) -> None:
    given, shape = f"The images are {array.dtype} of shape {array.shape}", array.shape
    if array.ndim not in (3, 4) or 0 in shape:
        raise NoData(
            f"{given}. Pass one or more as (N, H, W), grey, or (N, H, W, 3), RGB; flat rows as "
            "x.reshape(-1, H, W)."
        )
    if array.ndim == 3 and shape[2] in (3, 4) and min(shape[:2]) >= 16:
        raise NoData(f"{given}, probably one image. Pass (N, H, W, 3), for one image x[None].")
    if array.ndim == 4 and shape[3] not in (1, 3):
        raise NoData(
            f"{given}: 1 or 3 channels must come last. Pass x.transpose(0, 2, 3, 1) where they "
            "come first, x[..., :3] without transparency."
        )


def _checked_classes(y: np.ndarray, n_images: int) -> np.ndarray:
    y = np.asarray(y)
    if y.shape != (n_images,):
        raise NoData(
            f"y has shape {y.shape} but there are {n_images} images. Pass one class per image."
        )
    if y.dtype.kind not in "iu":
        raise NoData(
            f"y is {y.dtype}, but classes must be integers. Pass "
            "np.unique(y, return_inverse=True)[1]."
        )
    return y.astype(np.int64)  # uint8 would overflow in sums
