"""What a set of images is, and the one function that opens whatever a user has."""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from probagg.data.arrays import UNREADABLE, samples_and_classes
from probagg.data.datasets import DatasetImages
from probagg.data.decoding import SUFFIXES, in_threads, refit
from probagg.data.folders import FolderImages, Progress, check_format
from probagg.errors import InputError, NoData, did_you_mean

__all__ = [
    "ArrayImages",
    "DatasetImages",
    "FolderImages",
    "ImageSet",
    "RefittedImages",
    "open_images",
    "read_npz",
    "refitted",
]

FOLDER_SIZE = 96  # pixels of a folder's images where nobody says: STL-10's, small and still clear


@runtime_checkable
class ImageSet(Protocol):
    """Images of one size that are read by their row; classes are only reported against."""

    @property
    def name(self) -> str: ...
    @property
    def channels(self) -> int: ...  # 1 grey, 3 RGB
    @property
    def size(self) -> tuple[int, int] | None: ...  # (height, width) that `read` returns
    @property
    def y(self) -> np.ndarray | None: ...  # (N,) integers
    @property
    def class_names(self) -> list[str] | None: ...
    @property
    def paths(self) -> list[str] | None: ...  # of a folder's files, relative to it
    @property
    def extra(self) -> ImageSet | None: ...  # more images, without classes, to pre-train on
    def __len__(self) -> int: ...
    def read(self, rows: np.ndarray) -> np.ndarray: ...  # uint8 (n, H, W, C), in the order asked
    def fingerprint(self) -> str: ...  # short hex digest of the images (of `extra`: ask it)


class ArrayImages:
    """An array of images: uint8 (N, H, W) or (N, H, W, C), C = 1 or 3; a memory map stays one.

    >>> images = ArrayImages(np.zeros((5, 8, 8), np.uint8))
    >>> images.read(np.array([3, 1])).shape
    (2, 8, 8, 1)
    """

    paths = None

    def __init__(
        self,
        array: np.ndarray,
        y: np.ndarray | None = None,
        name: str = "images",
        extra: ImageSet | None = None,
        *,
        class_names: list[str] | None = None,
    ) -> None:
        _check_array(array)
        self._array = array if array.ndim == 4 else array[..., None]
        self.y = None if y is None else _checked_classes(y, len(array))
        self.name = name
        self.extra = extra
        self.class_names = class_names
        self.size: tuple[int, int] | None = self._array.shape[1:3]
        self.channels: int = self._array.shape[3]

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return f"ArrayImages {self.name!r}: {' x '.join(map(str, self._array.shape))}"

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The images of the given rows, in that order: uint8 (n, H, W, C)."""
        return np.ascontiguousarray(np.asarray(self._array)[rows])

    def fingerprint(self) -> str:
        """A digest of shape and pixels."""
        digest = hashlib.blake2b(repr(self._array.shape).encode(), digest_size=8)
        for start in range(0, len(self), 1024):  # a memory map passes through piece by piece
            digest.update(np.ascontiguousarray(self._array[start : start + 1024]).data)
        return digest.hexdigest()


class RefittedImages:
    """An image set in another size (centred square) or number of channels, made as it is read."""

    def __init__(self, images: ImageSet, size: int | None, channels: int | None) -> None:
        self._images = images
        self._size = size
        self.channels = channels or images.channels
        self.size = (size, size) if size else images.size
        self.name, self.y, self.class_names = images.name, images.y, images.class_names
        self.paths = images.paths
        self.extra = None if images.extra is None else refitted(images.extra, size, channels)

    def __len__(self) -> int:
        return len(self._images)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The images of the given rows, in that order: uint8 (n, H, W, C)."""
        pixels = self._images.read(rows)
        images = np.empty((len(pixels), *(self.size or pixels.shape[1:3]), self.channels), np.uint8)

        def fill(position: int) -> None:
            images[position] = refit(pixels[position], self._size, self.channels)

        for _ in in_threads(fill, range(len(pixels))):
            pass
        return images

    def fingerprint(self) -> str:
        """A digest of the set's own fingerprint and of the format it is read in."""
        facts = (self._images.fingerprint(), self.size, self.channels)
        return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def refitted(images: ImageSet, size: int | None, channels: int | None) -> ImageSet:
    """`images` as squares of `size` pixels with `channels`; None leaves either as it is."""
    check_format(size, channels)
    if size in (None, *_square(images)) and channels in (None, images.channels):
        return images
    if isinstance(images, FolderImages):
        return images.refitted(size, channels)
    return RefittedImages(images, size, channels)


def _square(images: ImageSet) -> set[int]:
    """The one length of both sides, where there is one."""
    return set(images.size or ()) if len(set(images.size or ())) == 1 else set()


def open_images(
    source: Any,
    *,
    size: int | None = None,
    channels: int | None = None,
    progress: Progress | None = None,
) -> ImageSet:
    """The image set in a folder, a .npz (X, and y or not) or .npy file, an array, or a Dataset.

    An image file is a set of one. A name of `benchmarks.IMAGE_NAMES` opens that set, and downloads
    it where it must; `progress` is told the bytes done and in all. Image files are read at 96
    pixels where no `size` is given.

    >>> open_images("digits")
    ArrayImages 'digits': 1797 x 8 x 8 x 1
    """
    check_format(size, channels)
    if isinstance(source, ImageSet):
        return refitted(source, size, channels)
    if isinstance(source, np.ndarray):
        return refitted(ArrayImages(source), size, channels)
    if isinstance(source, str | PathLike):
        return _open_path(source, size, channels, progress)
    return refitted(DatasetImages(source), size, channels)


def _open_path(
    source: str | PathLike[str], size: int | None, channels: int | None, progress: Progress | None
) -> ImageSet:
    from probagg.data import benchmarks  # here, since the named sets are made of these classes

    path = Path(source).expanduser()
    if path.is_dir():
        return FolderImages(path, size or FOLDER_SIZE, channels or 3)
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return FolderImages.of_file(path, size or FOLDER_SIZE, channels or 3)
    if path.is_file():
        return refitted(_read_file(path), size, channels)
    if source in benchmarks.IMAGE_NAMES:
        images = benchmarks.load_images(str(source), size=size, progress=progress)
        return refitted(images, None, channels)
    raise NoData(
        f"{str(source)!r} is no folder or file, and no named image set: there are "
        f"{', '.join(benchmarks.IMAGE_NAMES)}.{did_you_mean(str(source), benchmarks.IMAGE_NAMES)}"
    )


def _read_file(path: Path) -> ArrayImages:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        X, y = read_npz(path)
        return ArrayImages(X, y, name=path.stem)
    if suffix == ".npy":
        try:
            return ArrayImages(np.load(path, mmap_mode="r", allow_pickle=False), name=path.stem)
        except NoData:
            raise
        except (OSError, ValueError, EOFError) as error:
            raise NoData(f"{path} is no .npy file of images ({error}). Write it again.") from error
    raise NoData(
        f"{path} is neither a folder of images nor a .npz, .npy or image file. Give one of these."
    )


def read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """The array X (or the only one) and, if any, y of a .npz file; no pickled objects."""
    try:
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise InputError("it is a single array, as in a .npy file")
        with arrays:
            return samples_and_classes(path, arrays)
    except NoData:
        raise
    except UNREADABLE as error:
        raise NoData(
            f"{path} is no .npz file with arrays X and y ({error}). Put such a file there."
        ) from error


def _check_array(array: np.ndarray) -> None:
    given = f"The images are {array.dtype} of shape {array.shape}"
    shape = array.shape
    if array.ndim == 2:
        raise NoData(f"{given}: flat rows. Give them back their form: x.reshape(-1, H, W).")
    if array.ndim not in (3, 4):
        raise NoData(f"{given}. Pass (N, H, W) for grey images or (N, H, W, 3) for RGB.")
    if 0 in shape:
        raise NoData(f"{given}: there is no image. Pass one or more.")
    if array.ndim == 3 and shape[2] in (3, 4) and min(shape[:2]) >= 16:
        raise NoData(f"{given}: one image, it seems. Pass (N, H, W, 3), for one image x[None].")
    if array.ndim == 4 and shape[3] not in (1, 3):
        if shape[1] in (1, 3):
            raise NoData(f"{given}: channels come last here. Pass x.transpose(0, 2, 3, 1).")
        cut = {4: " Drop the transparency: x[..., :3].", 2: " Drop the transparency: x[..., :1]."}
        raise NoData(f"{given}: {shape[3]} channels, not 1 or 3.{cut.get(shape[3], '')}")
    if array.dtype != np.uint8:
        mend = "(255 * x).astype(np.uint8) where the values are in [0, 1]"
        if array.dtype.kind in "iu":
            mend = "x.astype(np.uint8) where the values are in 0..255"
        raise NoData(f"{given}, but pixels must be uint8. Pass {mend}.")


def _checked_classes(y: np.ndarray, n_images: int) -> np.ndarray:
    y = np.asarray(y)
    if y.shape != (n_images,):
        raise NoData(f"y has shape {y.shape} but there are {n_images} images. Pass one class each.")
    if y.dtype.kind not in "iu":
        raise NoData(
            f"y is {y.dtype}, but classes must be integers. Pass "
            "np.unique(y, return_inverse=True)[1]."
        )
    return y.astype(np.int64)  # a byte would wrap round in sums
