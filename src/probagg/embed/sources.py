"""Where pictures come from, and how their content is known: files of a folder, or pixels."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from probagg.data.decoding import in_threads, photo, pillow, to_channels
from probagg.data.folders import FolderImages
from probagg.embed.cache import Stamp

if TYPE_CHECKING:
    from PIL.Image import Image

    from probagg.data.images import ImageSet


@dataclass(frozen=True)
class Item:
    """One image of a set, not yet decoded."""

    row: int
    digest: bytes | None  # of its content; None where it cannot be read
    picture: Callable[[], Image]  # RGB; raises BadImage
    stamp: Stamp | None = None


class Source(Protocol):
    """A set of images as pictures with a content."""

    def name(self, row: int) -> str | int: ...  # what a person knows it by
    def stamps(self) -> list[Stamp | None]: ...  # what is known without reading
    def items(self, rows: np.ndarray, known: list[bytes | None]) -> list[Item]: ...


def source_of(images: ImageSet, near: int | None) -> Source:
    """The pictures of a set; those of files are decoded to at least twice `near`."""
    return Files(images, near) if isinstance(images, FolderImages) else Pixels(images)


class Files:
    """The files of a folder, whole: not cut to the size of the set."""

    def __init__(self, images: FolderImages, near: int | None) -> None:
        self._folder, self._paths = images.folder.resolve(), images.paths
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
            stamp = _stamp(path)  # again: the file may have changed since the run began
            same = known[row] is not None and stamp == self._stamps[row]
            digest = known[row] if same else stamp and _file_digest(path)
            return Item(row, digest, functools.partial(photo, path, self._near), stamp)

        return list(in_threads(item, rows.tolist()))


class Pixels:
    """Images that a set gives as arrays."""

    def __init__(self, images: ImageSet) -> None:
        self._images = images

    def name(self, row: int) -> str | int:
        return row

    def stamps(self) -> list[Stamp | None]:
        return [None] * len(self._images)

    def items(self, rows: np.ndarray, known: list[bytes | None]) -> list[Item]:
        return [
            Item(row, _pixel_digest(pixels), functools.partial(_picture, pixels))
            for row, pixels in zip(rows.tolist(), self._images.read(rows), strict=True)
        ]


def _picture(pixels: np.ndarray) -> Image:
    image = pillow().fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return to_channels(image, 3)


def _pixel_digest(pixels: np.ndarray) -> bytes:
    digest = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def _stamp(path: Path) -> Stamp | None:
    try:
        facts = path.stat()
    except OSError:  # gone, or a broken link: reading it says so
        return None
    if not stat.S_ISREG(facts.st_mode):  # a pipe would be waited for
        return None
    return Stamp(os.fsencode(path), facts.st_size, facts.st_mtime_ns)


def _file_digest(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, _blake2b).digest()
    except OSError:
        return None


def _blake2b() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)
