"""One image file to pixels: upright, grey or RGB, a centred square of the size asked for."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

Item = TypeVar("Item")
Result = TypeVar("Result")

_ENDINGS = (
    "jpg jpeg jpe jfif png apng webp bmp dib gif tif tiff ppm pgm pbm pnm tga jp2 j2k avif ico"
)
SUFFIXES = frozenset(f".{ending}" for ending in _ENDINGS.split())
# Pillow opens more than these, but not only images: an .eps would start Ghostscript.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO")
_LAST_FORMATS = ("TGA",)  # has no signature, so it is tried when nothing else fits


class BadImage(ValueError):
    """A file that gives no picture; the message is the reason."""


def pillow() -> Any:
    """The module PIL.Image, or one line that says how to install it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Reading image files needs Pillow, which is not installed: pip install 'probagg[deep]'"
        ) from error
    return Image


@functools.cache
def _formats() -> tuple[str, ...]:
    Image = pillow()
    Image.init()
    return tuple(name for name in _FORMATS + _LAST_FORMATS if name in Image.OPEN)


def decode(source: Path | IO[bytes], size: int | None, channels: int) -> np.ndarray:
    """The pixels (H, W, channels) of an image file, uint8; `size=None` leaves them as they are.

    The picture that `photo` gives; its shorter side becomes `size` and the longer one is cut to it
    about the centre.
    """
    return _pixels(photo(source, size, channels), size, channels)


def photo(source: Path | IO[bytes], size: int | None, channels: int = 3) -> Image:
    """The whole picture of an image file as a Pillow image, at least twice `size` if it was.

    The first frame of an animation, EXIF orientation applied, transparency over white.
    """
    Image, formats = pillow(), _formats()
    try:
        if isinstance(source, Path) and not source.is_file():
            raise BadImage("it is gone, a broken link, or no plain file")
        with Image.open(source, formats=formats) as image:
            if size is not None:
                # A JPEG decodes at 1/2, 1/4 or 1/8 for less; twice the size leaves the last step
                # to a better filter. Other formats ignore this.
                image.draft(None, (2 * size, 2 * size))
            image.load()
            return to_channels(_upright(image), channels)
    except Exception as error:  # on broken or hostile bytes decoders raise nearly anything
        raise BadImage(_reason(error)) from error


def refit(pixels: np.ndarray, size: int | None, channels: int) -> np.ndarray:
    """An image (H, W, C) in another size or number of channels, as `decode` would give it."""
    image = pillow().fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return _pixels(image, size, channels)


def _pixels(image: Image, size: int | None, channels: int) -> np.ndarray:
    image = to_channels(image, channels)
    if size is not None:
        image = _centred_square(image, size)
    return np.asarray(image).reshape(image.height, image.width, channels)


def _upright(image: Image) -> Image:
    """The image turned as its EXIF orientation says; call it after `load`, which turns a TIFF."""
    try:
        orientation = image.getexif().get(0x0112, 1)
    except Exception:  # a broken EXIF block does not make a bad picture
        return image
    Turn = pillow().Transpose
    turn = {
        2: Turn.FLIP_LEFT_RIGHT,
        3: Turn.ROTATE_180,
        4: Turn.FLIP_TOP_BOTTOM,
        5: Turn.TRANSPOSE,
        6: Turn.ROTATE_270,
        7: Turn.TRANSVERSE,
        8: Turn.ROTATE_90,
    }.get(orientation)
    return image if turn is None else image.transpose(turn)


def to_channels(image: Image, channels: int) -> Image:
    """A Pillow image of any mode in grey (1 channel) or RGB (3), transparency over white."""
    Image, mode = pillow(), "L" if channels == 1 else "RGB"
    if image.mode == "F":
        raise BadImage("its pixels are floats, whose range is unknown: save it with 8 bits")
    if image.mode.startswith("I"):  # 16 bits, which Pillow's own conversion would clip at 255
        grey = np.clip(np.asarray(image), 0, 0xFFFF) // 256
        image = Image.fromarray(grey.astype(np.uint8))
    elif image.has_transparency_data:
        colour = image.convert("RGBA")
        white = Image.new("RGBA", colour.size, "white")
        image = Image.alpha_composite(white, colour)
    return image if image.mode == mode else image.convert(mode)


def is_grey(image: Image) -> bool:
    """Whether a Pillow image holds no colour by its mode."""
    return image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I")


def _centred_square(image: Image, size: int) -> Image:
    # The square is cut before it is scaled: a 10,000 x 1 strip would grow to gigabytes otherwise.
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    bicubic = pillow().Resampling.BICUBIC  # Pillow's filters grow with the scale: no aliasing
    return image.resize((size, size), bicubic, box=box, reducing_gap=3.0)


def _reason(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "UnidentifiedImageError":
        return "it is no image in a known format"
    if kind.startswith("DecompressionBomb"):
        return f"it has too many pixels ({error})"
    return str(error) or kind


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`work` of each item, in order, on all cores: Pillow lets other threads run."""
    if len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(items), 1024):  # a million waiting tasks would fill the memory
            yield from pool.map(work, items[start : start + 1024])
