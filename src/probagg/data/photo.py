"""Photo files: which are images, and how one is decoded.

A decoded image is upright, grey or RGB, and cropped to a centred square of a given size.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from probagg.errors import InputError, import_optional, install_command
from probagg.storage import open_regular

if TYPE_CHECKING:
    from PIL.Image import Image


PILLOW = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".avif", ".tif", ".tiff", ".gif", ".bmp")
)
HEIF = frozenset((".heic", ".heif", ".hif"))
# Files that file managers leave behind.
CLUTTER = {"thumbs.db", "ehthumbs.db", "desktop.ini"}
# The most kinds of files that a message names.
MOST_KINDS = 6

# Pillow opens more than these, but not only images: an .eps would start Ghostscript.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF", "HEIF")  # by pillow-heif
_COMPLEX = ("WEBP", "AVIF", "HEIF")  # whose decoders take 16 and more bytes per pixel
MAX_COMPLEX = 2**26  # pixels of these
MAX_BYTES = 2**30  # the largest image file that is read
MAX_METADATA = 2**24  # bytes of a JPEG: previews and profiles have less
MAX_SEGMENTS = 2**10  # of a JPEG, which Pillow joins one by one
MANY_SCANS = 16  # of a progressive JPEG; cameras and web sites make about ten
MAX_SCANNED = 2**30  # pixels of all scans together, where they are many
MAX_READS = 2**17  # parts in which Pillow may read a file, and one more for each 2 kB of it
LARGE = 2**24  # pixels from which images are decoded one at a time and converted in bands
_ONE_AT_A_TIME = threading.Lock()
_PILLOW = r"PIL\."  # its modules
# What ends the compressed data of a scan: neither a byte 0xff in it nor a restart.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


@functools.cache
def readable_suffixes() -> frozenset[str]:
    """Return the endings of files that the installed packages read."""
    return PILLOW | HEIF if importlib.util.find_spec("pillow_heif") else PILLOW


def suffix_of(path: str | PurePath) -> str:
    """Return the ending of a file's name in lower case.

    >>> suffix_of("photos/IMG_1.HEIC")
    '.heic'
    """
    return PurePath(path).suffix.lower()


def is_image(path: str | PurePath) -> bool:
    """Return whether a file is an image that can be read, by the ending of its name.

    A file whose name has none is one if it begins as a JPEG, PNG or WebP file does.
    """
    suffix = suffix_of(path)
    return suffix in readable_suffixes() if suffix else _begins_as_image(Path(path))


def _begins_as_image(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            head = file.read(12)
    except OSError:
        return False
    is_webp = head[:4] == b"RIFF" and head[8:] == b"WEBP"
    return is_webp or head.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"))


def is_clutter(name: str) -> bool:
    """Return whether a file is hidden or a file manager's own, and is ignored.

    >>> is_clutter(".DS_Store"), is_clutter("Thumbs.db"), is_clutter("notes.txt")
    (True, True, False)
    """
    return name.startswith(".") or name.lower() in CLUTTER


def needs_package(path: str | PurePath) -> bool:
    """Return whether an image file cannot be read because pillow-heif is not installed."""
    return suffix_of(path) in HEIF - readable_suffixes()


def why_not(path: str | PurePath) -> str:
    """Return the reason why a file is not read."""
    if not suffix_of(path):
        return "not a JPEG, PNG or WebP file, and its name has no ending"
    if not needs_package(path):
        return "not an image, by the ending of its name"
    return f"{suffix_of(path)} files need a package: {install_command('heic')}"


def count_by_kind(paths: Iterable[str]) -> str:
    """Return how many files there are of each kind, and what reads them.

    >>> count_by_kind(["a.txt", "b.mp4", "c.txt"])
    '2 .txt, 1 .mp4'
    """
    counts = Counter(map(suffix_of, paths)).most_common()
    parts = []
    for suffix, n in counts[:MOST_KINDS]:
        remedy = f" ({install_command('heic')})" if needs_package(f"a{suffix}") else ""
        parts.append(f"{n:,} {suffix or 'without an ending'}{remedy}")
    rest = sum(n for _, n in counts[MOST_KINDS:])
    return ", ".join(parts) + (f", {rest:,} others" if rest else "")


class BadImage(ValueError):
    """A file that cannot be decoded; the message is the reason."""


def check_format(size: int | None, channels: int | None) -> None:
    """Raise an error for a size or a number of channels that no image can have."""
    if (size is not None and size < 1) or channels not in (None, 1, 3):
        raise InputError(
            f"size={size}, channels={channels}: size must be 1 or more pixels, channels 1 (grey) "
            "or 3 (RGB)."
        )


def pillow() -> Any:
    """Return the module PIL.Image, or raise an error that says how to install it."""
    return import_optional("PIL.Image", "Reading image files", "deep")


@functools.cache
def _formats() -> tuple[str, ...]:
    Image = pillow()
    Image.init()
    if readable_suffixes() >= HEIF:
        import_optional("pillow_heif", "Reading HEIC files", "heic").register_heif_opener()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def decode_photo(source: Path | IO[bytes], size: int | None, channels: int) -> np.ndarray:
    """Return the pixels (H, W, channels) of an image file, uint8.

    The shorter side is scaled to `size` and the longer one cropped to it about the centre;
    `size=None` keeps the whole picture at its own size.
    """
    return _pixels(open_photo(source, size, channels), size, channels)


def open_photo(source: Path | IO[bytes], size: int | None, channels: int = 3) -> Image:
    """Return the whole picture of an image file as a Pillow image.

    That is the first frame of an animation, with the EXIF orientation applied and transparency
    over white. A JPEG may be decoded smaller, but not below twice `size`.
    """
    Image, formats = pillow(), _formats()
    _silence_pillow()
    try:
        with contextlib.ExitStack() as opened:
            if isinstance(source, Path):
                source = opened.enter_context(_open(source))
            _check_work(source)
            image = opened.enter_context(Image.open(_Metered(source), formats=formats))
            if size is not None:
                # Decoding a JPEG at 1/2, 1/4 or 1/8 is cheaper; twice the size leaves the last
                # step to a better filter. Other formats ignore this.
                image.draft(None, (2 * size, 2 * size))
            many = math.prod(image.size)
            if many > MAX_COMPLEX and image.format in _COMPLEX:
                raise BadImage(f"it has {many:,} pixels, but {MAX_COMPLEX:,} at most are decoded")
            with _ONE_AT_A_TIME if many > LARGE else contextlib.nullcontext():
                image.load()
                turn = _turn(image)
                image = to_channels(image, channels)
                return image if turn is None else image.transpose(turn)
    except Exception as error:  # on broken or hostile bytes decoders raise nearly anything
        raise BadImage(_reason(error)) from error


def _open(path: Path) -> BufferedReader:
    """Open a file that may be an image; what cannot be one, or not be read, is refused."""
    if not path.is_file():
        raise BadImage("it is missing, a broken link, or not a regular file")
    if needs_package(path):
        raise BadImage(why_not(path))
    return open_regular(path)


class _Metered:
    """A file that may be read in so many parts only: Pillow takes a step in Python for each."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, MAX_READS + (_size(file) >> 11)

    def read(self, size: int = -1) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise BadImage("it has too many parts, which would take long to read")
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _size(file: IO[bytes]) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def _check_work(file: IO[bytes]) -> None:
    """Refuse what would take long to decode, whatever its size in pixels."""
    size, head = _size(file), file.read(2)
    if not size:  # files below /proc, too, which may never end
        raise BadImage("it is empty")
    if size > MAX_BYTES:
        raise BadImage(f"it has {size / 1e9:.3g} GB, but at most {MAX_BYTES / 1e9:.3g} are read")
    file.seek(0)
    if head == b"\xff\xd8":
        _check_jpeg(file.read())
        file.seek(0)


def _check_jpeg(data: bytes) -> None:
    """Refuse a JPEG with many segments, much metadata, or very many scans."""
    at, segments, metadata, scans, pixels = 2, 0, 0, 0, 0
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xD9:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        segments += 1
        metadata += length if 0xE0 <= marker <= 0xEF else 0
        if marker == 0xFF:  # padding
            length = -1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(data[i : i + 2], "big") for i in (at + 5, at + 7))
            pixels = max(pixels, height * width)
        at += 2 + length
        if marker == 0xDA:
            scans += 1
            end = _MARKER.search(data, at)
            at = len(data) if end is None else end.start()
        if metadata > MAX_METADATA:
            raise BadImage(f"it has more than {MAX_METADATA / 1e6:.0f} MB of metadata")
        if segments > MAX_SEGMENTS:
            raise BadImage(f"it has more than {MAX_SEGMENTS:,} segments")
        if scans > MANY_SCANS and scans * pixels > MAX_SCANNED:
            raise BadImage(f"it has {scans} scans of {pixels:,} pixels, which take long to decode")


def _silence_pillow() -> None:
    """Let Pillow not warn: a broken file is reported once, and may have thousands of bad tags.

    The filter stays, because `warnings.catch_warnings` is not safe in threads.
    """
    if not any(getattr(rule[3], "pattern", "") == _PILLOW for rule in warnings.filters):
        warnings.filterwarnings("ignore", module=_PILLOW)


def convert(pixels: np.ndarray, size: int | None, channels: int) -> np.ndarray:
    """Return an image (H, W, C) in another size or number of channels, as `decode_photo` would."""
    return _pixels(to_picture(pixels), size, channels)


def to_picture(pixels: np.ndarray) -> Image:
    """Return an image (H, W, C), C = 1 or 3, as a Pillow image."""
    return pillow().fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def _pixels(image: Image, size: int | None, channels: int) -> np.ndarray:
    image = to_channels(image, channels)
    if size is not None:
        image = _centred_square(image, size)
    return np.asarray(image).reshape(image.height, image.width, channels)


def _turn(image: Image) -> Any:
    """Return the transposition of the EXIF orientation, or None; `load` already turns a TIFF."""
    try:
        orientation = image.getexif().get(0x0112, 1)
    except Exception:  # the picture is good even where its EXIF block is broken
        return None
    Turn = pillow().Transpose
    return {
        2: Turn.FLIP_LEFT_RIGHT,
        3: Turn.ROTATE_180,
        4: Turn.FLIP_TOP_BOTTOM,
        5: Turn.TRANSPOSE,
        6: Turn.ROTATE_270,
        7: Turn.TRANSVERSE,
        8: Turn.ROTATE_90,
    }.get(orientation)


def to_channels(image: Image, channels: int) -> Image:
    """Return a Pillow image of any mode as grey (1 channel) or RGB (3), transparency over white.

    A large image is converted in bands, as each step makes a copy.
    """
    Image, mode = pillow(), "L" if channels == 1 else "RGB"
    if image.mode != mode and math.prod(image.size) > LARGE:
        whole, height = Image.new(mode, image.size), max(1, LARGE // image.width)
        for top in range(0, image.height, height):
            box = (0, top, image.width, min(image.height, top + height))
            whole.paste(to_channels(image.crop(box), channels), box)
        return whole
    if image.mode == "F":
        raise BadImage("its pixels are floats of unknown range: save it with 8 bits")
    if image.mode.startswith("I"):  # 16 bits, which Pillow's own conversion would clip at 255
        grey = np.clip(np.asarray(image), 0, 0xFFFF) // 256
        image = Image.fromarray(grey.astype(np.uint8))
    elif image.has_transparency_data:
        colour = image.convert("RGBA")
        white = Image.new("RGBA", colour.size, "white")
        image = Image.alpha_composite(white, colour)
    return image if image.mode == mode else image.convert(mode)


def is_grey(image: Image) -> bool:
    """Return whether the mode of a Pillow image has no colour."""
    return image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I")


def _centred_square(image: Image, size: int) -> Image:
    # Cropped before it is scaled: a 10,000 x 1 strip would grow to gigabytes otherwise.
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    bicubic = pillow().Resampling.BICUBIC  # Pillow widens its filters with the scale: no aliasing
    return image.resize((size, size), bicubic, box=box, reducing_gap=3.0)


def _reason(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "UnidentifiedImageError":
        return "it is not an image in a known format"
    if kind.startswith("DecompressionBomb"):
        return f"it has too many pixels ({error})"
    return str(error) or kind
