"""Photos sorted into one folder a cluster, as copies or links."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from probagg.data import NoData
from probagg.runs import RunFolderError


def check_target(target: Path) -> None:
    """Refuse a folder that holds something: nobody's files are mixed with ours."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunFolderError(f"{target} is not empty. Name a new folder for the sorted images.")


def sort_images(
    source: Path, paths: list[str], clusters: list[int], names: dict[int, str], target: Path,
    *, link: bool,
) -> int:  # fmt: skip
    """Copy or link each image to TARGET/CLUSTER[-NAME]/; how many there are.

    Sub-folders of the source become part of the file's name: a/b.jpg is a__b.jpg.
    """
    if not source.is_dir():
        raise NoData(f"{source} is no folder of images, so there are no files to sort.")
    check_target(target)
    width = len(str(max(clusters, default=0)))
    place: Callable[[Path, Path], object] = _link if link else shutil.copy2
    for path, cluster in zip(paths, clusters, strict=True):
        folder = target / _folder_name(cluster, names.get(cluster), width)
        folder.mkdir(parents=True, exist_ok=True)
        place(source / path, _free(folder / path.replace("/", "__")))
    return len(paths)


def _link(file: Path, where: Path) -> None:
    os.symlink(file.resolve(), where)


def _free(path: Path) -> Path:
    """A name that is not taken: a/b__c.jpg and a__b/c.jpg would be one."""
    number, free = 2, path
    while os.path.lexists(free):
        free, number = path.with_stem(f"{path.stem}-{number}"), number + 1
    return free


def _folder_name(cluster: int, name: str | None, width: int) -> str:
    plain = re.sub(r"[^\w .-]+", "-", name or "").strip(" .-")
    return f"{cluster:0{width}}-{plain}" if plain else f"{cluster:0{width}}"
