"""The input of an exported model, described in words and numbers, and its normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from probagg.dpac.recipe import ViewSettings
from probagg.dpac.views import Views

BICUBIC = "bicubic"  # Pillow's, which does not alias


@dataclass(frozen=True)
class Input:
    """The input of a labeller: "images" (n, height, width, channels) or "features" (n, D)."""

    name: str
    shape: tuple[int, ...]  # of one sample
    resize: int | None = None  # the size of a photo's shorter side before the centre is cropped
    filter: str | None = None  # the resampling filter
    mean: tuple[float, ...] | None = None  # of pixels in 0..1; the model itself normalises
    std: tuple[float, ...] | None = None
    columns: tuple[str, ...] | None = None  # names of the features, where known

    @property
    def dtype(self) -> torch.dtype:
        """The type: uint8 for images, float32 for features."""
        return torch.uint8 if self.name == "images" else torch.float32

    @property
    def words(self) -> str:
        """Description of the input, for users of the exported model."""
        if self.name == "features":
            columns = f": {', '.join(self.columns)}" if self.columns else ""
            return f"float32 rows (n, {self.shape[0]}), the columns that were clustered{columns}"
        height, width, channels = self.shape
        colours = "RGB" if channels == 3 else "grey"
        fitted = (
            f"fit it to {height} x {width} exactly as the run did"
            if self.resize is None
            else f"scale its shorter side to {self.resize} pixels ({self.filter}), crop the "
            f"central {height} x {width}"
        )
        return (
            f"uint8 {colours} pixels 0 to 255, (n, {height}, {width}, {channels}): turn a photo "
            f"upright (EXIF), {fitted}. The model itself normalises"
        )


class Normalised(nn.Module):
    """Normalise uint8 pixels (n, H, W, C) to a backbone's input (n, C, H, W)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            buffer = torch.tensor(values, dtype=torch.float32)[:, None, None]
            self.register_buffer(name, buffer, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return normalised pixels, float32."""
        return (pixels.permute(0, 3, 1, 2).float() / 255.0 - self.mean) / self.std


class CleanView(nn.Module):
    """DPAC's clean view, as a module."""

    def __init__(self, settings: ViewSettings) -> None:
        super().__init__()
        self.views = Views(settings)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return normalised pixels (n, C, size, size), float32."""
        return self.views.clean(pixels)


def filter_of(transform: Any) -> str:
    """Return the resampling filter of a backbone's transform: torchvision's, or our bicubic."""
    steps = getattr(transform, "transforms", ())
    found = [step.interpolation for step in steps if hasattr(step, "interpolation")]
    return str(getattr(found[0], "value", found[0])) if found else BICUBIC
