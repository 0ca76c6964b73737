"""Which files are images, by the ending of their names and the packages that are installed."""

from __future__ import annotations

import functools
import importlib.util
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from probagg.errors import install_command


def _endings(text: str) -> frozenset[str]:
    return frozenset(f".{ending}" for ending in text.split())


PILLOW = _endings(
    "jpg jpeg jpe jfif png apng webp bmp dib gif tif tiff ppm pgm pbm pnm tga jp2 j2k avif ico"
)
HEIF = _endings("heic heif hif")
RAW = _endings(  # of cameras, which embed a preview
    "3fr arw cr2 cr3 dcr dng erf iiq kdc mef mos mrw nef nrw orf pef raf rw2 rwl sr2 srf srw x3f"
)
OPTIONAL = {"heic": ("pillow_heif", HEIF), "raw": ("rawpy", RAW)}  # extra: module, endings
CLUTTER = {"thumbs.db", "ehthumbs.db", "desktop.ini"}  # of file managers
MOST_KINDS = 6  # that a message names


@functools.cache
def readable_suffixes() -> frozenset[str]:
    """Return the endings of files that the installed packages read."""
    found = (endings for module, endings in OPTIONAL.values() if importlib.util.find_spec(module))
    return PILLOW.union(*found)


def suffix_of(path: str | PurePath) -> str:
    """Return the ending of a file's name in lower case.

    >>> suffix_of("photos/IMG_1.HEIC")
    '.heic'
    """
    return PurePath(path).suffix.lower()


def is_image(path: str | PurePath) -> bool:
    """Return whether a file's name is that of an image that can be read."""
    return suffix_of(path) in readable_suffixes()


def is_clutter(name: str) -> bool:
    """Return whether a file is hidden or a file manager's own, and is ignored.

    >>> is_clutter(".DS_Store"), is_clutter("Thumbs.db"), is_clutter("notes.txt")
    (True, True, False)
    """
    return name.startswith(".") or name.lower() in CLUTTER


def needed_extra(path: str | PurePath) -> str | None:
    """Return the extra without which an image file cannot be read, or None."""
    if is_image(path):
        return None
    kinds = (extra for extra, (_, endings) in OPTIONAL.items() if suffix_of(path) in endings)
    return next(kinds, None)


def why_not(path: str | PurePath) -> str:
    """Return the reason why a file is not read."""
    extra = needed_extra(path)
    if extra is None:
        return "not an image, by the ending of its name"
    return f"{suffix_of(path)} files need a package: {install_command(extra)}"


def count_by_kind(paths: Iterable[str]) -> str:
    """Return how many files there are of each kind, and what reads them.

    >>> count_by_kind(["a.txt", "b.mp4", "c.txt"])
    '2 .txt, 1 .mp4'
    """
    counts = Counter(map(suffix_of, paths)).most_common()
    parts = [f"{n:,} {suffix or 'without an ending'}{_remedy(suffix)}" for suffix, n in counts]
    rest = sum(n for _, n in counts[MOST_KINDS:])
    return ", ".join(parts[:MOST_KINDS]) + (f", {rest:,} others" if rest else "")


def _remedy(suffix: str) -> str:
    extra = needed_extra(f"a{suffix}")
    return f" ({install_command(extra)})" if extra else ""
