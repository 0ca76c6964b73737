"""A compact export: a folder of small files with all that it takes to label new images."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from probagg.app.run.folder import (
    PATIENCE,
    RunFolderError,
    alone,
    read_manifest,
    write_manifest,
)
from probagg.app.run.layout import MANIFEST, REVIEW
from probagg.storage import checksum, whole_folder

PLACE = "compact"  # in the run, where no other place is given
MODEL, WEIGHTS = "model.json", "weights-*-of-*.safetensors"  # of DPAC.save(compact=True)
BESIDE = ("config.toml", "result.json", REVIEW, "yardstick.safetensors")  # copied from the run


def is_compact(folder: Path) -> bool:
    """Return whether a folder holds a network in parts, damaged or not, and is not a run."""
    if not folder.is_dir() or (folder / MANIFEST).is_file():
        return False
    return (folder / MODEL).is_file() or any(folder.glob(WEIGHTS))


def check_place(folder: Path, *, overwrite: bool = True) -> None:
    """Refuse a place whose content an export would destroy, unless that is an older export."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder. Name one for the export.")
    if Path.cwd().is_relative_to(folder.resolve()):  # it will be another folder of that name
        raise RunFolderError(f"You are in {folder.resolve()}. Name another folder.")
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    others = [path.name for path in inside if not _is_ours(path)]
    if others or (inside and not _is_whole(folder)):
        raise RunFolderError(
            f"{folder} holds {(others or [inside[0].name])[0]}, so it is not a compact export that "
            "may be replaced. Name a new or empty folder."
        )
    if inside and not overwrite:
        raise RunFolderError(
            f"{folder} holds an older export. Name another folder, or replace it with --overwrite "
            "(overwrite=True)."
        )


def _is_whole(folder: Path) -> bool:
    """Return whether a model.json of ours lies beside weights."""
    try:
        description = json.loads((folder / MODEL).read_text())
        return {"n_clusters", "recipe"} <= set(description) and any(folder.glob(WEIGHTS))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _is_ours(path: Path) -> bool:
    return path.is_file() and (path.name in (MODEL, *BESIDE) or fnmatch(path.name, WEIGHTS))


def write_compact(model: Any, run: Path, folder: Path) -> dict[str, int]:
    """Write the DPAC of a run to a folder, all or nothing; return its files and their sizes."""
    check_place(folder)
    place = folder.resolve()
    in_run = place == (run / PLACE).resolve()
    with alone(run, PATIENCE) if in_run else nullcontext():
        with whole_folder(place) as partial:
            model.save(partial, compact=True)
            for name in BESIDE:
                if (run / name).is_file():
                    shutil.copyfile(run / name, partial / name)
        if in_run:
            _note_in_manifest(run)
    return {path.name: path.stat().st_size for path in sorted(place.iterdir())}


def _note_in_manifest(run: Path) -> None:
    """List an export inside the run in its manifest, so that it goes with the run."""
    hashes = {k: v for k, v in read_manifest(run).items() if not k.startswith(f"{PLACE}/")}
    for path in (run / PLACE).iterdir():
        hashes[f"{PLACE}/{path.name}"] = checksum(path)
    write_manifest(run, hashes)
