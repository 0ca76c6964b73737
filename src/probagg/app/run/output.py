"""What may be written where: files and folders that a user names for a result."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Self
from xml.sax.saxutils import escape

from probagg.app.run.folder import RUN_FILES, UNFINISHED, RunFolderError, listed
from probagg.data.images import check_inside
from probagg.data.photo import BadImage, is_image
from probagg.errors import InputError, NoData
from probagg.storage import (
    copy_file,
    fingerprint,
    whole_folder,
    why_unwritable,
    write_atomically,
)

# Bytes in a name that common file systems hold.
LONGEST = 255
# A keyword of a photo, as Immich, digiKam, darktable and Lightroom read it.
SIDECAR = """<?xml version="1.0" encoding="UTF-8"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">
   <dc:subject><rdf:Bag><rdf:li>{}</rdf:li></rdf:Bag></dc:subject>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
"""


@dataclass(frozen=True)
class Output:
    """A new file, or with `overwrite` an existing one that is neither a source nor of a run.

    Call `check` before the work; writing checks again, as the file may have come up since.
    """

    path: Path
    overwrite: bool = False
    sources: tuple[Path, ...] = ()

    def check(self) -> Self:
        """Raise where writing would cost somebody a file, or is not possible."""
        path = self.path
        if path.is_dir():
            why = "is a folder. Name a file in a folder that exists."
        elif not path.absolute().parent.is_dir():
            why = "lies in a folder that does not exist. Name a file in a folder that exists."
        elif any(path.exists() and s.exists() and path.samefile(s) for s in self.sources):
            why = "is the source itself. Name another file."
        elif inside := [s for s in self.sources if path.exists() and _is_in(path, s)]:
            why = f"would replace a file in {inside[0]}. Name one elsewhere."
        elif run := run_of(path):
            why = (
                f"would replace a file in {run}, which belongs to the run there. Name another file."
            )
        elif path.is_symlink():
            why = f"is a symbolic link to {os.readlink(path)}. Name a file, not a link."
        elif path.exists() and not path.is_file():
            why = "is not a regular file. Name a new file."
        elif path.exists() and not self.overwrite:
            why = "exists. Name a new file, or replace it with --overwrite (overwrite=True)."
        elif not (why := why_unwritable(path.absolute().parent)):
            return self
        raise InputError(f"--out {path} {why}")

    def write(self, data: bytes | Iterable[bytes]) -> None:
        """Write the file, whole or not at all; `data` may come in parts."""
        write_atomically(self.path, data, self.check)


def run_of(path: Path) -> Path | None:
    """Return the run folder that a file belongs to, by its place and name, or None."""
    real = path.resolve()
    for folder in real.parents:
        inside = real.relative_to(folder).as_posix()
        if inside.startswith(f"{UNFINISHED}/"):
            return folder
        if inside in RUN_FILES and listed(folder) is not None:
            return folder
    return None


def check_target(target: Path, *others: Path) -> None:
    """Raise where a folder is neither new nor empty, or contains or lies in one of the others."""
    if os.path.lexists(target) and not target.is_dir():
        why = "is not a folder. Name a new folder."
    elif meeting := next(filter(None, (_meeting(target, other) for other in others)), None):
        why = f"{meeting}. Name a folder elsewhere."
    elif target.is_dir() and any(target.iterdir()):
        why = "is not empty. Name a new folder."
    elif not (why := why_unwritable(target)):
        return
    raise RunFolderError(f"{target} {why}")


def _meeting(target: Path, other: Path) -> str | None:
    """Return in words how two folders overlap, or None."""
    if _is_in(other, target):
        return f"is {other}" if _is_in(target, other) else f"holds {other}"
    return f"lies in {other}" if _is_in(target, other) else None


def _is_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def sort_images(
    source: Path, paths: list[str], clusters: list[int], names: dict[int, str], target: Path,
    *, link: bool, xmp: bool = False, folders: Sequence[str] = (),
) -> int:  # fmt: skip
    """Copy or link each image to TARGET/CLUSTER[-NAME]/, all or none; return how many.

    Sub-folders of the source become part of the file's name: a/b.jpg is a__b.jpg. Discarded images,
    of cluster -1, are left out. With `xmp` each has a sidecar with the name of its cluster. The
    target lies outside the source, or outside the `folders` of it that hold the images.
    """
    if not source.is_dir() and not (source.is_file() and is_image(source)):
        raise NoData(f"{source} is not a folder of images, so there are no files to sort.")
    check_target(target, *([source / name for name in folders] or [source]))
    home = source if source.is_dir() else source.parent
    width = len(str(max(clusters, default=0)))
    with whole_folder(target.resolve()) as partial:
        kept = [(path, k) for path, k in zip(paths, clusters, strict=True) if k >= 0]
        for path, cluster in kept:
            folder = partial / _folder_name(cluster, names.get(cluster), width)
            folder.mkdir(exist_ok=True)
            file, place = photo_of(home, path), _free(folder, path)
            if link:
                place.symlink_to(file.resolve())
            else:
                copy_file(file, place)
            if xmp:
                write_sidecar(place, names.get(cluster, f"cluster {cluster}"))
    return len(kept)


def write_sidecar(photo: Path, keyword: str) -> bool:
    """Write PHOTO.xmp with a keyword; return False where the photo has a sidecar, which stays.

    It may have one under the name without the ending of the photo, too.
    """
    beside = photo.with_name(f"{photo.name}.xmp")
    if any(os.path.lexists(path) for path in (beside, photo.with_suffix(".xmp"))):
        return False
    plain = "".join(letter if letter.isprintable() else " " for letter in keyword)
    write_atomically(beside, SIDECAR.format(escape(plain)).encode())
    return True


def photo_of(folder: Path, name: str) -> Path:
    """Return the path of a sample of a run, which anybody may have written; it must lie within."""
    try:
        return check_inside(folder / name, os.path.realpath(folder))
    except BadImage as bad:
        raise RunFolderError(
            f"The run names the sample {name!r}, which is not in {folder}: {bad}. Cluster the "
            "folder again."
        ) from bad


def _free(folder: Path, path: str) -> Path:
    """Return where an image goes; a name that is too long or taken gets a digest of its path.

    a/b__c.jpg and a__b/c.jpg would be one.
    """
    name = path.replace("/", "__")
    if len(os.fsencode(name)) <= LONGEST and not os.path.lexists(folder / name):
        return folder / name
    suffix = PurePath(path).suffix
    end = f"-{fingerprint([os.fsencode(path)])}{suffix}"
    return folder / (_cut(name.removesuffix(suffix), LONGEST - len(os.fsencode(end))) + end)


def _cut(name: str, most: int) -> str:
    """Return the start of a name that fits into `most` bytes, in whole characters."""
    return os.fsencode(name)[:most].decode("utf-8", "ignore")


def _folder_name(cluster: int, name: str | None, width: int) -> str:
    plain = re.sub(r"[^\w .-]+", "-", name or "").strip(" .-")
    return _cut(f"{cluster:0{width}}-{plain}" if plain else f"{cluster:0{width}}", LONGEST)
