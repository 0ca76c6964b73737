"""A map-style torch Dataset, or anything indexed like one, as an image set."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

import numpy as np

from probagg.data.decoding import is_grey, to_channels
from probagg.errors import NoData
from probagg.storage import fingerprint


class DatasetImages:
    """The images `dataset[i]`, alone or first in a tuple, for i in range(len(dataset)).

    An image is a PIL image, a uint8 array (H, W) or (H, W, C), or a tensor (H, W) or (C, H, W),
    uint8 or float in [0, 1]. All must have one size. Classes are not read: that would decode all.
    """

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
    pixels = np.asarray(image.detach().cpu())
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
