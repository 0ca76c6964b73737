"""Pictures of single samples, for the page and the review page."""

from __future__ import annotations

from typing import Any

import numpy as np

from probagg.app.assignments import Assignments
from probagg.data.images import ImageSet
from probagg.data.photo import BadImage, open_photo, to_picture
from probagg.data.photos import FolderImages

TINY = 48  # pixels up to which an image is enlarged with sharp edges


def locate(images: ImageSet | None, samples: Assignments) -> list[int | None]:
    """Return the row of each sample in an image set; None for a file that is no longer there."""
    if images is None:
        return [None] * len(samples)
    if images.paths is None:
        return [int(name) for name in samples.names]
    rows = {path: row for row, path in enumerate(images.paths)}
    return [rows.get(name) for name in samples.names]


def read_picture(images: ImageSet | None, row: int | None) -> Any:
    """Return one image as Pillow's Image; None where it cannot be read."""
    if images is None or row is None:
        return None
    try:
        pixels = images.read(np.array([row]))[0]
    except ImportError:  # of Pillow
        raise
    except Exception:  # a file that is gone or broken by now is shown by its name
        return None
    return to_picture(pixels)


def read_whole(images: ImageSet | None, row: int | None, most: int) -> Any:
    """Return one image uncropped, at most `most` pixels long; None where it cannot be read."""
    if not isinstance(images, FolderImages):
        return read_picture(images, row)
    if row is None:
        return None
    try:
        picture = open_photo(images.folder / images.paths[row], most, images.channels)
    except BadImage:
        return None
    picture.thumbnail((most, most))
    return picture
