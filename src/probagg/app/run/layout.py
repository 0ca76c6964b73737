"""Which files a run consists of, and where they lie while it is unfinished."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path

from probagg.storage import find_files

FORMAT = "probagg.run/1"
MANIFEST = "manifest.json"
REVIEW = "review.json"  # what a person decided about a run
CONFIG = "config.toml"
DUPLICATES = "duplicates.csv"
SMOOTHING = "smoothing.safetensors"
LOCK = ".probagg.lock"  # held by the process that writes
UNFINISHED = ".probagg-unfinished"  # the sub-folder that a run is built in
CHECKPOINTS = "checkpoints/step-*/*"  # of an unfinished run of DPAC
# Every file that a run may consist of, as patterns of paths in its folder. Nothing else is written
# there or removed from there, whatever a manifest lists: it may have been edited by a stranger.
RUN_FILES = (
    "assignments.csv",
    "assignments.parquet",
    "assignments_reviewed.csv",
    "classes.csv",
    "compact/*.json",
    "compact/*.safetensors",
    "compact/config.toml",
    CONFIG,
    DUPLICATES,
    "embeddings.npy",
    "env.json",
    "exported.safetensors",
    "k_selection.csv",
    "k_selection.svg",
    "log.txt",
    MANIFEST,
    "map.npz",
    "metrics.jsonl",
    "model.onnx",
    "model.safetensors",
    "overlaps.csv",
    "preparation.json",
    "profiles.csv",
    "report.html",
    "result.json",
    REVIEW,
    "skipped.csv",
    SMOOTHING,
    "tensorboard/events.out.tfevents.*",
    "yardstick.safetensors",
)


def unfinished(run: str | PathLike[str]) -> Path:
    """Return the folder that a run is built in before its files move to their place."""
    return Path(run) / UNFINISHED


def has_checkpoints(run: str | PathLike[str]) -> bool:
    """Return whether a folder holds a run of DPAC that was interrupted and can be resumed."""
    return bool(find_files(unfinished(run), (CHECKPOINTS,)))


def is_run_file(name: str) -> bool:
    """Return whether a path in a run folder is one that runs write."""
    folder, _, last = name.rpartition("/")
    known = (pattern.rpartition("/") for pattern in RUN_FILES)
    return any(folder == inside and fnmatchcase(last, pattern) for inside, _, pattern in known)


def run_files(folder: str | PathLike[str]) -> set[str]:
    """Return the files of a folder that a run may consist of."""
    return find_files(folder, RUN_FILES)


def listed(folder: str | PathLike[str]) -> set[str] | None:
    """Return the files that the manifest in a folder lists; None where it is not one of a run."""
    try:
        manifest = json.loads((Path(folder) / MANIFEST).read_bytes())
        return set(manifest["sha256"]) if manifest["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def is_finished(run: str | PathLike[str]) -> bool:
    """Return whether a folder holds a run that is whole, with every file at its place."""
    return (Path(run) / MANIFEST).is_file() and not (unfinished(run) / MANIFEST).exists()


def is_being_written(run: str | PathLike[str]) -> bool:
    """Return whether a run has begun here and not all of its files are at their place yet."""
    return any((unfinished(run) / name).exists() for name in (CONFIG, MANIFEST))
