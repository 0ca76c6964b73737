"""What the views of a recipe do to an image. Without torch, so that recipes need none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from probagg.errors import InputError, did_you_mean

MAX_SIZE = 1024  # pixels of a view; a batch of larger ones takes tens of gigabytes

# The strong view's operations and the range of the magnitude of each, as in the released code.
RANGES: dict[str, tuple[float, float]] = {
    "Identity": (0.0, 0.0),
    "AutoContrast": (0.0, 0.0),
    "Equalize": (0.0, 0.0),
    "Rotate": (-30.0, 30.0),  # degrees, counter-clockwise
    "Solarize": (0.0, 256.0),  # grey levels from here on are inverted
    "Color": (0.05, 0.95),  # 0 is grey, 1 the image
    "Contrast": (0.05, 0.95),  # 0 is the mean grey level
    "Brightness": (0.05, 0.95),  # 0 is black
    "Sharpness": (0.05, 0.95),  # 0 is smoothed
    "ShearX": (-0.1, 0.1),  # columns per row
    "TranslateX": (-0.1, 0.1),  # share of the width, to the left
    "TranslateY": (-0.1, 0.1),  # share of the height, upwards
    "Posterize": (4.0, 8.0),  # bits kept, rounded down
    "ShearY": (-0.1, 0.1),  # rows per column
}


@dataclass(frozen=True)
class ViewSettings:
    """What the views do to an image. Lists become tuples; an impossible value is an error."""

    size: int = 32  # pixels, height and width of a view
    crop: tuple[float, float] = (0.2, 1.0)  # area of a random crop; (1, 1): the whole image
    flip: bool = True
    # Strength of brightness, contrast, saturation and hue.
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
    jitter_probability: float = 0.8
    grayscale: float = 0.2  # probability
    blur: float = 0.0  # probability; the kernel is as wide as a tenth of the view
    rotate: float = 0.0  # degrees at most, in either direction; for digits, as the next three
    translate: float = 0.0  # share of the size at most
    scale: tuple[float, float] = (1.0, 1.0)
    shear: float = 0.0  # degrees at most
    operations: tuple[str, ...] = tuple(RANGES)  # of the strong view
    n_operations: int = 4  # drawn per sample, with replacement
    cutout: float = 0.5  # largest side of the square erased in a strong view, share of the size
    strong_crop: bool = False  # whether the strong view is cropped like the weak one
    clean_scale: float = (
        1.25  # the image is resized to this multiple of `size`, then centre-cropped
    )
    mean: tuple[float, ...] = (0.4914, 0.4822, 0.4465)  # of CIFAR-10's pixels in 0..1, and their
    std: tuple[float, ...] = (0.2470, 0.2435, 0.2616)  # deviation; one per channel or one for all

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), list):
                object.__setattr__(self, field.name, tuple(value))
        for problem in _problems(self):
            raise InputError(problem)
        for name in self.operations:
            check_operation(name)

    @property
    def crops(self) -> bool:
        """Whether a crop is ever smaller than the image."""
        return self.crop[0] < 1

    @property
    def moves(self) -> bool:
        """Whether the weak view has a random affine map."""
        return bool(self.rotate or self.translate or self.shear) or self.scale != (1, 1)


def _problems(s: ViewSettings) -> Iterator[str]:
    """Yield a message for each setting that is impossible: what it is, what is needed."""
    if not 1 <= s.size <= MAX_SIZE:
        yield f"size is {s.size}; a view needs 1 to {MAX_SIZE} pixels."
    for name in "jitter_probability", "grayscale", "blur", "cutout", "translate":
        if not 0 <= getattr(s, name) <= 1:
            yield f"{name} is {getattr(s, name)}; it must lie in 0..1."
    if len(s.crop) != 2 or not 0 < s.crop[0] <= s.crop[1] <= 1:
        yield f"crop is {s.crop}; needed: 0 < smallest area <= largest area <= 1."
    if len(s.scale) != 2 or not 0 < s.scale[0] <= s.scale[1]:
        yield f"scale is {s.scale}; needed: 0 < smallest <= largest."
    if len(s.jitter) != 4 or min(s.jitter) < 0 or s.jitter[3] > 0.5:
        yield (
            f"jitter is {s.jitter}; needed: brightness, contrast, saturation and hue, none "
            f"negative, hue at most 0.5."
        )
    if not 0 <= s.shear < 90:
        yield f"shear is {s.shear}; it must lie in 0..90 degrees."
    if s.n_operations < 0 or (s.n_operations > 0 and not s.operations):
        yield (
            f"n_operations is {s.n_operations} of {len(s.operations)} operations; 0 switches them "
            f"off, a larger number needs operations to draw from."
        )
    if len(set(s.operations)) < len(s.operations):
        yield f"operations names one twice: {', '.join(s.operations)}."
    if s.clean_scale < 1:
        yield f"clean_scale is {s.clean_scale}; it must be at least 1."
    if len(s.mean) != len(s.std) or len(s.mean) not in (1, 3) or min(s.std) <= 0:
        yield (
            f"mean is {s.mean} and std {s.std}; needed: one value each, or three, std above zero."
        )


def check_operation(name: str) -> None:
    """Raise an error that names the closest operation if there is none of this name."""
    if name not in RANGES:
        hint = did_you_mean(name, tuple(RANGES))
        raise InputError(f"operations: there is no {name!r}.{hint} Known: {', '.join(RANGES)}.")
