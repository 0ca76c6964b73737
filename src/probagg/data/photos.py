"""Image files as an image set: those of a folder, or a list of paths."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np

from probagg.data.photo import (
    BadImage,
    check_format,
    count_by_kind,
    decode_photo,
    is_clutter,
    is_image,
)
from probagg.data.threads import in_threads, stack_in_threads
from probagg.errors import NoData
from probagg.progress import Progress
from probagg.storage import fingerprint

OUTSIDE = "a link that leads out of the folder, which is not followed"


class EncodedImages:
    """Encoded images, which are decoded to centred squares of `size` pixels as they are read."""

    kind = "images"
    extra = None
    size: tuple[int, int]
    channels: int

    def _set_format(self, size: int, channels: int) -> None:
        check_format(size, channels)
        self.size, self.channels = (size, size), channels

    def converted(self, size: int | None, channels: int | None) -> Self:
        """Return the same images, decoded to another size or number of channels."""
        other = copy.copy(self)
        other._set_format(size or self.size[0], channels or self.channels)
        return other

    def fingerprint(self) -> str:
        """Return a digest of the images and of the format that they are decoded to."""
        return fingerprint(itertools.chain([repr((self.size, self.channels))], self._facts()))

    def _facts(self) -> Iterator[bytes]:
        """Yield what identifies each image."""
        raise NotImplementedError


class FolderImages(EncodedImages):
    """Image files of a folder and its sub-folders, decoded to centred squares of `size` pixels.

    Files are recognised by their suffix and sorted by their path; hidden files are ignored. Where
    every image is in a sub-folder and there are at least two of these, these are `class_names` and
    `y`, used for reporting only. With `paths`, which may be absolute, exactly these files are read,
    in this order and without classes. Nothing is decoded before `read`.

    A link that leads out of the folder is not followed: `outside` has its path and the reason.
    `passed` are the paths of all other files that are not read as images, by their names.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        size: int,
        channels: int = 3,
        *,
        name: str | None = None,
        paths: list[str] | None = None,
    ) -> None:
        self.folder = Path(folder).expanduser()
        self.name = name or self.folder.resolve().name
        self._set_format(size, channels)
        self.outside: list[tuple[str, str]] = []
        self.passed: list[str] = []
        self.paths = self._find_images() if paths is None else paths
        self.y, self.class_names = _classes(self.paths) if paths is None else (None, None)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"FolderImages({str(self.folder)!r}, size={self.size[0]}): {len(self)} images"

    def _find_images(self) -> list[str]:
        """Return the image files below the folder; note links that lead out and other files."""
        folder, paths = self.folder, []
        _check_folder(folder)
        root = Path(os.path.realpath(folder))

        def is_inside(path: Path) -> bool:
            if not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(root):
                return True
            self.outside.append((path.relative_to(folder).as_posix(), OUTSIDE))
            return False

        for here, folders, files in _walk(folder):
            folders[:] = [name for name in folders if is_inside(Path(here, name))]
            for name in sorted(name for name in files if not is_clutter(name)):
                path = Path(here, name)
                if not is_image(name):
                    self.passed.append(path.relative_to(folder).as_posix())
                elif is_inside(path):
                    paths.append(path.relative_to(folder).as_posix())
        if not paths:
            raise NoData(
                f"{folder} contains no image that can be read{self._describe_rest()}. Pass a "
                "folder with images, or convert them to JPEG or PNG."
            )
        return sorted(paths)

    def _describe_rest(self) -> str:
        """Return in words what a folder without images has."""
        parts = [count_by_kind(self.passed)] if self.passed else []
        if self.outside:
            parts.append(f"{len(self.outside)} links that lead out of it")
        return f": {', '.join(parts) or 'it is empty'}"

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return the images of the given rows, in that order: uint8 (n, H, W, C)."""
        rows = np.arange(len(self))[rows]
        return stack_in_threads(self._decode, rows.tolist(), (*self.size, self.channels))

    def _decode(self, row: int) -> np.ndarray:
        path = self.folder / self.paths[row]
        try:
            return decode_photo(path, self.size[0], self.channels)
        except BadImage as bad:
            raise NoData(
                f"{path} cannot be read: {bad}. Remove it, or leave out all such files with "
                "check()."
            ) from bad

    def check(self, progress: Progress | None = None) -> tuple[FolderImages, list[tuple[str, str]]]:
        """Decode every file once; return the set of good ones, and (path, reason) of the others."""

        def reason(path: str) -> str | None:
            try:
                decode_photo(self.folder / path, self.size[0], self.channels)
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
                f"{bad[0][0]}: {bad[0][1]}. Pass images that other programs can open."
            )
        return self._only_rows(good), bad

    def _only_rows(self, rows: list[int]) -> FolderImages:
        kept = copy.copy(self)
        kept.paths = [self.paths[row] for row in rows]
        kept.y = None if self.y is None else self.y[rows]
        return kept

    def _facts(self) -> Iterator[bytes]:
        """Yield the path, length and time of every file."""
        for path in self.paths:
            try:
                status = (self.folder / path).stat()
                facts = (status.st_size, status.st_mtime_ns)
            except OSError:  # a broken link, which check() reports
                facts = (-1, -1)
            yield os.fsencode(path) + b"\0%d %d\0" % facts


def _check_folder(folder: Path) -> None:
    if not folder.exists():
        raise NoData(f"{folder} does not exist. Pass the path of a folder with images.")
    if not folder.is_dir():
        raise NoData(f"{folder} is a file. Pass the folder that contains it.")


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what `os.walk` does, without hidden folders and without loops of links.

    The caller may remove from the list of sub-folders those that it does not want.
    """
    seen = set()
    for here, folders, files in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(here)
        if real in seen:  # a link back to a folder that was already read: a loop
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield here, folders, files


def _refuse(error: OSError) -> None:
    raise NoData(
        f"{error.filename} cannot be listed ({error.strerror}). Make it readable or move it away."
    ) from error


def _classes(paths: list[str]) -> tuple[np.ndarray | None, list[str] | None]:
    folders = [path.split("/")[:-1] for path in paths]
    names = sorted({below[0] for below in folders if below})
    if not all(folders) or len(names) < 2:
        return None, None
    number = {name: k for k, name in enumerate(names)}
    return np.array([number[below[0]] for below in folders]), names
