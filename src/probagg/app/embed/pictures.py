"""The images of a set as pictures with a digest of their content: from files, or from pixels."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from probagg.app.embed.cache import Stamp
from probagg.data.images import FolderImages
from probagg.data.photo import MAX_BYTES, open_photo, to_channels, to_picture
from probagg.data.threads import in_threads
from probagg.storage import fingerprint, open_regular

if TYPE_CHECKING:
    from PIL.Image import Image

    from probagg.data.images import ImageSet


@dataclass(frozen=True)
class Item:
    """One image of a set, not yet decoded.

    `digest` is of its content, None where it cannot be read; `picture` returns an RGB picture or
    raises BadImage.
    """

    row: int
    digest: bytes | None
    picture: Callable[[], Image]
    stamp: Stamp | None = None


class Pictures:
    """A set of images as pictures with a digest of their content; here of images as arrays."""

    def __init__(self, images: ImageSet) -> None:
        self._images = images

    def name(self, row: int) -> str | int:
        """Return the path of an image, or its row."""
        return row

    def stamps(self) -> list[Stamp | None]:
        """Return the stamp of each image, without reading it."""
        return [None] * len(self._images)

    def items(self, rows: np.ndarray, known: list[bytes | None]) -> list[Item]:
        """Return the images of these rows; `known` are the digests that all stamps had."""
        return [
            Item(row, _pixel_digest(pixels), functools.partial(_rgb, pixels))
            for row, pixels in zip(rows.tolist(), self._images.read(rows), strict=True)
        ]


def pictures_of(images: ImageSet, near: int | None) -> Pictures:
    """Return the pictures of a set; JPEG files are decoded to at least twice `near`."""
    return Files(images, near) if isinstance(images, FolderImages) else Pictures(images)


class Files(Pictures):
    """Image files, not cropped to the size of the set."""

    def __init__(self, images: FolderImages, near: int | None) -> None:
        super().__init__(images)
        self._place, self._paths = images.place, images.paths
        self._folder = images.folder.resolve()
        self._near = near
        self._stamps: list[Stamp | None] = [None] * len(images)

    def name(self, row: int) -> str | int:
        return self._paths[row]

    def stamps(self) -> list[Stamp | None]:
        self._stamps = [_stamp(self._folder / path) for path in self._paths]
        return self._stamps

    def items(self, rows: np.ndarray, known: list[bytes | None]) -> list[Item]:
        def item(row: int) -> Item:
            path = self._folder / self._paths[row]
            # The file may have changed since `stamps`.
            stamp = _stamp(path)
            same = known[row] is not None and stamp == self._stamps[row]
            digest = known[row] if same else stamp and _file_digest(path)
            return Item(row, digest, lambda: open_photo(self._place(row), self._near), stamp)

        return list(in_threads(item, rows.tolist()))


def _rgb(pixels: np.ndarray) -> Image:
    return to_channels(to_picture(pixels), 3)


def _pixel_digest(pixels: np.ndarray) -> bytes:
    parts = (repr(pixels.shape), np.ascontiguousarray(pixels).data)
    return bytes.fromhex(fingerprint(parts, 16))


def _stamp(path: Path) -> Stamp | None:
    try:
        facts = path.stat()
    except OSError:  # missing, or a broken link: decoding it reports that
        return None
    if not stat.S_ISREG(facts.st_mode) or not 0 < facts.st_size <= MAX_BYTES:
        return None  # reading a pipe would block, and a sparse file take hours
    return Stamp(os.fsencode(path), facts.st_size, facts.st_mtime_ns)


def _file_digest(path: Path) -> bytes | None:
    try:
        with open_regular(path) as file:
            return bytes.fromhex(fingerprint(iter(lambda: file.read(1 << 20), b""), 16))
    except OSError:
        return None
