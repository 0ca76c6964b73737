"""Photos sorted into one folder per cluster, as copies or links."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from probagg.app.run.folder import RunFolderError
from probagg.data.photo import is_image
from probagg.errors import InputError, NoData
from probagg.storage import can_be_made, fingerprint

LONGEST = 255  # bytes in a name that common file systems hold


def check_sorting(source: Path, target: Path, *others: Path) -> None:
    """Raise, before any work, where a source has no image files or a target cannot be used."""
    if not source.is_dir() and not _is_image(source):
        raise InputError(f"Only a folder of images can be sorted, but {source} is not one.")
    check_target(target, source, *others)


def check_target(target: Path, *others: Path) -> None:
    """Raise where a folder is not empty, or contains or lies in one of the others."""
    if os.path.lexists(target) and not target.is_dir():
        raise RunFolderError(f"{target} is not a folder. Name a new folder for the sorted images.")
    for other in others:
        how = _meeting(target.resolve(), other.resolve())
        if how is not None:
            raise RunFolderError(
                f"{target} {how} {other}. Name a folder elsewhere for the sorted images."
            )
    if target.is_dir() and any(target.iterdir()):
        raise RunFolderError(f"{target} is not empty. Name a new folder for the sorted images.")
    if not can_be_made(target):
        raise RunFolderError(
            f"{target} cannot be written (Permission denied). Name another folder for the sorted "
            "images."
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
    *, link: bool,
) -> int:  # fmt: skip
    """Copy or link each image to TARGET/CLUSTER[-NAME]/, all or none; return how many.

    Sub-folders of the source become part of the file's name: a/b.jpg is a__b.jpg. Discarded images,
    of cluster -1, are left out.
    """
    if not source.is_dir() and not _is_image(source):
        raise NoData(f"{source} is not a folder of images, so there are no files to sort.")
    check_target(target, source)
    home = source if source.is_dir() else source.parent
    width = len(str(max(clusters, default=0)))
    place: Callable[[Path, Path], object] = _link if link else shutil.copy2
    with _whole(target.resolve()) as partial:
        kept = [(path, k) for path, k in zip(paths, clusters, strict=True) if k >= 0]
        for path, cluster in kept:
            folder = partial / _folder_name(cluster, names.get(cluster), width)
            folder.mkdir(exist_ok=True)
            place(home / path, _free(folder, path))
    return len(kept)


def _is_image(path: Path) -> bool:
    return path.is_file() and is_image(path)


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `target` on success and is removed on failure."""
    there = target.exists()
    # An existing folder may be a mount point, onto which nothing can be renamed.
    home = target if there else target.parent
    partial = home / f"{_cut(target.name, 200)}.partial-{secrets.token_hex(4)}"
    partial.mkdir(parents=True)
    try:
        yield partial
        if not there:
            partial.rename(target)
            return
        for folder in partial.iterdir():
            folder.rename(target / folder.name)
        partial.rmdir()
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _link(file: Path, where: Path) -> None:
    os.symlink(file.resolve(), where)


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
