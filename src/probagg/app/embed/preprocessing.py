"""Preprocessing of a picture for a network: scale, crop the centre, normalise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.data.photo import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

Colour = tuple[float, float, float]

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_STD: Colour = (0.229, 0.224, 0.225)
MAX_ASPECT = 8  # of a picture; longer strips are cropped before they are scaled


@dataclass(frozen=True)
class Preprocessing:
    """Scale the shorter side to `resize`, crop the centred square of `size`, normalise."""

    size: int = 224
    resize: int = 256
    mean: Colour = IMAGENET_MEAN
    std: Colour = IMAGENET_STD

    def __call__(self, image: Image) -> np.ndarray:
        """Return an RGB image as float32 (3, size, size)."""
        side = min(image.size) * self.size / self.resize
        left, top = (image.width - side) / 2, (image.height - side) / 2
        square = image.resize(
            (self.size, self.size),
            pillow().Resampling.BICUBIC,
            box=(left, top, left + side, top + side),  # cropped and scaled in one step
            reducing_gap=3.0,
        )
        pixels, table = np.asarray(square), self._table()
        return np.stack([table[c][pixels[..., c]] for c in range(3)])

    def _table(self) -> np.ndarray:
        """Return the normalised value of each of the 256 values of a channel: (3, 256)."""
        mean, std = np.array((self.mean, self.std), np.float32)
        values = np.arange(256, dtype=np.float32)[:, None] / 255.0
        return ((values - mean) / std).T

    def numbers(self) -> dict[str, Any]:
        """Return the settings as fields of a `Backbone`, which has `size` from its input."""
        return {"resize": self.resize, "mean": self.mean, "std": self.std}


def crop_strip(image: Image) -> Image:
    """Return the middle of a long strip, and any other picture as it is.

    A transform that scales the whole strip by its shorter side would fill the memory.
    """
    side = MAX_ASPECT * min(image.size)
    if max(image.size) <= side:
        return image
    width, height = min(image.width, side), min(image.height, side)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
