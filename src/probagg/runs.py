"""The run folder: what was asked, where it ran, what came out, and a manifest that seals it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import sys
import time
from fnmatch import fnmatch
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

logger = logging.getLogger("probagg")

MANIFEST = "manifest.json"
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
    "profiles.csv",
    "report.html",
    "result.json",
    REVIEW,
    "skipped.csv",
    "tensorboard/events.out.tfevents.*",
    "yardstick.safetensors",
)
PACKAGES = (
    "probagg",
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "torchvision",
    "timm",
    "onnxruntime",
)


class RunFolderError(RuntimeError):
    """A folder that cannot take a run; the message says why and what to do."""


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def encode(text: str) -> bytes:
    """UTF-8; the bytes of a file name that is no valid text stay as they are."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """What `encode` wrote."""
    return data.decode("utf-8", "surrogateescape")


def write_json(path: str | PathLike[str], value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def add_to_run(run: str | PathLike[str], name: str, data: bytes) -> Path:
    """Write a file into a finished run, or replace one, and note it in the manifest."""
    path, manifest = Path(run) / name, Path(run) / MANIFEST
    write_atomically(path, data)
    if manifest.exists():
        sealed = json.loads(manifest.read_text())
        sealed["sha256"][name] = hashlib.sha256(data).hexdigest()
        sealed["sha256"] = dict(sorted(sealed["sha256"].items()))
        write_json(manifest, sealed)
    return path


def write_safetensors(
    path: str | PathLike[str], kind: str, tensors: dict[str, Any], description: dict[str, Any]
) -> None:
    """One safetensors file of NumPy arrays, with `kind` and `description` (as JSON) beside them."""
    import numpy as np
    from safetensors.numpy import save

    text = json.dumps(description, default=lambda number: number.item())
    # safetensors stores memory as it lies, which for channels-last weights would be scrambled.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    write_atomically(path, save(tensors, {"format": kind, "description": text}))


def read_safetensors(path: str | PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `write_safetensors` wrote, or an error that says what the file is instead."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error}).") from error
    if metadata.get("format") != kind:
        raise ValueError(
            f"{path} holds {metadata.get('format', 'other tensors')!r}, but {kind!r} is needed. "
            "Pass a file that `save` of the same class wrote."
        )
    return tensors, json.loads(metadata["description"])


def log_progress(wanted: bool, message: str, *values: Any) -> None:
    """Log to "probagg", and to the terminal where nobody has set up logging."""
    if wanted:
        if not logger.hasHandlers():
            logger.addHandler(logging.StreamHandler())
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
        logger.info(message, *values)


class RunFolder:
    """A folder that one process fills; use as a context. The manifest, written last, seals it.

    An existing folder is refused unless it is empty, a run that never finished, or `overwrite` is
    given and it is a run. An old run is taken away only when the new one writes its first file, and
    somebody's other files never; a person's review is kept as review.old.json.
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
                f"{self.path} cannot be written ({error.strerror}). Name another folder with --out."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._seal()
        self._lock.unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def check(self) -> None:
        """Refuse a folder that cannot take a run; nothing is written."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file. Name a folder for the run with --out.")
        if not self.path.is_dir() or not any(self.path.iterdir()) or self._begun.exists():
            return
        if not (self.path / MANIFEST).exists() and not self._lock.exists():
            raise RunFolderError(
                f"{self.path} holds other files and no run. Name a new or empty folder with --out."
            )
        if (self.path / MANIFEST).exists() and not self._overwrite:
            raise RunFolderError(
                f"{self.path} holds a finished run. Name another folder with --out, or pass "
                "--overwrite to replace it."
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
                    "folder with --out."
                ) from None
            self._lock.write_text(str(os.getpid()))

    def write(self, name: str, data: str | bytes) -> Path:
        """Write one file of the run, whole or not at all."""
        if not self._writing:
            self._begun.touch()
            self._remove_old_run()
            self._writing = True
        path = self.path / name
        write_atomically(path, encode(data) if isinstance(data, str) else data)
        self._files.add(name)
        return path

    def keep(self, *names: str) -> None:
        """Count files, or folders of files, that others wrote into this folder to the run."""
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
        hashes = {
            name: hashlib.sha256((self.path / name).read_bytes()).hexdigest()
            for name in sorted(self._files)
        }
        self.write_json(MANIFEST, {"format": "probagg.run/1", "sha256": hashes})
        self._begun.unlink()


def _is_running(pid: str) -> bool:
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def environment() -> dict[str, Any]:
    """Where a number comes from: machine, versions, command and time."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "gpu": _gpu(),
        "packages": versions,
    }


def _gpu() -> str | None:
    """The GPU's name where PyTorch is in use and sees one; it is not imported for this."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
