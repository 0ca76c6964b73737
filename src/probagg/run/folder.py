"""The run folder: layout, lock and manifest."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from probagg.errors import ProbaggError, reading
from probagg.progress import logger
from probagg.storage import checksum, encode, read_bytes, write_atomically, write_json

MANIFEST = "manifest.json"
FORMAT = "probagg.run/1"  # of the manifest
REVIEW = "review.json"  # what a person decided about a run
# Every file that a run may consist of, as patterns of paths in its folder. `--overwrite` removes
# these and nothing else, whatever a manifest lists: it may have been edited by a stranger.
RUN_FILES = (
    "assignments.csv",
    "assignments.parquet",
    "assignments_reviewed.csv",
    "classes.csv",
    "compact/*.json",
    "compact/*.safetensors",
    "compact/config.toml",
    "config.toml",
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
    "tensorboard/events.out.tfevents.*",
    "yardstick.safetensors",
)


class RunFolderError(ProbaggError, RuntimeError):
    """A folder that cannot take a run; the message says why and what to do."""

    exit_code = 2


def add_to_run(run: str | PathLike[str], name: str, data: bytes) -> Path:
    """Write a file into a finished run, list it in the manifest and return its path."""
    path, manifest = Path(run) / name, Path(run) / MANIFEST
    hashes = read_manifest(run) if manifest.exists() else None  # first: a damaged one stops here
    write_atomically(path, data)
    if hashes is not None:
        write_manifest(run, hashes | {name: checksum(path)})
    return path


def read_manifest(run: str | PathLike[str]) -> dict[str, str]:
    """Return the SHA-256 of each file of a finished run, by name."""
    path = Path(run) / MANIFEST
    with reading(path, "Restore it, or run the command again.", RunFolderError):
        hashes = json.loads(read_bytes(path))["sha256"]
        if not isinstance(hashes, dict) or not all(isinstance(h, str) for h in hashes.values()):
            raise ValueError("it lists no checksums")
        return hashes


def write_manifest(run: str | PathLike[str], hashes: dict[str, str]) -> None:
    """Seal a run that consists of these files."""
    write_json(Path(run) / MANIFEST, {"format": FORMAT, "sha256": dict(sorted(hashes.items()))})


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


class RunFolder:
    """A folder that one process fills, as a context manager; the manifest, written last, seals it.

    An existing folder is refused unless it is empty, a run that never finished, or `overwrite` is
    given and it is a run. An old run is removed only when the new one writes its first file, and
    other files never; a person's review is kept as review.old.json.
    """

    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        self._lock = self.path / ".lock"
        self._begun = self.path / ".run"  # here while a run is unfinished
        self._writing = False
        self._files: set[str] = set()  # of this run, for the manifest

    def __enter__(self) -> Self:
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise RunFolderError(
                f"{self.path} cannot be written ({error.strerror}). Name another folder."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._seal()
        finally:  # a lock must not outlive its process, even where sealing fails
            self._lock.unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def check(self) -> None:
        """Raise where the folder cannot take a run; nothing is written."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file. Name a folder for the run.")
        if not self.path.is_dir() or not any(self.path.iterdir()) or self._begun.exists():
            return
        if not (self.path / MANIFEST).exists() and not self._lock.exists():
            raise RunFolderError(
                f"{self.path} holds other files and no run. Name a new or empty folder."
            )
        if (self.path / MANIFEST).exists() and not self._overwrite:
            raise RunFolderError(
                f"{self.path} holds a finished run. Name another folder, or replace it with "
                "--overwrite (overwrite=True)."
            )

    def _take_lock(self) -> None:
        try:
            with self._lock.open("x") as lock:
                lock.write(str(os.getpid()))
        except FileExistsError:
            holder = self._lock.read_text()
            if _is_running(holder):
                raise RunFolderError(
                    f"Process {holder} is writing to {self.path}. Wait for it, or name another "
                    "folder."
                ) from None
            self._lock.write_text(str(os.getpid()))

    def write(self, name: str, data: str | bytes | Iterator[str]) -> Path:
        """Write one file of the run, whole or not at all; text may come in parts."""
        if not self._writing:
            self._begun.touch()
            self._remove_old_run()
            self._writing = True
        path = self.path / name
        data = iter([data]) if isinstance(data, str) else data
        write_atomically(path, data if isinstance(data, bytes) else map(encode, data))
        self._files.add(name)
        return path

    def keep(self, *names: str) -> None:
        """Add files, or folders of files, that others wrote into this folder to the manifest."""
        for name in names:
            path = self.path / name
            found = path.rglob("*") if path.is_dir() else [path]
            self._files |= {str(p.relative_to(self.path)) for p in found if p.is_file()}

    def write_json(self, name: str, value: Any) -> Path:
        """Write one JSON file of the run."""
        return self.write(name, json.dumps(value, indent=2) + "\n")

    def _remove_old_run(self) -> None:
        manifest = self.path / MANIFEST
        if manifest.exists():
            if (self.path / REVIEW).exists():
                os.replace(self.path / REVIEW, self.path / "review.old.json")
                logger.warning("the review of the old run is now review.old.json in %s", self.path)
            for name in json.loads(manifest.read_text())["sha256"]:
                if self._is_of_run(name):
                    (self.path / name).unlink(missing_ok=True)
            manifest.unlink()

    def _is_of_run(self, name: str) -> bool:
        """Whether a manifest's entry is a file that runs write, at its real place in the folder."""
        folder, _, last = name.rpartition("/")
        known = (pattern.rpartition("/") for pattern in RUN_FILES)
        if not any(folder == f and fnmatch(last, pattern) for f, _, pattern in known):
            return False
        place = self.path / folder
        return place.resolve() == self.path.resolve() / folder  # no link that leads elsewhere

    def _seal(self) -> None:
        hashes = {name: checksum(self.path / name) for name in sorted(self._files)}
        self.write_json(MANIFEST, {"format": FORMAT, "sha256": hashes})
        self._begun.unlink()


def _is_running(pid: str) -> bool:
    """Return whether a process with this number exists."""
    if not pid.isdigit():
        return False
    if sys.platform == "win32":  # os.kill would end the process there
        return _is_running_on_windows(int(pid))
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _is_running_on_windows(pid: int) -> bool:
    import ctypes

    query, still_active = 0x1000, 259  # PROCESS_QUERY_LIMITED_INFORMATION, STILL_ACTIVE
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined]
    handle = kernel.OpenProcess(query, False, pid)
    if not handle:
        return False
    code = ctypes.c_ulong()
    kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return code.value == still_active
