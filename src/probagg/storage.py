"""Files that are written whole or not at all, checksums, safetensors, the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from os import PathLike
from pathlib import Path
from typing import Any

from probagg.errors import InputError


def cache_folder() -> Path:
    """Return the folder of downloads and features: $PROBAGG_CACHE, or ~/.cache/probagg."""
    given = os.environ.get("PROBAGG_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "probagg"


def checksum(path: str | PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hex."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        raise InputError(f"{path} is not a safetensors file ({error}).") from error
    if metadata.get("format") != kind:
        raise InputError(
            f"{path} holds {metadata.get('format', 'other tensors')!r}, but {kind!r} is needed. "
            "Pass a file that `save` of the same class wrote."
        )
    return tensors, json.loads(metadata["description"])
