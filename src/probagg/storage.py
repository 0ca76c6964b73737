"""Files that are written whole or not at all, digests, safetensors, the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Iterable
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


def fingerprint(parts: Iterable[str | bytes | memoryview], length: int = 8) -> str:
    """Return the BLAKE2b digest of all parts joined, `length` bytes in hex; text is UTF-8.

    >>> fingerprint(["ab", b"c"]) == fingerprint(["abc"])
    True
    """
    digest = hashlib.blake2b(digest_size=length)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def file_fingerprint(path: str | PathLike[str], length: int) -> str:
    """Return the `fingerprint` of a file's content."""
    with Path(path).open("rb") as file:
        return fingerprint(iter(lambda: file.read(1 << 20), b""), length)


def write_atomically(path: str | PathLike[str], data: bytes | Iterable[bytes]) -> None:
    """Write a file, whole or not at all; `data` may come in parts."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def find_files(folder: str | PathLike[str], patterns: Iterable[str]) -> set[str]:
    """Return the paths in a folder of the files that match glob patterns.

    What lies behind a linked sub-folder is not in the folder.
    """
    folder = Path(folder)
    root, found = folder.resolve(), set()
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        inside = path.relative_to(folder)
        is_file = path.is_symlink() or path.is_file()
        if is_file and path.parent.resolve() == root / inside.parent:
            found.add(inside.as_posix())
    return found


def remove_files(folder: str | PathLike[str], names: Iterable[str]) -> None:
    """Remove files of a folder, and the sub-folders that this leaves empty."""
    for name in names:
        path = Path(folder) / name
        path.unlink(missing_ok=True)
        if path.parent != Path(folder):
            with contextlib.suppress(OSError):  # it holds something else
                path.parent.rmdir()


def set_aside(path: Path) -> Path:
    """Rename a.csv to a.old.csv, or where that exists to a.old2.csv, ...; return the new path."""
    numbers = itertools.chain([""], itertools.count(2))
    names = (path.with_name(f"{path.stem}.old{n}{path.suffix}") for n in numbers)
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def encode(text: str) -> bytes:
    """Return UTF-8; the bytes of a file name that is not valid UTF-8 stay as they are."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """Return the text that `encode` turned into bytes."""
    return data.decode("utf-8", "surrogateescape")


def write_json(path: str | PathLike[str], value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def to_safetensors(kind: str, tensors: dict[str, Any], description: dict[str, Any]) -> bytes:
    """Return a safetensors file of NumPy arrays; `kind` and `description` are its metadata."""
    import numpy as np
    from safetensors.numpy import save

    text = json.dumps(description, default=lambda number: number.item())
    # safetensors copies memory as it is, which would scramble channels-last weights.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    return _with_sorted_header(save(tensors, {"format": kind, "description": text}))


def _with_sorted_header(file: bytes) -> bytes:
    """Return a safetensors file whose metadata are in order: the library's order is random."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + file[8 + length :]


def write_safetensors(
    path: str | PathLike[str], kind: str, tensors: dict[str, Any], description: dict[str, Any]
) -> None:
    """Write what `to_safetensors` returns."""
    write_atomically(path, to_safetensors(kind, tensors, description))


def read_safetensors(path: str | PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors and the description that `write_safetensors` wrote."""
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
