"""The run folder: its files, and how a run is built beside the old one, sealed and put in place."""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Self

from probagg.errors import ProbaggError, reading
from probagg.processes import hold
from probagg.progress import logger
from probagg.storage import (
    SETTINGS,
    checksum,
    encode,
    file_version,
    find_files,
    move,
    naming,
    read_bytes,
    remove_files,
    set_aside,
    sync,
    sync_all,
    unwritable,
    why_unwritable,
    write_atomically,
    write_file,
)

FORMAT = "probagg.run/1"
MANIFEST = "manifest.json"
# What a person decided about a run.
REVIEW = "review.json"
CONFIG = "config.toml"
DUPLICATES = "duplicates.csv"
# Probabilities of third and further clusters.
FURTHER = "probabilities.npz"
SUGGESTIONS = "suggestions.csv"
MAP = "map.npz"
# What moved in a run that was made from another.
CHANGES = "changes.csv"
RESTORE = "Copy the whole run there again, or run the command again."
# Held by the process that writes.
LOCK = ".probagg.lock"
# Text that a person may change: it is used as it is, with a warning.
EDITABLE = (CONFIG, REVIEW)
# These are written anew by every run, with times in them, and never changed.
OF_ONE_RUN = ("env.json", "result.json")
# The sub-folder that a run is built in.
UNFINISHED = ".probagg-unfinished"
# Files of an unfinished run of DPAC.
CHECKPOINTS = "checkpoints/step-*.safetensors"
# Seconds that adding a file to a finished run waits for another process.
PATIENCE = 10.0
# Files that `write_atomically` had not finished.
LEFT_BY_A_KILL = (".*.tmp", "*/.*.tmp")
# Every file that a run may consist of. Nothing else is written there or removed from there,
# whatever a manifest lists: it may have been edited by a stranger.
RUN_FILES = (
    "assignments.csv", "assignments_reviewed.csv", "cells.csv", CHANGES, "classes.csv", CONFIG,
    DUPLICATES, "embeddings.npy", "env.json", "k_selection.csv", "log.txt", MANIFEST, MAP,
    "metrics.jsonl", "model.onnx", "model.safetensors", "overlaps.csv", "preparation.json", FURTHER,
    "profiles.csv", "report.html", "result.json", REVIEW, "skipped.csv", SUGGESTIONS,
    "yardstick.safetensors",
)  # fmt: skip


class RunFolderError(ProbaggError, RuntimeError):
    """A folder that cannot take a run; the message says why and what to do."""

    exit_code = 2


def unfinished(run: str | PathLike[str]) -> Path:
    """Return the folder that a run is built in before its files move to their place."""
    return Path(run) / UNFINISHED


def read_manifest(run: str | PathLike[str]) -> dict[str, str]:
    """Return the SHA-256 of each file of a finished run, by name."""
    path = Path(run) / MANIFEST
    with reading(path, "Restore it, or run the command again.", RunFolderError):
        manifest = json.loads(read_bytes(path, SETTINGS))
        hashes = manifest["sha256"]
        if manifest.get("format") != FORMAT:
            raise ValueError("it is not the manifest of a run")
        if not isinstance(hashes, dict) or not all(isinstance(h, str) for h in hashes.values()):
            raise ValueError("it lists no checksums")
        return hashes


def listed(folder: str | PathLike[str]) -> set[str] | None:
    """Return the files that the manifest in a folder lists; None where it is not one of a run."""
    try:
        return {*read_manifest(folder)}
    except (OSError, RunFolderError):
        return None


def is_finished(run: str | PathLike[str]) -> bool:
    """Return whether a folder holds a run that is whole, with every file at its place."""
    return (Path(run) / MANIFEST).is_file() and not (unfinished(run) / MANIFEST).exists()


def unused(run: Path) -> Path:
    """Return the path of a new run: this one, with a number where a finished run is there."""
    others = (run.with_name(f"{run.name}-{n}") for n in itertools.count(2))
    return next(path for path in itertools.chain([run], others) if not is_finished(path))


def is_being_written(run: str | PathLike[str]) -> bool:
    """Return whether a run has begun here and not all of its files are at their place yet."""
    return any((unfinished(run) / name).exists() for name in (CONFIG, MANIFEST))


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
        # A damaged manifest stops here. While a file is replaced, any content is the right one.
        hashes = read_manifest(run) if manifest.exists() else {}
        if hashes.get(name):
            write_atomically(manifest, _manifest(hashes | {name: ""}))
        write_atomically(path, data)
        if hashes:
            write_atomically(manifest, _manifest(hashes | {name: checksum(path)}))
    return path


def _manifest(hashes: dict[str, str]) -> bytes:
    value = {"format": FORMAT, "sha256": dict(sorted(hashes.items()))}
    return (json.dumps(value, indent=2) + "\n").encode()


def identity_of(run: str | PathLike[str]) -> tuple[str | None, ...] | None:
    """Return what differs between two runs, also of the same command; None while one is written."""
    return tuple(map(read_manifest(run).get, OF_ONE_RUN)) if is_finished(run) else None


def changed_files(run: str | PathLike[str]) -> list[str]:
    """Return the files of a run that have other content than the manifest lists, of those there."""
    hashes = read_manifest(run)
    return [name for name in RUN_FILES if _is_changed(Path(run) / name, hashes)]


def _is_changed(path: Path, hashes: dict[str, str]) -> bool:
    """Return whether a file is there with other content than was sealed; "" stands for any."""
    if not (expected := hashes.get(path.name)) or not os.path.lexists(path):
        return False
    with reading(path, RESTORE, RunFolderError):
        return _known_checksum(path, file_version(path)) != expected


@lru_cache(maxsize=256)
def _known_checksum(path: Path, version: tuple[int, ...]) -> str:
    return checksum(path, follow=False)


def verified(run: str | PathLike[str], name: str) -> Path:
    """Return the path of a file of a run; a link or other content than was sealed is an error."""
    path = Path(run) / name
    is_sealed = name not in EDITABLE and (Path(run) / MANIFEST).exists()
    if path.is_symlink() or (is_sealed and _is_changed(path, read_manifest(run))):
        raise RunFolderError(
            f"{path} is damaged: it is not the file that {MANIFEST} lists (SHA-256). {RESTORE}"
        )
    return path


@contextlib.contextmanager
def alone(run: Path, wait: float = 0.0) -> Iterator[None]:
    """Keep other processes from writing to a run."""
    with contextlib.ExitStack() as lock:
        try:
            lock.enter_context(hold(run / LOCK, wait))
        except BlockingIOError as error:
            raise RunFolderError(
                f"{error.strerror} is writing to {run}. Wait for it, or name another folder."
            ) from None
        except OSError as error:
            raise RunFolderError(f"{run} {unwritable(error)}") from error
        yield


class RunFolder:
    """A folder that one process fills, as a context manager.

    Files are written into its sub-folder `work`. The manifest, written last, seals them; then they
    replace the files of an old run, and other files never: what is in the way is renamed, and so
    is the review of the old run. Until the seal an old run stays as it was; after it, a kill at any
    moment is made good when the folder is entered again.

    An existing folder is refused unless it is empty, holds a run that never finished, or
    `overwrite` is given and it is a run.
    """

    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        self.path, self.work = Path(path), unfinished(path)
        self._overwrite = overwrite
        # The files of this run, for the manifest.
        self._files: set[str] = set()

    def __enter__(self) -> Self:
        self.check()
        try:
            with contextlib.ExitStack() as held:
                self.path.mkdir(parents=True, exist_ok=True)
                held.callback(_remove_empty, [self.path])
                held.enter_context(alone(self.path))
                self.work.mkdir(exist_ok=True)
                held.callback(_remove_empty, (h for h, _, _ in os.walk(self.work, topdown=False)))
                _remove_links(self.work)
                # A run that was killed after its seal is whole, and is put in place now.
                if (self.work / MANIFEST).exists():
                    self._put_in_place()
                    self.start_over()
                    self.check()
                self._held = held.pop_all()
        except OSError as error:
            raise RunFolderError(f"{self.path} {unwritable(error)}") from error
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        kept: tuple[str, ...] = (MANIFEST, CHECKPOINTS)
        with self._held:
            try:
                if error is None:
                    self._seal()
                    self._put_in_place()
                    kept = ()
            finally:
                # What an unfinished run cannot be continued from is removed.
                if not find_files(self.work, kept):
                    self.start_over()

    def check(self) -> None:
        """Raise where the folder cannot take a run; nothing is written."""
        path, work, has_run = self.path, self.work, listed(self.path) is not None
        if path.exists() and not path.is_dir():
            why = f"{path} is a file. Name a folder for the run."
        elif reason := why_unwritable(path):
            why = f"{path} {reason}"
        elif work.is_symlink() or (work.exists() and not work.is_dir()):
            why = f"{work} is not a folder. Remove it, or name another folder."
        elif path.is_dir() and not has_run and not work.exists() and {*os.listdir(path)} - {LOCK}:
            why = f"{path} holds other files and no run. Name a new or empty folder."
        elif has_run and not self._overwrite:
            why = (
                f"{path} holds a finished run. Name another folder, or replace it with "
                "--overwrite (overwrite=True)."
            )
        else:
            return
        raise RunFolderError(why)

    def start_over(self) -> None:
        """Remove what is in `work`."""
        remove_files(self.work, (*RUN_FILES, CHECKPOINTS, *LEFT_BY_A_KILL))

    def write(self, name: str, data: str | bytes | Iterator[str]) -> Path:
        """Write one file of the run, which the seal makes last; text may come in parts."""
        if name not in RUN_FILES:
            raise ValueError(f"{name} is not in the list of files of a run, {__name__}.RUN_FILES.")
        path = self.work / name
        data = iter([data]) if isinstance(data, str) else data
        with naming(path):
            write_file(path, data if isinstance(data, bytes) else map(encode, data))
        self._files.add(name)
        return path

    def keep(self, *patterns: str) -> None:
        """Add files that others wrote into `work` to the run."""
        self._files |= find_files(self.work, patterns) & {*RUN_FILES}

    def _seal(self) -> None:
        # Files of an earlier attempt are not part of this run.
        remove_files(self.work, RUN_FILES, keep=self._files)
        hashes = {name: checksum(self.work / name) for name in self._files}
        sync_all(self.work)
        write_atomically(self.work / MANIFEST, _manifest(hashes))

    def _put_in_place(self) -> None:
        """Replace an old run by the sealed one; done again after a kill, it finishes the rest."""
        old, new = listed(self.path), listed(self.work) or set()
        ours = set() if old is None else (old | {MANIFEST}) - {REVIEW}
        ours &= find_files(self.path, RUN_FILES)
        remove_files(self.path, ours - new - {MANIFEST})
        moving = find_files(self.work, RUN_FILES)
        for name in (moving | {REVIEW} - new) - ours:
            if os.path.lexists(place := self.path / name):
                logger.warning("%s is kept as %s", place, set_aside(place).name)
        for name in sorted(moving - {MANIFEST}):
            os.replace(self.work / name, self.path / name)
        sync(self.path)
        move(self.work / MANIFEST, self.path / MANIFEST)
        sync(self.path.parent)


def _remove_links(folder: Path) -> None:
    """Remove links, through which a run would be written to another place."""
    for here, folders, files in os.walk(folder):
        for path in (Path(here, name) for name in folders + files):
            if path.is_symlink():
                path.unlink()


def _remove_empty(folders: Iterable[str | Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
