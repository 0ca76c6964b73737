"""Files that are written whole or not at all, digests, safetensors, cells of CSV files."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from probagg.errors import InputError, reading

# The key under which a value or a file keeps the digest of its own content.
SEAL = "checksum"
RESTORE = "Copy the whole file there again, or make it again."
# Marks before a cell that a spreadsheet would run: "./" leads to the same file, and an apostrophe
# is what spreadsheets themselves put before text.
PATH, TEXT = "./", "'"
_FORMULAS = {mark: re.compile(rf"({re.escape(mark)})*[=+\-@\t\r]") for mark in (PATH, TEXT)}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


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


def read_bytes(path: str | PathLike[str]) -> bytes:
    """Return the content of a regular file, at most as many bytes as it has now.

    A pipe may never be written to, a device never end, and files below /proc do not say how long
    they are.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is not a regular file. Give one.")
    with Path(path).open("rb") as file:
        return file.read(status.st_size)


def check_mapped(array: Any) -> None:
    """Raise an error where the file of a memory map is now shorter than it was.

    Reading what is gone would end the process (SIGBUS), so whoever reads a map for long asks first.
    """
    # A view has the offset of its map.
    while getattr(array.base, "filename", None) is not None:
        array = array.base
    name = getattr(array, "filename", None)
    if name is not None and os.stat(name).st_size < array.offset + array.nbytes:
        raise InputError(f"{name} was cut short while it was read. Restore it, and run again.")


def seal(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value for JSON with the SHA-256 of its content, which `unseal` checks."""
    return value | {SEAL: _digest(value)}


def unseal(value: dict[str, Any]) -> dict[str, Any]:
    """Return what `seal` was given; a changed value, or one without its digest, is an error.

    >>> unseal(seal({"a": 1}))
    {'a': 1}
    >>> unseal(seal({"a": 1}) | {"a": 2})
    Traceback (most recent call last):
        ...
    ValueError: its checksum is wrong
    """
    value = dict(value)
    _check(value.pop(SEAL, None), _digest(value))
    return value


def _digest(value: Any, data: bytes | memoryview = b"") -> str:
    """Return the SHA-256 of a value as JSON and of the bytes after it."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


def _check(expected: Any, found: str) -> None:
    if expected != found:
        raise ValueError("it has no checksum" if expected is None else "its checksum is wrong")


def file_fingerprint(path: str | PathLike[str], length: int) -> str:
    """Return the `fingerprint` of a file's content."""
    with Path(path).open("rb") as file:
        return fingerprint(iter(lambda: file.read(1 << 20), b""), length)


def can_be_made(path: str | PathLike[str]) -> bool:
    """Return whether a file or folder may be written: the nearest folder that exists decides."""
    path = Path(path).absolute()
    folder = next(place for place in (path, *path.parents) if os.path.isdir(place))
    return os.access(folder, os.W_OK | os.X_OK)


def write_atomically(path: str | PathLike[str], data: bytes | Iterable[bytes]) -> None:
    """Write a file, whole or not at all; `data` may come in parts."""
    with whole_file(path) as temporary, temporary.open("wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)


@contextlib.contextmanager
def whole_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield a path to write to, which replaces `path` on success and is removed on failure."""
    path = Path(path)
    writer = f"{os.getpid()}-{threading.get_ident()}"
    temporary = path.with_name(f".{path.name}.{writer}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None:  # a full disk names no file
            error.filename = os.fspath(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes the new or empty `target` on success.

    An empty folder is filled and not replaced: it may be a mount point, onto which nothing can be
    renamed.
    """
    home = target if target.is_dir() else target.parent
    home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home, prefix=f".{target.name[:50]}-") as beside:
        new = Path(beside, "new")
        new.mkdir()
        yield new
        if home != target:
            new.rename(target)
            return
        for path in new.iterdir():
            path.rename(target / path.name)


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


def decode_text(data: bytes) -> str:
    """Return the text that `encode` turned into bytes."""
    return data.decode("utf-8", "surrogateescape")


def marked(cell: str, mark: str) -> str:
    """Return a cell of a CSV file that no spreadsheet takes for a formula.

    Somebody may have named a photo `=HYPERLINK(...).jpg`. The mark is put before such a cell, and
    before one that has it already, so that `unmarked` takes off exactly what was put there. Numbers
    are not formulas.

    >>> marked("=1+1.jpg", PATH), marked("-1.5", TEXT)
    ('./=1+1.jpg', '-1.5')
    """
    is_formula = _FORMULAS[mark].match(cell) and not _NUMBER.fullmatch(cell)
    return mark + cell if is_formula else cell


def unmarked(cell: str, mark: str) -> str:
    """Return the cell that was `marked`.

    >>> unmarked("./=1+1.jpg", PATH)
    '=1+1.jpg'
    """
    return cell.removeprefix(mark) if _FORMULAS[mark].match(cell) else cell


def write_json(path: str | PathLike[str], value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def to_safetensors(kind: str, tensors: dict[str, Any], description: dict[str, Any]) -> bytes:
    """Return a safetensors file of NumPy arrays.

    Its metadata are `kind`, `description` and the SHA-256 of all else.
    """
    import numpy as np
    from safetensors.numpy import save

    text = json.dumps(description, default=lambda number: number.item())
    # safetensors copies memory as it is, which would scramble channels-last weights.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    header, data = _split(save(tensors))
    header["__metadata__"] = {"description": text, "format": kind}
    header["__metadata__"][SEAL] = _digest(header, data)
    head = json.dumps(header, separators=(",", ":")).encode()
    # Tensors begin at a multiple of eight bytes.
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, data])


def _split(file: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the header of a safetensors file and the bytes of its tensors."""
    end = 8 + int.from_bytes(file[:8], "little")
    if end > len(file):
        raise ValueError("its end is missing")
    return json.loads(file[8:end]), memoryview(file)[end:]


def write_safetensors(
    path: str | PathLike[str], kind: str, tensors: dict[str, Any], description: dict[str, Any]
) -> None:
    """Write what `to_safetensors` returns."""
    write_atomically(path, to_safetensors(kind, tensors, description))


def read_safetensors(path: str | PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors and the description that `write_safetensors` wrote, unchanged."""
    from safetensors.numpy import load

    file = read_bytes(path)
    with reading(path, RESTORE, form="a safetensors file"):
        header, data = _split(file)
        metadata = header.get("__metadata__", {})
        expected = metadata.pop(SEAL, None)
        if metadata.get("format") != kind:
            raise InputError(
                f"{path} holds {metadata.get('format', 'other tensors')!r}, but {kind!r} is "
                "needed. Pass a file that `save` of the same class wrote."
            )
        _check(expected, _digest(header, data))
        return load(file), json.loads(metadata["description"])
