"""The run folder."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
