"""The run folder: what was asked, where it ran, what came out, and a manifest that seals it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MANIFEST = "manifest.json"
PACKAGES = ("probagg", "numpy", "scipy", "scikit-learn", "torch", "torchvision", "timm")


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


class RunFolder:
    """A folder that one process fills; use as a context. The manifest, written last, seals it.

    An existing folder is refused unless it is empty, a run that never finished, or `overwrite` is
    given and it is a run: somebody's other files are never touched.
    """

    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        self._lock = self.path / ".lock"
        self._started = self.path / ".run"

    def __enter__(self) -> Self:
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file. Name a folder for the run with --out.")
        self._check_contents()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with self._lock.open("x") as lock:
                lock.write(str(os.getpid()))
        except FileExistsError:
            holder = self._lock.read_text() or "unknown"
            if _is_running(holder):
                raise RunFolderError(
                    f"Process {holder} is writing to {self.path}. Wait for it, or name another "
                    "folder with --out."
                ) from None
            self._lock.write_text(str(os.getpid()))
        self._started.touch()
        (self.path / MANIFEST).unlink(missing_ok=True)
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

    def _check_contents(self) -> None:
        if not self.path.is_dir() or not any(self.path.iterdir()) or self._started.exists():
            return
        if not (self.path / MANIFEST).exists():
            raise RunFolderError(
                f"{self.path} holds other files and no run. Name a new or empty folder with --out."
            )
        if not self._overwrite:
            raise RunFolderError(
                f"{self.path} holds a finished run. Name another folder with --out, or pass "
                "--overwrite to replace it."
            )

    def write(self, name: str, data: str | bytes) -> Path:
        """Write one file of the run, whole or not at all."""
        path = self.path / name
        write_atomically(path, data.encode() if isinstance(data, str) else data)
        return path

    def write_json(self, name: str, value: Any) -> Path:
        return self.write(name, json.dumps(value, indent=2) + "\n")

    def _seal(self) -> None:
        files = sorted(p for p in self.path.rglob("*") if p.is_file() and p.name[0] != ".")
        hashes = {
            str(p.relative_to(self.path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
        }
        self._started.unlink()
        self.write_json(MANIFEST, {"format": "probagg.run/1", "sha256": hashes})


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
        "packages": versions,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
