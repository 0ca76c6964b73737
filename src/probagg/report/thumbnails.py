"""Small pictures for the page, each embedded once, as many and as large as the size allows."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probagg.data.decoding import BadImage, decode, to_picture
from probagg.data.folders import FolderImages
from probagg.data.images import ImageSet
from probagg.data.opening import open_images
from probagg.data.threads import in_threads
from probagg.errors import NoData
from probagg.report.contents import Contents
from probagg.report.groups import Counts

TINY = 48  # pixels up to which an image is embedded as it is and enlarged with sharp edges
MOST = 2_600  # pictures on a page: more make a browser slow


@dataclass(frozen=True)
class Level:
    """How much is embedded: samples of each kind for a cluster, pixels and JPEG quality."""

    counts: Counts
    pixels: int
    quality: int


_COUNTS = [
    Counts(20, 10, 10),
    Counts(10, 5, 5),
    Counts(6, 3, 3),
    Counts(4, 2, 2),
    Counts(2, 1, 1),
]
_QUALITIES = [(112, 80), (96, 70), (80, 60), (64, 50)]


def levels(n_clusters: int) -> list[Level]:
    """From the richest page to the smallest: fewer pictures first, then smaller ones."""
    fitting = [c for c in _COUNTS if n_clusters * c.total <= MOST] or _COUNTS[-1:]
    fewer = [Level(counts, *_QUALITIES[0]) for counts in fitting]
    smaller = [Level(fitting[-1], *quality) for quality in _QUALITIES[1:]]
    return [*fewer, *smaller, Level(Counts(1, 0, 0), *_QUALITIES[-1]), Level(Counts(0, 0, 0), 0, 0)]


def find_images(contents: Contents, images: ImageSet | None) -> tuple[ImageSet | None, str]:
    """The run's images and "", or None and the reason why there are none to show."""
    if not contents.has_images:
        return None, ""
    source = str(contents.config.get("source", ""))
    try:
        images = open_images(source) if images is None else images
    except (NoData, OSError, ValueError, ImportError) as error:
        return None, str(error)
    if images.paths is None and len(images) != len(contents.samples):
        return None, (
            f"{source} now holds {len(images)} images, but {len(contents.samples)} were clustered."
        )
    return images, ""


class Thumbnails:
    """Data URIs of samples' pictures, made when first asked for; None where one cannot be read."""

    def __init__(self, images: ImageSet | None, names: Sequence[str]) -> None:
        self._images = images
        self._names = names
        self._rows = None
        if images is not None and images.paths is not None:
            self._rows = {path: row for row, path in enumerate(images.paths)}
        self._made: dict[tuple[int, int, int], str | None] = {}
        self._sets: dict[int, ImageSet] = {}

    @cached_property
    def pixelated(self) -> bool:
        """Whether pictures are so small that they are shown with sharp edges."""
        return self._images is not None and _side(self._images) <= TINY

    def make(self, rows: Iterable[int], level: Level) -> dict[int, str | None]:
        """The data URI of each row's picture at a level's size and quality."""
        keys = list(dict.fromkeys((row, level.pixels, level.quality) for row in rows))
        if self._images is None or not level.pixels:
            return {row: None for row, _, _ in keys}
        todo = [key for key in keys if key not in self._made]
        images = self._at_size(level.pixels)

        def work(key: tuple[int, int, int]) -> str | None:
            return self._encode(images, key[0], level.quality)

        self._made.update(zip(todo, in_threads(work, todo), strict=True))
        return {key[0]: self._made[key] for key in keys}

    def mean_length(self, rows: Sequence[int], level: Level) -> float:
        """About how long a data URI is at a level, by a few of the rows."""
        some = rows[:: max(1, len(rows) // 32)]
        lengths = [len(uri or "") for uri in self.make(some, level).values()]
        return float(np.mean(lengths)) if lengths else 0.0

    def _at_size(self, pixels: int) -> ImageSet:
        assert self._images is not None
        if pixels not in self._sets:
            size = min(pixels, _side(self._images))  # a browser enlarges as well as we could
            self._sets[pixels] = open_images(self._images, size=size)
        return self._sets[pixels]

    def _encode(self, images: ImageSet, row: int, quality: int) -> str | None:
        name = self._names[row]
        where = self._rows.get(name) if self._rows is not None else int(name)
        if where is None:
            return None
        try:
            return _data_uri(images.read(np.array([where]))[0], quality)
        except Exception:  # a file that is gone or broken by now is shown by its name
            return None


def _side(images: ImageSet) -> int:
    """The longer side of the images as they are stored; of a folder, of a few of its files."""
    if not isinstance(images, FolderImages):
        return max(images.size or (TINY + 1,))
    sides = []
    for path in images.paths[:: max(1, len(images) // 3)]:
        with contextlib.suppress(BadImage):
            sides.append(max(decode(images.folder / path, None, images.channels).shape[:2]))
    return max(sides, default=TINY + 1)


def _data_uri(pixels: np.ndarray, quality: int) -> str:
    image = to_picture(pixels)
    file = io.BytesIO()
    if max(image.size) <= TINY:
        kind = "png"
        image.save(file, "PNG", optimize=True)
    else:
        kind = "jpeg"
        image.save(file, "JPEG", quality=quality, optimize=True)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
