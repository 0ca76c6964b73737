"""A folder of image files as an image set."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Collection
from os import PathLike
from pathlib import Path, PurePath
from typing import Self

import numpy as np

from probagg.data.decoding import SUFFIXES, BadImage, decode, in_threads
from probagg.errors import InputError, NoData

Progress = Callable[[int, int], None]  # how much is done, of how much (0: not known)


def check_format(size: int | None, channels: int | None) -> None:
    """Refuse a size or a number of channels that no image has; None is somebody else's choice."""
    if (size is not None and size < 1) or channels not in (None, 1, 3):
        raise InputError(
            f"size={size}, channels={channels}: size must be 1 or more pixels, channels 1 (grey) "
            "or 3 (RGB)."
        )


class FolderImages:
    """The image files of a folder and its sub-folders, as centred squares of `size` pixels.

    Files are known by their suffix and sorted by their path; hidden ones are left out. Where every
    image lies in a sub-folder and there are two or more of these, the first-level names are
    `class_names` and `y`, which are only reported against. Nothing is decoded before `read`.
    `only` names the first-level sub-folders to take.
    """

    extra = None

    def __init__(
        self,
        folder: str | PathLike[str],
        size: int,
        channels: int = 3,
        *,
        name: str | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        self.folder = Path(folder).expanduser()
        self.name = name or self.folder.resolve().name
        self._set_format(size, channels)
        self.paths = _image_paths(self.folder, only)
        self.y, self.class_names = _classes(self.paths)

    @classmethod
    def of_file(cls, file: Path, size: int, channels: int = 3) -> Self:
        """The set of one image file, without a class."""
        images = cls.__new__(cls)  # __init__ would list all that lies beside the file
        images.folder, images.name = file.parent, file.stem
        images._set_format(size, channels)
        images.paths, images.y, images.class_names = [file.name], None, None
        return images

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"FolderImages({str(self.folder)!r}, size={self.size[0]}): {len(self)} images"

    def _set_format(self, size: int, channels: int) -> None:
        check_format(size, channels)
        self.size = (size, size)
        self.channels = channels

    def refitted(self, size: int | None, channels: int | None) -> FolderImages:
        """The same files, decoded to another size or number of channels."""
        other = copy.copy(self)
        other._set_format(size or self.size[0], channels or self.channels)
        return other

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The images of the given rows, in that order: uint8 (n, H, W, C)."""
        rows = np.arange(len(self))[rows]
        images = np.empty((len(rows), *self.size, self.channels), np.uint8)

        def fill(position: int) -> None:
            images[position] = self._decode(self.paths[rows[position]])

        for _ in in_threads(fill, range(len(rows))):
            pass
        return images

    def _decode(self, path: str) -> np.ndarray:
        try:
            return decode(self.folder / path, self.size[0], self.channels)
        except BadImage as bad:
            raise NoData(
                f"{self.folder / path} cannot be read: {bad}. Take it away, or leave out all such "
                "files with check()."
            ) from bad

    def check(self, progress: Progress | None = None) -> tuple[FolderImages, list[tuple[str, str]]]:
        """Decode every file once; the set of the good ones, and (path, reason) of the bad ones."""

        def reason(path: str) -> str | None:
            try:
                decode(self.folder / path, self.size[0], self.channels)
            except BadImage as bad:
                return str(bad)
            return None

        good, bad = [], []
        for row, why in enumerate(in_threads(reason, self.paths)):
            if why is None:
                good.append(row)
            else:
                bad.append((self.paths[row], why))
            if progress:
                progress(row + 1, len(self))
        if not good:
            raise NoData(
                f"None of the {len(self)} image files in {self.folder} can be read; "
                f"{bad[0][0]}: {bad[0][1]}. Give a folder with images that open elsewhere."
            )
        return self._only_rows(good), bad

    def _only_rows(self, rows: list[int]) -> FolderImages:
        kept = copy.copy(self)
        kept.paths = [self.paths[row] for row in rows]
        kept.y = None if self.y is None else self.y[rows]
        return kept

    def fingerprint(self) -> str:
        """A digest of every file's path, length and time, and of the format they are read in."""
        digest = hashlib.blake2b(repr((self.size, self.channels)).encode(), digest_size=8)
        for path in self.paths:
            try:
                status = (self.folder / path).stat()
                facts = (status.st_size, status.st_mtime_ns)
            except OSError:  # a broken link: check() reports it
                facts = (-1, -1)
            digest.update(os.fsencode(path) + b"\0%d %d\0" % facts)
        return digest.hexdigest()


def _image_paths(folder: Path, only: Collection[str] | None) -> list[str]:
    if not folder.exists():
        raise NoData(f"{folder} does not exist. Give the path of a folder with images.")
    if not folder.is_dir():
        raise NoData(f"{folder} is a file. Give the folder that it lies in.")
    paths, others, seen = [], 0, set()
    for here, folders, files in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(here)
        if real in seen:  # a link back to a folder that was read: going on would never end
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if only is not None and here == str(folder):
            folders[:] = [name for name in folders if name in only]
            files = []
        for name in files:
            if PurePath(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                paths.append(Path(here, name).relative_to(folder).as_posix())
            else:
                others += 1
    if not paths:
        raise NoData(
            f"{folder} holds no image: {others} files, none of which ends in "
            f"{', '.join(sorted(SUFFIXES))}. Give a folder with images, or convert them."
        )
    return sorted(paths)


def _refuse(error: OSError) -> None:
    raise NoData(
        f"{error.filename} cannot be listed ({error.strerror}). Make it readable or move it away."
    ) from error


def _classes(paths: list[str]) -> tuple[np.ndarray | None, list[str] | None]:
    tops = [path.partition("/")[0] if "/" in path else None for path in paths]
    names = sorted({top for top in tops if top is not None})
    if None in tops or len(names) < 2:
        return None, None
    number = {name: k for k, name in enumerate(names)}
    return np.array([number[top] for top in tops if top is not None]), names
