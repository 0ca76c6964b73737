"""A file or a folder that a user names for a result."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from probagg.app.run.layout import UNFINISHED, is_run_file, listed
from probagg.errors import InputError
from probagg.storage import can_be_made, write_atomically


@dataclass(frozen=True)
class Output:
    """A new file, or with `overwrite` an existing one that is neither a source nor of a run.

    Call `check` before the work; `write` checks again, as the file may have come up since.
    """

    path: Path
    overwrite: bool = False
    sources: tuple[Path, ...] = ()

    def check(self) -> Self:
        """Raise where writing would cost somebody a file, or is not possible."""
        path = self.path
        if path.is_dir() or not path.absolute().parent.is_dir():
            why = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
            raise InputError(f"--out {path} {why}. Name a file in a folder that exists.")
        for source in self.sources:
            self._check_source(source)
        if (run := run_of(path)) is not None:
            raise InputError(
                f"--out {path} would replace a file in {run}, which belongs to the run there. "
                "Name another file."
            )
        if path.is_symlink():
            raise InputError(
                f"--out {path} is a symbolic link to {os.readlink(path)}. Name a file, not a link."
            )
        if path.exists() and not path.is_file():
            raise InputError(f"--out {path} is not a regular file. Name a new file.")
        if path.exists() and not self.overwrite:
            raise InputError(
                f"--out {path} exists. Name a new file, or replace it with --overwrite "
                "(overwrite=True)."
            )
        _check_permission(path)
        return self

    def _check_source(self, source: Path) -> None:
        if not self.path.exists() or not source.exists():
            return
        if self.path.samefile(source):
            raise InputError(f"--out {self.path} is the source itself. Name another file.")
        if self.path.resolve().is_relative_to(source.resolve()):
            raise InputError(
                f"--out {self.path} would replace a file in {source}. Name one elsewhere."
            )

    def write(self, data: bytes) -> None:
        """Write the file, whole or not at all."""
        self.check()
        write_atomically(self.path, data)


@dataclass(frozen=True)
class OutputFolder:
    """A new or empty folder, or with `overwrite` one that holds nothing but `files`."""

    path: Path
    files: tuple[str, ...]
    overwrite: bool = False

    def check(self) -> Self:
        """Raise where filling the folder would cost somebody a file, or is not possible."""
        path = self.path
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            raise InputError(f"--out {path} is not a folder. Name a new one.")
        if Path.cwd().is_relative_to(path.resolve()):  # it will be another folder of that name
            raise InputError(f"You are in {path.resolve()}. Name another folder.")
        inside = sorted(p.name for p in path.iterdir()) if path.is_dir() else []
        if others := [name for name in inside if name not in self.files]:
            raise InputError(
                f"--out {path} holds {others[0]}, so it is not an earlier export that may be "
                "replaced. Name a new or empty folder."
            )
        if inside and not self.overwrite:
            raise InputError(
                f"--out {path} exists. Name a new folder, or replace it with --overwrite "
                "(overwrite=True)."
            )
        _check_permission(path)
        return self


def _check_permission(path: Path) -> None:
    """Raise where the folder around a place, which is replaced as a whole, may not be written."""
    if not can_be_made(path.absolute().parent):
        raise InputError(
            f"--out {path} cannot be written (Permission denied). Name a place where you may write."
        )


def run_of(path: Path) -> Path | None:
    """Return the run folder that a file belongs to, by its place and name, or None."""
    real = path.resolve()
    for folder in real.parents:
        inside = real.relative_to(folder).as_posix()
        if inside.startswith(f"{UNFINISHED}/"):
            return folder
        if is_run_file(inside) and listed(folder) is not None:
            return folder
    return None
