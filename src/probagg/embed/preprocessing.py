"""A picture to the pixels a network takes: scaled, cut about the centre, normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.data.decoding import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

Colour = tuple[float, float, float]

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_STD: Colour = (0.229, 0.224, 0.225)
LONGEST = 8  # times as long as wide: what is left of a strip before it is scaled


@dataclass(frozen=True)
class Preprocessing:
    """The shorter side becomes `resize`, of which the centred square of `size` is normalised."""

    size: int = 224
    resize: int = 256
    mean: Colour = IMAGENET_MEAN
    std: Colour = IMAGENET_STD

    def __call__(self, image: Image) -> np.ndarray:
        """An RGB image as float32 (3, size, size)."""
        side = min(image.size) * self.size / self.resize
        left, top = (image.width - side) / 2, (image.height - side) / 2
        square = image.resize(
            (self.size, self.size),
            pillow().Resampling.BICUBIC,
            box=(left, top, left + side, top + side),  # cut and scaled in one go
            reducing_gap=3.0,
        )
        pixels = np.asarray(square, np.float32) / 255.0
        mean, std = np.array((self.mean, self.std), np.float32)
        normalised = (pixels - mean) / std
        return np.ascontiguousarray(normalised.transpose(2, 0, 1))

    def numbers(self) -> dict[str, Any]:
        """What a backbone says of it."""
        return {"resize": self.resize, "mean": self.mean, "std": self.std}


def middle(image: Image) -> Image:
    """The middle of a strip: whole, a transform that scales by the shorter side would fill memory.

    Other pictures stay as they are.
    """
    side = LONGEST * min(image.size)
    if max(image.size) <= side:
        return image
    width, height = min(image.width, side), min(image.height, side)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
