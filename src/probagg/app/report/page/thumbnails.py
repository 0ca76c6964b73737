"""Pictures of samples: for the page as many and as large as its size allows, and one by one."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.report.page.groups import Counts
from probagg.data.images import FolderImages, ImageSet, converted
from probagg.data.photo import BadImage, decode_photo, open_photo, to_picture
from probagg.data.threads import in_threads

if TYPE_CHECKING:
    from PIL.Image import Image

TINY = 48  # pixels; smaller images are enlarged with sharp edges
MAX_PICTURES = 2_600  # more make a browser slow


@dataclass(frozen=True)
class Level:
    """How much is embedded: samples of each kind per cluster, pixels and JPEG quality.

    A page of this level may have `share` of the largest size allowed.
    """

    counts: Counts
    pixels: int
    quality: int
    share: float = 1.0


_COUNTS = [
    Counts(20, 10, 10),
    Counts(10, 5, 5),
    Counts(6, 3, 3),
    Counts(4, 2, 2),
    Counts(2, 1, 1),
]
_QUALITIES = [(112, 80), (96, 70), (80, 60), (64, 50)]


def levels(n_clusters: int) -> list[Level]:
    """Return levels from the richest page to the smallest: fewer pictures, then smaller ones."""
    fitting = [c for c in _COUNTS if n_clusters * sum(c) <= MAX_PICTURES] or _COUNTS[-1:]
    # Sharp when enlarged, which is not worth the largest page.
    sharp = Level(fitting[0], 256, 80, share=0.5)
    fewer = [Level(counts, *_QUALITIES[0]) for counts in fitting]
    smaller = [Level(fitting[-1], *quality) for quality in _QUALITIES[1:]]
    return [
        sharp,
        *fewer,
        *smaller,
        Level(Counts(1, 0, 0), *_QUALITIES[-1]),
        Level(Counts(0, 0, 0), 0, 0),
    ]


class Thumbnails:
    """Data URIs of pictures of samples, made on demand; None where one cannot be read."""

    def __init__(self, images: ImageSet | None, samples: Assignments) -> None:
        self._images = images
        self._rows = image_rows(images, samples)
        self._made: dict[tuple[int, int, int], str | None] = {}

    @cached_property
    def _side(self) -> int:
        return TINY + 1 if self._images is None else _side(self._images)

    @property
    def pixelated(self) -> bool:
        """Whether pictures are so small that they are shown with sharp edges."""
        return self._side <= TINY

    def make(self, rows: Iterable[int], level: Level) -> dict[int, str | None]:
        """Return the data URI of the picture of each row at a level's size and quality."""
        keys = list(dict.fromkeys((row, level.pixels, level.quality) for row in rows))
        if self._images is None or not level.pixels:
            return {row: None for row, _, _ in keys}
        todo = [key for key in keys if key not in self._made]
        # A browser enlarges as well as we could.
        images = converted(self._images, min(level.pixels, self._side), None)

        def work(key: tuple[int, int, int]) -> str | None:
            picture = read_picture(images, self._rows[key[0]])
            return None if picture is None else _data_uri(picture, level.quality)

        self._made.update(zip(todo, in_threads(work, todo), strict=True))
        return {key[0]: self._made[key] for key in keys}

    def mean_length(self, rows: Sequence[int], level: Level) -> float:
        """Return about how long a data URI is at a level, measured on a few of the rows."""
        some = rows[:: max(1, len(rows) // 32)]
        lengths = [len(uri or "") for uri in self.make(some, level).values()]
        return float(np.mean(lengths)) if lengths else 0.0


def _side(images: ImageSet) -> int:
    """Return the longer side of the images as stored; for a folder, that of a few of its files."""
    if not isinstance(images, FolderImages):
        return max(images.size or (TINY + 1,))
    sides = []
    for path in images.paths[:: max(1, len(images) // 3)]:
        with contextlib.suppress(BadImage):
            sides.append(max(decode_photo(images.folder / path, None, images.channels).shape[:2]))
    return max(sides, default=TINY + 1)


def _data_uri(image: Image, quality: int) -> str:
    file = io.BytesIO()
    if max(image.size) <= TINY:
        kind = "png"
        image.save(file, "PNG", optimize=True)
    else:
        kind = "jpeg"
        image.save(file, "JPEG", quality=quality, optimize=True)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def image_rows(images: ImageSet | None, samples: Assignments) -> list[int | None]:
    """Return the row of each sample in an image set; None for a file that is no longer there."""
    if images is None:
        return [None] * len(samples)
    if images.paths is None:
        return [int(name) for name in samples.names]
    rows = {path: row for row, path in enumerate(images.paths)}
    return [rows.get(name) for name in samples.names]


def read_picture(images: ImageSet | None, row: int | None) -> Image | None:
    """Return one image as Pillow's Image; None where it cannot be read."""
    if images is None or row is None:
        return None
    try:
        pixels = images.read(np.array([row]))[0]
    except ImportError:
        raise
    except Exception:  # a file that is gone or broken by now is shown by its name
        return None
    return to_picture(pixels)


def read_whole(images: ImageSet | None, row: int | None, most: int) -> Image | None:
    """Return one image uncropped, at most `most` pixels long; None where it cannot be read."""
    if not isinstance(images, FolderImages):
        return read_picture(images, row)
    if row is None:
        return None
    try:
        picture = open_photo(images.place(row), most, images.channels)
    except BadImage:
        return None
    picture.thumbnail((most, most))
    return picture
