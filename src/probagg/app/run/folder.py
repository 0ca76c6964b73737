"""The run folder: its files, and how a run is built beside the old one, sealed and put in place."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from probagg.errors import ProbaggError, reading
from probagg.processes import Held, hold
from probagg.progress import logger
from probagg.storage import (
    checksum,
    encode,
    find_files,
    read_bytes,
    remove_files,
    set_aside,
    write_atomically,
    write_json,
)

FORMAT = "probagg.run/1"
MANIFEST = "manifest.json"
# What a person decided about a run.
REVIEW = "review.json"
CONFIG = "config.toml"
DUPLICATES = "duplicates.csv"
# Held by the process that writes.
LOCK = ".probagg.lock"
# The sub-folder that a run is built in.
UNFINISHED = ".probagg-unfinished"
# Files of an unfinished run of DPAC.
CHECKPOINTS = "checkpoints/step-*/*"
# Seconds that adding a file to a finished run waits for another process.
PATIENCE = 10.0
# Files that `write_atomically` had not finished.
LEFT_BY_A_KILL = (".*.tmp", "*/.*.tmp")
# Every file that a run may consist of, as patterns of paths in its folder. Nothing else is written
# there or removed from there, whatever a manifest lists: it may have been edited by a stranger.
RUN_FILES = (
    "assignments.csv",
    "assignments_reviewed.csv",
    "classes.csv",
    CONFIG,
    DUPLICATES,
    "embeddings.npy",
    "env.json",
    "k_selection.csv",
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


class RunFolderError(ProbaggError, RuntimeError):
    """A folder that cannot take a run; the message says why and what to do."""

    exit_code = 2


def add_to_run(
    run: str | PathLike[str], name: str, data: bytes, check: Callable[[], None] | None = None
) -> Path:
    """Write a file into a finished run, list it in the manifest and return its path.

    No other process writes to the run meanwhile. `check` is called first and may raise.
    """
    path, manifest = Path(run) / name, Path(run) / MANIFEST
    with alone(Path(run), PATIENCE):
        if check is not None:
            check()
        # A damaged manifest stops here.
        hashes = read_manifest(run) if manifest.exists() else None
        write_atomically(path, data)
        if hashes is not None:
            hashes[name] = checksum(path)
            write_json(manifest, {"format": FORMAT, "sha256": dict(sorted(hashes.items()))})
    return path


def read_manifest(run: str | PathLike[str]) -> dict[str, str]:
    """Return the SHA-256 of each file of a finished run, by name."""
    path = Path(run) / MANIFEST
    with reading(path, "Restore it, or run the command again.", RunFolderError):
        hashes = json.loads(read_bytes(path))["sha256"]
        if not isinstance(hashes, dict) or not all(isinstance(h, str) for h in hashes.values()):
            raise ValueError("it lists no checksums")
        return hashes


def is_as_sealed(run: str | PathLike[str], name: str) -> bool:
    """Return whether a file of a run has the content that the manifest lists, if it lists it."""
    path, expected = Path(run) / name, read_manifest(run).get(name)
    return expected is None or not path.is_file() or checksum(path) == expected


def verified(run: str | PathLike[str], name: str) -> Path:
    """Return the path of a file of a finished run; other content than was sealed is an error."""
    path = Path(run) / name
    if not is_as_sealed(run, name):
        raise RunFolderError(
            f"{path} is damaged: it is not the file that {MANIFEST} lists (SHA-256). Copy the "
            "whole run there again, or run the command again."
        )
    return path


@contextlib.contextmanager
def alone(run: Path, wait: float = 0.0) -> Iterator[None]:
    """Keep other processes from writing to a run."""
    with contextlib.ExitStack() as lock:
        try:
            lock.enter_context(hold(run / LOCK, wait))
        except Held as error:
            raise RunFolderError(
                f"Process {error.holder} is writing to {run}. Wait for it, or name another folder."
            ) from None
        except OSError as error:
            raise _unwritable(run, error, "Check the folder and its permissions.") from error
        yield


def _unwritable(run: Path, error: OSError, remedy: str) -> RunFolderError:
    return RunFolderError(f"{run} cannot be written ({error.strerror}). {remedy}")


class RunFolder:
    """A folder that one process fills, as a context manager.

    Files are written into its sub-folder `work`. The manifest, written last, seals them; then they
    replace the files of an old run, and other files never: what is in the way is renamed, and so
    is a person's review. Until the seal an old run stays as it was; after it, a kill at any moment
    is made good when the folder is entered again.

    An existing folder is refused unless it is empty, holds a run that never finished, or
    `overwrite` is given and it is a run.
    """

    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        self.path, self.work = Path(path), unfinished(path)
        self._overwrite = overwrite
        self._locked = contextlib.ExitStack()
        # The files of this run, for the manifest.
        self._files: set[str] = set()
        self._resumable: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._locked.enter_context(alone(self.path))
            self.work.mkdir(exist_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error, "Name another folder.") from error
        # A run that was killed after its seal is whole, and is put in place now.
        if (self.work / MANIFEST).exists():
            try:
                self._put_in_place()
                self.check()
            except BaseException:
                self._leave(is_whole=False)
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_whole = False
        try:
            if error is None:
                self._seal()
                self._put_in_place()
                is_whole = True
        finally:
            self._leave(is_whole=is_whole)

    def check(self) -> None:
        """Raise where the folder cannot take a run; nothing is written."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file. Name a folder for the run.")
        if not self.path.is_dir() or {*os.listdir(self.path)} <= {LOCK}:
            return
        if self.work.is_symlink() or (self.work.exists() and not self.work.is_dir()):
            raise RunFolderError(f"{self.work} is not a folder. Remove it, or name another folder.")
        if listed(self.path) is None and not self.work.exists():
            raise RunFolderError(
                f"{self.path} holds other files and no run. Name a new or empty folder."
            )
        if listed(self.path) is not None and not self._overwrite:
            raise RunFolderError(
                f"{self.path} holds a finished run. Name another folder, or replace it with "
                "--overwrite (overwrite=True)."
            )

    def _leave(self, *, is_whole: bool) -> None:
        """Give the folder back; what an unfinished run cannot be continued from is removed."""
        if is_whole or not find_files(self.work, (MANIFEST, *self._resumable)):
            self.start_over()
        for here, _, _ in os.walk(self.work, topdown=False):
            _remove_if_empty(here)
        self._locked.close()
        _remove_if_empty(self.path)

    def resumes_from(self, *patterns: str) -> None:
        """Name the files in `work` that an interrupted run resumes from; the seal removes them."""
        self._resumable = patterns

    def start_over(self) -> None:
        """Remove what is in `work`."""
        patterns = (*RUN_FILES, *self._resumable, *LEFT_BY_A_KILL)
        remove_files(self.work, find_files(self.work, patterns))

    def write(self, name: str, data: str | bytes | Iterator[str]) -> Path:
        """Write one file of the run, whole or not at all; text may come in parts."""
        if not is_run_file(name):
            raise ValueError(f"{name} is not in the list of files of a run, {__name__}.RUN_FILES.")
        path = self.work / name
        data = iter([data]) if isinstance(data, str) else data
        write_atomically(path, data if isinstance(data, bytes) else map(encode, data))
        self._files.add(name)
        return path

    def keep(self, *patterns: str) -> None:
        """Add files that others wrote into `work` to the run."""
        self._files |= {name for name in find_files(self.work, patterns) if is_run_file(name)}

    def write_json(self, name: str, value: Any) -> Path:
        """Write one JSON file of the run."""
        return self.write(name, json.dumps(value, indent=2) + "\n")

    def _seal(self) -> None:
        # Files of an earlier attempt are not part of this run.
        remove_files(self.work, run_files(self.work) - self._files)
        hashes = {name: checksum(self.work / name) for name in sorted(self._files)}
        self.write_json(MANIFEST, {"format": FORMAT, "sha256": hashes})

    def _put_in_place(self) -> None:
        """Replace an old run by the sealed one; done again after a kill, it finishes the rest."""
        old, new = listed(self.path), listed(self.work) or set()
        if os.path.lexists(self.path / REVIEW):
            kept = set_aside(self.path / REVIEW)
            logger.warning("the review of the old run is now %s in %s", kept.name, self.path)
        ours = run_files(self.path) & (old | {MANIFEST} if old is not None else set())
        remove_files(self.path, ours - new - {MANIFEST, REVIEW})
        for name in sorted(run_files(self.work) - {MANIFEST}):
            place = self.path / name
            if "/" in name and (place.parent.is_symlink() or not place.parent.is_dir()):
                _make_way(place.parent)
                place.parent.mkdir()
            if name not in ours:
                _make_way(place)
            os.replace(self.work / name, place)
        if MANIFEST not in ours:
            _make_way(self.path / MANIFEST)
        os.replace(self.work / MANIFEST, self.path / MANIFEST)


def _remove_if_empty(folder: str | PathLike[str]) -> None:
    with contextlib.suppress(OSError):  # it holds something
        os.rmdir(folder)


def _make_way(place: Path) -> None:
    """Rename what a person put where a file of the run belongs."""
    if os.path.lexists(place):
        logger.warning("%s was not of the run and is now %s", place, set_aside(place).name)
