"""A frozen network with what goes before it: pictures in, features out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.data.decoding import pillow
from probagg.embed.preprocessing import Colour, middle
from probagg.errors import InputError, first_line

if TYPE_CHECKING:
    from PIL.Image import Image


class BackboneError(InputError):
    """A backbone that cannot be opened or run; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network that turns prepared pictures into features.

    `resize`, `mean` and `std` say in numbers what `transform` does: the shorter side to `resize`,
    the centred square of `size`, (x - mean) / std of pixels in [0, 1]. Of a user's own transform
    they are None; of one that squashes or pads pictures to a square `resize` is.
    """

    name: str
    weights: str | None  # a file, where it was asked for
    identity: str  # covers architecture, weights and transform
    transform: Callable[[Image], Any]
    network: Callable[[np.ndarray], np.ndarray]
    n_features: int
    size: int
    resize: int | None
    mean: Colour | None
    std: Colour | None
    module: Any = None  # torch module that gives pooled features; None for ONNX
    device: str = "cpu"

    def __repr__(self) -> str:
        return f"Backbone({self.name!r}, {self.n_features} features, {self.identity})"

    @property
    def near(self) -> int | None:
        """The size near which pictures may be decoded; a user's transform gets all pixels."""
        return None if self.mean is None else self.resize or self.size

    def prepare(self, image: Image) -> np.ndarray:
        """An RGB Pillow image as the network takes it: float32 (3, H, W)."""
        return np.asarray(self.transform(middle(image)), np.float32)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """Features (n, n_features) of prepared images (n, 3, H, W), float32."""
        return self.network(batch)

    def spec(self) -> dict[str, str]:
        """What `reopen_backbone` needs to give it back."""
        spec = {"backbone": self.name, "identity": self.identity}
        return spec if self.weights is None else spec | {"weights": self.weights}


def identity_of(*facts: Any) -> str:
    """A short digest of what a backbone is made of."""
    return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def pooled(features: Any) -> Any:
    """Features (n, D) of an array or tensor (n, ...); (n, D, H, W) is averaged over space."""
    if features.ndim == 4:
        features = features.mean((2, 3))
    return features.reshape(features.shape[0], -1)


def try_out(
    name: str, transform: Callable[[Image], Any], network: Callable[[np.ndarray], np.ndarray]
) -> tuple[int, int]:
    """The size and number of features, found on two blank pictures, or what is wrong."""
    blanks = [pillow().new("RGB", size, "gray") for size in ((320, 240), (240, 320))]
    try:
        prepared = [np.asarray(transform(blank), np.float32) for blank in blanks]
    except Exception as error:  # a user's own code
        raise BackboneError(
            f"The transform of {name} fails on a picture: {first_line(error)}"
        ) from error
    shapes = {array.shape for array in prepared}
    if len(shapes) > 1 or len(prepared[0].shape) != 3 or len(prepared[0]) != 3:
        raise BackboneError(
            f"The transform of {name} gives shapes {', '.join(map(str, sorted(shapes)))}, but one "
            "shape (3, H, W) for all pictures is needed. Scale and cut to one size in it."
        )
    try:
        features = network(np.stack(prepared))
    except Exception as error:
        raise BackboneError(
            f"{name} cannot take a batch of pictures {(2, *prepared[0].shape)}: {first_line(error)}"
        ) from error
    if features.ndim != 2 or len(features) != 2 or features.shape[1] == 0:
        raise BackboneError(
            f"{name} gives {features.shape} for 2 pictures, but one row of features for each is "
            "needed. Let it return (n, D) or (n, D, H, W)."
        )
    return prepared[0].shape[-1], features.shape[1]
