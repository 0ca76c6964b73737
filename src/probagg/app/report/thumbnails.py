"""Pictures of samples: for the page, and one by one."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.report.groups import Counts
from probagg.data.images import FolderImages, ImageSet, converted
from probagg.data.photo import BadImage, decode_photo, open_photo, to_picture
from probagg.threads import in_threads

if TYPE_CHECKING:
    from PIL.Image import Image

TINY = 48  # pixels; smaller images are enlarged with sharp edges
MAX_PICTURES = 2_600  # more make a browser slow
# Pictures are sharp when enlarged (pixels of a side) where the page has few.
FEW_PICTURES, SHARP, SMALL = 500, 256, 112
QUALITY = 80  # of JPEGs
COUNTS = (
    Counts(20, 10, 10), Counts(10, 5, 5), Counts(6, 3, 3), Counts(4, 2, 2), Counts(2, 1, 1),
    Counts(1, 0, 0), Counts(0, 0, 0),
)  # fmt: skip


def picture_counts(n_clusters: int) -> Counts:
    """Return how many pictures of each kind a cluster has, so that all are not too many.

    >>> picture_counts(10), picture_counts(5000)
    (Counts(typical=20, uncertain=10, farthest=10), Counts(typical=0, uncertain=0, farthest=0))
    """
    return next(counts for counts in COUNTS if n_clusters * sum(counts) <= MAX_PICTURES)


def data_uris(
    images: ImageSet | None, places: Sequence[int | None], rows: Iterable[int], side: int
) -> dict[int, str | None]:
    """Return the data URI of the picture of each row; None where it cannot be read.

    `places` are the rows of the samples in the set, `side` is that of its images.
    """
    rows = list(dict.fromkeys(rows))
    if images is None:
        return dict.fromkeys(rows)
    pixels = SHARP if len(rows) <= FEW_PICTURES else SMALL
    # A browser enlarges as well as we could.
    images = converted(images, min(pixels, side), None)

    def work(row: int) -> str | None:
        if (picture := read_picture(images, places[row])) is None:
            return None
        kind, file = "png" if max(picture.size) <= TINY else "jpeg", io.BytesIO()
        picture.save(file, kind, quality=QUALITY, optimize=True)
        return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"

    return dict(zip(rows, in_threads(work, rows), strict=True))


def side_of(images: ImageSet | None) -> int:
    """Return the longer side of the images as stored; for a folder, that of a few of its files."""
    if not isinstance(images, FolderImages):
        return TINY + 1 if images is None else max(images.size)
    sides = []
    for path in images.paths[:: max(1, len(images) // 3)]:
        with contextlib.suppress(BadImage):
            sides.append(max(decode_photo(images.folder / path, None, images.channels).shape[:2]))
    return max(sides, default=TINY + 1)


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


def jpeg(picture: Image | None) -> bytes | None:
    """Return a Pillow image as JPEG; None for None."""
    if picture is None:
        return None
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=95 if max(picture.size) <= TINY else 85)
    return file.getvalue()
