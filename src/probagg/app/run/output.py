"""What may be written where: files and folders that a user names for a result."""

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Self
from xml.sax.saxutils import escape

from probagg.app.run.folder import RUN_FILES, UNFINISHED, RunFolderError, listed
from probagg.data.images import check_inside
from probagg.data.photo import BadImage, is_image
from probagg.errors import InputError, NoData
from probagg.storage import can_be_made, copy_file, fingerprint, whole_folder, write_atomically

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

    Call `check` before the work; `write` checks again, as the file may have come up since.
    """

    path: Path
    overwrite: bool = False
    sources: tuple[Path, ...] = ()

    def check(self) -> Self:
        """Raise where writing would cost somebody a file, or is not possible."""
        path = self.path
        if path.is_dir() or not path.absolute().parent.is_dir():
            why = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
            raise InputError(f"--out {path} {why}. Name a file in a folder that exists.")
        for source in self.sources:
            self._check_source(source)
        if (run := run_of(path)) is not None:
            raise InputError(
                f"--out {path} would replace a file in {run}, which belongs to the run there. "
                "Name another file."
            )
        if path.is_symlink():
            raise InputError(
                f"--out {path} is a symbolic link to {os.readlink(path)}. Name a file, not a link."
            )
        if path.exists() and not path.is_file():
            raise InputError(f"--out {path} is not a regular file. Name a new file.")
        if path.exists() and not self.overwrite:
            raise InputError(
                f"--out {path} exists. Name a new file, or replace it with --overwrite "
                "(overwrite=True)."
            )
        if not can_be_made(path.absolute().parent):
            raise InputError(
                f"--out {path} cannot be written (Permission denied). Name a place where you may "
                "write."
            )
        return self

    def _check_source(self, source: Path) -> None:
        if not self.path.exists() or not source.exists():
            return
        if self.path.samefile(source):
            raise InputError(f"--out {self.path} is the source itself. Name another file.")
        if self.path.resolve().is_relative_to(source.resolve()):
            raise InputError(
                f"--out {self.path} would replace a file in {source}. Name one elsewhere."
            )

    def write(self, data: bytes) -> None:
        """Write the file, whole or not at all."""
        self.check()
        write_atomically(self.path, data)


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


def check_sorting(source: Path, target: Path, *others: Path) -> None:
    """Raise, before any work, where a source has no image files or a target cannot be used."""
    if not source.is_dir() and not _is_image(source):
        raise InputError(f"Only a folder of images can be sorted, but {source} is not one.")
    check_target(target, source, *others)


def check_target(target: Path, *others: Path) -> None:
    """Raise where a folder is neither new nor empty, or contains or lies in one of the others."""
    if os.path.lexists(target) and not target.is_dir():
        raise RunFolderError(f"{target} is not a folder. Name a new folder.")
    for other in others:
        how = _meeting(target.resolve(), other.resolve())
        if how is not None:
            raise RunFolderError(f"{target} {how} {other}. Name a folder elsewhere.")
    if target.is_dir() and any(target.iterdir()):
        raise RunFolderError(f"{target} is not empty. Name a new folder.")
    if not can_be_made(target):
        raise RunFolderError(
            f"{target} cannot be written (Permission denied). Name another folder."
        )


def _meeting(target: Path, other: Path) -> str | None:
    """Return in words how two real paths overlap, or None."""
    if target == other:
        return "is"
    if target in other.parents:
        return "holds"
    return "lies in" if other in target.parents else None


def sort_images(
    source: Path, paths: list[str], clusters: list[int], names: dict[int, str], target: Path,
    *, link: bool, xmp: bool = False, may_be_above: bool = False,
) -> int:  # fmt: skip
    """Copy or link each image to TARGET/CLUSTER[-NAME]/, all or none; return how many.

    Sub-folders of the source become part of the file's name: a/b.jpg is a__b.jpg. Discarded images,
    of cluster -1, are left out. With `xmp` each has a sidecar with the name of its cluster. Where
    the source may be the folder above those that were given, as after an update, and no photo lies
    in it, the target may lie beside them.
    """
    if not source.is_dir() and not _is_image(source):
        raise NoData(f"{source} is not a folder of images, so there are no files to sort.")
    tops = {PurePath(path).parts[0] for path in paths}
    is_above = may_be_above and not tops.intersection(paths)
    check_target(target, *([source / top for top in sorted(tops)] if is_above else [source]))
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


def _is_image(path: Path) -> bool:
    return path.is_file() and is_image(path)


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
