"""What is typed after `probagg predict RUN`: one source, or image files named in several ways."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from probagg.data.opening import suggest
from probagg.data.photo import is_image
from probagg.data.photos import FolderImages
from probagg.errors import NoData, reading
from probagg.storage import read_bytes

STDIN, LIST = "-", "@"
SIZE = 96  # of the images of a folder, of which only the paths are used


def read_sources(words: list[str]) -> str | list[str]:
    """Return a single source as it was typed, or else the paths of all image files, each once.

    A word is a file, a folder, a pattern in quotes ("new/**/*.jpg"), @FILE for the paths in a file,
    or - for those on standard input. Paths are relative to the current folder.
    """
    if len(words) == 1 and not _is_list(words[0]) and not _is_pattern(words[0]):
        return words[0]
    return list(dict.fromkeys(path for word in words for path in _paths(word)))


def _is_list(word: str) -> bool:
    return word == STDIN or word.startswith(LIST)


def _is_pattern(word: str) -> bool:
    return glob.has_magic(word) and not os.path.lexists(os.path.expanduser(word))


def _paths(word: str) -> Iterator[str]:
    if _is_list(word):
        yield from _listed(word)
    elif _is_pattern(word):
        found = sorted(glob.glob(os.path.expanduser(word), recursive=True))
        images = [path for path in found if is_image(path) and os.path.isfile(path)]
        if not images:
            raise NoData(
                f"{word} matches {len(found):,} files and folders, none of which is an image. "
                "Check the pattern; ** stands for any folders."
            )
        yield from images
    elif (path := Path(word).expanduser()).is_dir():
        yield from (str(path / name) for name in FolderImages(path, SIZE).paths)
    elif path.exists():
        yield str(path)
    else:
        raise NoData(f"{word} does not exist.{suggest(word)} Give image files, folders, or a list.")


def _listed(word: str) -> list[str]:
    """Return the paths in a list: one per line, or between null bytes as `find -print0` writes."""
    name = "standard input" if word == STDIN else word.removeprefix(LIST)
    with reading(name, "Write a file with one path per line.", NoData, "a list of files"):
        data = sys.stdin.buffer.read() if word == STDIN else read_bytes(Path(name).expanduser())
    parts = data.split(b"\0") if b"\0" in data else data.splitlines()
    paths = [os.fsdecode(part) for part in parts if part.strip()]
    if not paths:
        raise NoData(f"{name} lists no file. Write one path per line.")
    return paths
