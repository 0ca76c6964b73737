"""A frozen network and its preprocessing: pictures in, features out, and what it calls clusters."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.arrays import chunks
from probagg.data.photo import pillow
from probagg.errors import InputError, first_line

if TYPE_CHECKING:
    from PIL.Image import Image

Colour = tuple[float, float, float]
# The weights (classes, D) and biases (classes,) of a linear classifier of features.
Head = tuple[np.ndarray, np.ndarray]

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_STD: Colour = (0.229, 0.224, 0.225)
MAX_ASPECT = 8  # longer strips are cropped before they are scaled
LITE = "efficientnet-lite0"
KINDS = (
    f"any timm model such as resnet50, {LITE}, a folder, or module:function that returns a torch "
    "module"
)
# Classes of ImageNet. Names suggested per cluster, and how much more probable the class must be in
# it than elsewhere.
CLASSES, MOST_NAMES, LEAST = 1000, 3, 0.05


class BackboneError(InputError):
    """A backbone that cannot be opened or run; the message says why and what to do."""


@dataclass(frozen=True)
class Preprocessing:
    """Scale the shorter side to `resize`, crop the centred square of `size`, normalise."""

    size: int = 224
    resize: int = 256
    mean: Colour = IMAGENET_MEAN
    std: Colour = IMAGENET_STD

    def __call__(self, image: Image) -> np.ndarray:
        """Return an RGB image as float32 (3, size, size), cropped and scaled in one step."""
        side = min(image.size) * self.size / self.resize
        left, top = (image.width - side) / 2, (image.height - side) / 2
        square = image.resize(
            (self.size, self.size),
            pillow().Resampling.BICUBIC,
            box=(left, top, left + side, top + side),
            reducing_gap=3.0,
        )
        # The normalised value of each of the 256 values of a channel.
        mean, std = np.array((self.mean, self.std), np.float32)
        table = (np.arange(256, dtype=np.float32)[:, None] / 255.0 - mean) / std
        pixels = np.asarray(square)
        return np.stack([table.T[c][pixels[..., c]] for c in range(3)])

    def numbers(self) -> dict[str, Any]:
        """Return the settings as fields of a `Backbone`, which has `size` from its input."""
        return {"resize": self.resize, "mean": self.mean, "std": self.std}


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network that turns preprocessed pictures into features.

    `resize`, `size`, `mean` and `std` describe `transform`: scale the shorter side to `resize`,
    crop the centred square of `size`, then (x - mean) / std of pixels in [0, 1]. All but `size` are
    None for a user's own transform; `resize` is None for one that squashes or pads to a square.
    `network` returns the features (n, n_features) of prepared images (n, 3, H, W), float32.
    `identity` is a digest of architecture, weights and transform, `module` the torch module that
    returns pooled features (None for hashes).
    `read_head` returns the ImageNet classifier that came with the weights, or None.
    """

    name: str
    identity: str
    transform: Callable[[Image], Any]
    network: Callable[[np.ndarray], np.ndarray]
    n_features: int
    size: int
    resize: int | None = None
    mean: Colour | None = None
    std: Colour | None = None
    module: Any = None
    device: str = "cpu"
    read_head: Callable[[], Head | None] = lambda: None

    def __repr__(self) -> str:
        return f"Backbone({self.name!r}, {self.n_features} features, {self.identity})"

    @property
    def near(self) -> int | None:
        """The size near which a JPEG may be decoded; None (all pixels) for a user's transform."""
        return None if self.mean is None else self.resize or self.size

    def prepare(self, image: Image) -> np.ndarray:
        """Return an RGB Pillow image as the network's input: float32 (3, H, W)."""
        return np.asarray(self.transform(crop_strip(image)), np.float32)

    def spec(self) -> dict[str, str]:
        """Return the description that `reopen_backbone` takes."""
        return {"backbone": self.name, "identity": self.identity}


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


def try_out(
    name: str, transform: Callable[[Image], Any], network: Callable[[np.ndarray], np.ndarray]
) -> tuple[int, int]:
    """Run two blank pictures through; return the size of the input and the number of features."""
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
            f"The transform of {name} returns shapes {', '.join(map(str, sorted(shapes)))}, but "
            "one shape (3, H, W) for all pictures is needed. Scale and crop to one size in it."
        )
    try:
        features = network(np.stack(prepared))
    except Exception as error:
        raise BackboneError(
            f"{name} cannot take a batch of pictures {(2, *prepared[0].shape)}: {first_line(error)}"
        ) from error
    if features.ndim != 2 or len(features) != 2 or features.shape[1] == 0:
        raise BackboneError(
            f"{name} returns {features.shape} for 2 pictures, but one row of features for each is "
            "needed. Let it return (n, D) or (n, D, H, W)."
        )
    return prepared[0].shape[-1], features.shape[1]


def unknown_model(name: str, known: Iterable[str]) -> BackboneError:
    """Return the error for a name that timm does not know, with similar names."""
    near = difflib.get_close_matches(name, [LITE, *known], n=3)
    hint = f"; similar names are {', '.join(near)}" if near else ""
    if name and Path(name).is_dir():
        hint = ", and the folder has no config.json of one"
    return BackboneError(f"There is no timm model {name!r}{hint}. Pass {KINDS}.")


def suggest_names(
    backbone: Backbone, X: np.ndarray, labels: np.ndarray, n_clusters: int
) -> list[tuple[int, str, float]]:
    """Return (cluster, name of a class, difference), the best first; none without a classifier.

    The difference is that of the mean probability of the class in the cluster and elsewhere.
    """
    if (head := backbone.read_head()) is None:
        return []
    try:
        from timm.data import ImageNetInfo
    except ImportError:
        return []
    info, (weight, bias) = ImageNetInfo(), head
    if weight.shape != (CLASSES, X.shape[1]):
        return []
    sums, sizes = np.zeros((n_clusters, CLASSES)), np.bincount(labels, minlength=n_clusters)
    for rows in chunks(len(X), 4096):
        logits = X[rows] @ weight.T + bias
        P = np.exp(logits - logits.max(1, keepdims=True))
        np.add.at(sums, labels[rows], P / P.sum(1, keepdims=True))
    found = []
    for k in np.flatnonzero(sizes):
        rest = (sums.sum(0) - sums[k]) / max(len(X) - sizes[k], 1)
        difference = sums[k] / sizes[k] - rest
        best = [j for j in np.argsort(-difference)[:MOST_NAMES] if difference[j] >= LEAST]
        # Of a class with several names, the first one.
        names = (info.index_to_description(j).partition(",")[0] for j in best)
        found += [(int(k), name, float(difference[j])) for j, name in zip(best, names, strict=True)]
    return found
