"""What a set of images is, an array as one, and any set in another size or number of channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from probagg.data.decoding import check_format, convert
from probagg.data.folders import FolderImages
from probagg.data.hub import HubImages
from probagg.data.threads import stack_in_threads
from probagg.errors import NoData
from probagg.storage import check_mapped, fingerprint


@runtime_checkable
class ImageSet(Protocol):
    """Images of one size that are read by row; classes are used for reporting only."""

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
    def extra(self) -> ImageSet | None: ...  # more images, without classes, for pre-training
    def __len__(self) -> int: ...
    def read(self, rows: np.ndarray) -> np.ndarray: ...  # uint8 (n, H, W, C), in the given order
    def fingerprint(self) -> str: ...  # short hex digest of the images, without `extra`


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
        """Return the images of the given rows, in that order: uint8 (n, H, W, C)."""
        check_mapped(self._array)
        return np.ascontiguousarray(np.asarray(self._array)[rows])

    def fingerprint(self) -> str:
        """Return a digest of shape and pixels."""
        return fingerprint(self._parts())

    def _parts(self) -> Iterator[str | memoryview]:
        yield repr(self._array.shape)
        for start in range(0, len(self), 1024):  # a memory map is read piece by piece
            yield np.ascontiguousarray(self._array[start : start + 1024]).data


class ConvertedImages:
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
        """Return the images of the given rows, in that order: uint8 (n, H, W, C)."""
        pixels = self._images.read(rows)

        def convert_one(image: np.ndarray) -> np.ndarray:
            return convert(image, self._size, self.channels)

        shape = (*(self.size or pixels.shape[1:3]), self.channels)
        return stack_in_threads(convert_one, list(pixels), shape)

    def fingerprint(self) -> str:
        """Return a digest of the set's own fingerprint and of the format it is read in."""
        return fingerprint([repr((self._images.fingerprint(), self.size, self.channels))])


def converted(images: ImageSet, size: int | None, channels: int | None) -> ImageSet:
    """Return `images` as squares of `size` pixels with `channels`; None keeps either as it is."""
    check_format(size, channels)
    same_size = size is None or images.size == (size, size)
    if same_size and channels in (None, images.channels):
        return images
    if isinstance(images, FolderImages | HubImages):
        return images.converted(size, channels)
    return ConvertedImages(images, size, channels)


def _check_array(array: np.ndarray) -> None:
    given = f"The images are {array.dtype} of shape {array.shape}"
    shape = array.shape
    if array.ndim == 2:
        raise NoData(
            f"{given}: flat rows, or one image. Restore their shape, x.reshape(-1, H, W), or pass "
            "x[None]."
        )
    if array.ndim not in (3, 4):
        raise NoData(f"{given}. Pass (N, H, W) for grey images or (N, H, W, 3) for RGB.")
    if 0 in shape:
        raise NoData(f"{given}: there is no image. Pass one or more.")
    if array.ndim == 3 and shape[2] in (3, 4) and min(shape[:2]) >= 16:
        raise NoData(f"{given}, probably one image. Pass (N, H, W, 3), for one image x[None].")
    if array.ndim == 4 and shape[3] not in (1, 3):
        if shape[1] in (1, 3):
            raise NoData(f"{given}: channels must come last. Pass x.transpose(0, 2, 3, 1).")
        cut = {4: " Drop the transparency: x[..., :3].", 2: " Drop the transparency: x[..., :1]."}
        raise NoData(f"{given}: {shape[3]} channels, not 1 or 3.{cut.get(shape[3], '')}")
    if array.dtype != np.uint8:
        conversion = "(255 * x).astype(np.uint8) where the values are in [0, 1]"
        if array.dtype.kind in "iu":
            conversion = "x.astype(np.uint8) where the values are in 0..255"
        raise NoData(f"{given}, but pixels must be uint8. Pass {conversion}.")


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
