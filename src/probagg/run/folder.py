"""The run folder: layout, lock and manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from probagg.errors import ProbaggError
from probagg.locks import Held, hold
from probagg.progress import logger
from probagg.storage import checksum, encode, write_atomically, write_json

MANIFEST = "manifest.json"
LOCK = ".probagg.lock"  # held by the process that writes
PATIENCE = 10.0  # seconds that adding a file to a finished run waits for another process
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


def add_to_run(
    run: str | PathLike[str], name: str, data: bytes, check: Callable[[], None] | None = None
) -> Path:
    """Write a file into a finished run, list it in the manifest and return its path.

    No other process writes to the run meanwhile. `check` is called first and may raise.
    """
    path, manifest = Path(run) / name, Path(run) / MANIFEST
    with _alone(Path(run), PATIENCE):
        if check is not None:
            check()
        sealed = _read_manifest(manifest) if manifest.exists() else None
        write_atomically(path, data)
        if sealed is not None:
            sealed["sha256"][name] = checksum(path)
            sealed["sha256"] = dict(sorted(sealed["sha256"].items()))
            write_json(manifest, sealed)
    return path


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
        if isinstance(found["sha256"], dict):
            return found
        why = "its sha256 is not a table"
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        why = repr(error)
    raise RunFolderError(f"{path} is damaged ({why}). Restore it, or run the command again.")


@contextmanager
def _alone(run: Path, wait: float = 0.0) -> Iterator[None]:
    """Keep other processes from writing to a run."""
    try:
        with hold(run / LOCK, wait):
            yield
    except Held as error:
        raise RunFolderError(
            f"Process {error.holder} is writing to {run}. Wait for it, or name another folder."
        ) from None


class RunFolder:
    """A folder that one process fills, as a context manager; the manifest, written last, seals it.

    An existing folder is refused unless it is empty, a run that never finished, or `overwrite` is
    given and it is a run. An old run is removed only when the new one writes its first file, and
    other files never; a person's review is kept as review.old.json.
    """

    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        self._locked = ExitStack()
        self._begun = self.path / ".run"  # here while a run is unfinished
        self._writing = False
        self._files: set[str] = set()  # of this run, for the manifest

    def __enter__(self) -> Self:
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._locked.enter_context(_alone(self.path))
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
        finally:
            self._locked.close()
            with suppress(OSError):  # it holds files, as it should
                self.path.rmdir()

    def check(self) -> None:
        """Raise where the folder cannot take a run; nothing is written."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file. Name a folder for the run.")
        if not self.path.is_dir() or not any(self.path.iterdir()) or self._begun.exists():
            return
        if not (self.path / MANIFEST).exists() and not (self.path / LOCK).exists():
            raise RunFolderError(
                f"{self.path} holds other files and no run. Name a new or empty folder."
            )
        if (self.path / MANIFEST).exists() and not self._overwrite:
            raise RunFolderError(
                f"{self.path} holds a finished run. Name another folder, or replace it with "
                "--overwrite (overwrite=True)."
            )

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
        self.write_json(MANIFEST, {"format": "probagg.run/1", "sha256": hashes})
        self._begun.unlink()
