"""What a set of images is, arrays and Datasets as one, and any set in another size or channels."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import numpy as np

from probagg.data.arrays import numpy_of_tensor
from probagg.data.photo import check_format, convert, is_grey, to_channels
from probagg.data.photos import EncodedImages
from probagg.data.threads import stack_in_threads
from probagg.errors import NoData
from probagg.storage import check_mapped, fingerprint


@runtime_checkable
class ImageSet(Protocol):
    """Images of one size that are read by row; classes are used for reporting only."""

    @property
    def kind(self) -> str: ...  # "images"
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

    kind = "images"
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


class DatasetImages:
    """The images `dataset[i]`, alone or first in a tuple, for i in range(len(dataset)).

    An image is a PIL image, a uint8 array (H, W) or (H, W, C), or a tensor (H, W) or (C, H, W),
    uint8 or float in [0, 1]. All must have one size. Classes are not read: that would decode all.
    """

    kind = "images"
    paths = None
    y = None
    class_names = None
    extra = None

    def __init__(self, dataset: Any, name: str | None = None) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise NoData(
                f"{type(dataset).__name__} has no length or no items. Pass a folder, a .npz or "
                ".npy file, a list of image files, a uint8 array, or a map-style Dataset (with "
                "__len__ and __getitem__)."
            )
        if len(dataset) == 0:
            raise NoData(f"The {type(dataset).__name__} is empty. Pass one with images.")
        self._lock = Lock()
        self._dataset = dataset
        self.name = name or type(dataset).__name__
        height, width, self.channels = self._image(0).shape
        self.size: tuple[int, int] | None = (height, width)

    def __len__(self) -> int:
        return len(self._dataset)

    def __repr__(self) -> str:
        return f"DatasetImages {self.name!r}: {len(self)} images"

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return the images of the given rows, in that order: uint8 (n, H, W, C)."""
        rows = np.arange(len(self))[rows]
        assert self.size is not None
        images = np.empty((len(rows), *self.size, self.channels), np.uint8)
        with self._lock:  # a feed reads ahead in threads, and many datasets share an open file
            for position, row in enumerate(rows):
                images[position] = self._fitting(int(row))
        return images

    def fingerprint(self) -> str:
        """Return a digest of all images, each read once; random transforms change it each time."""
        return fingerprint(self._parts())

    def _parts(self) -> Iterator[str | memoryview]:
        yield repr((len(self), self.size))
        for row in range(len(self)):
            yield np.ascontiguousarray(self._fitting(row)).data

    def _image(self, row: int) -> np.ndarray:
        item = self._dataset[row]
        image = item[0] if isinstance(item, tuple | list) else item
        if hasattr(image, "getbands"):
            return _from_pillow(image)
        if isinstance(image, np.ndarray):
            return _from_array(image, row)
        if hasattr(image, "detach"):
            return _from_tensor(image, row)
        raise NoData(
            f"Item {row} is a {type(image).__name__}. A Dataset must return an image (PIL, uint8 "
            "array or tensor), or a tuple that begins with one. Pass rows of numbers as an array."
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


def _by(size: tuple[int, ...] | None) -> str:
    return " x ".join(map(str, (size or ())[:2]))


def _from_pillow(image: Any) -> np.ndarray:
    channels = 1 if is_grey(image) else 3
    return np.asarray(to_channels(image, channels)).reshape(image.height, image.width, channels)


def _from_array(image: np.ndarray, row: int) -> np.ndarray:
    if image.dtype != np.uint8:
        raise NoData(
            f"Image {row} is an array of {image.dtype}; uint8 is needed. Return "
            "(255 * x).astype(np.uint8) where its values are in [0, 1]."
        )
    return _last_is_channel(image, row, "(H, W) or (H, W, C)")


def _from_tensor(image: Any, row: int) -> np.ndarray:
    pixels = numpy_of_tensor(image)
    if pixels.dtype.kind == "f":
        low, high = float(pixels.min()), float(pixels.max())
        if not (low >= 0.0 and high <= 1.0):
            raise NoData(
                f"Image {row} is a float tensor with values from {low:.3g} to {high:.3g}; [0, 1] "
                "is needed. Leave Normalize out of the Dataset's transform."
            )
        pixels = np.rint(255.0 * pixels).astype(np.uint8)
    if pixels.dtype != np.uint8:
        raise NoData(f"Image {row} is a tensor of {image.dtype}. Return uint8 or float in [0, 1].")
    if pixels.ndim == 3:
        pixels = pixels.transpose(1, 2, 0)
    return _last_is_channel(pixels, row, "(H, W) or (C, H, W)")


def _last_is_channel(pixels: np.ndarray, row: int, needed: str) -> np.ndarray:
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise NoData(
            f"Image {row} is {pixels.shape} when its channels are put last; {needed} with 1 or 3 "
            "channels is needed. Transpose it, or drop its transparency."
        )
    return pixels


class ConvertedImages:
    """An image set converted to centred squares of a size or other channels as it is read."""

    kind = "images"

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
    if isinstance(images, EncodedImages):
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
