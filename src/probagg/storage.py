"""The one reader and the one writer of files; digests, safetensors.

Nothing else opens a file (tests/test_storage.py). What is read is a regular file of a size that
fits; what is written is there whole or not at all, also after a power cut.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import shutil
import stat
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from probagg.environment import check_memory
from probagg.errors import InputError, reading

FilePath = str | PathLike[str]

# The key under which a file keeps the digest of its own content.
CHECKSUM = "checksum"
RESTORE = "Copy the whole file there again, or make it again."
# Bytes of a file of settings, and of any other that a run holds beside its tables and arrays.
SETTINGS = 2**24
# The most steps that tomllib takes for keys of many parts, a.b.c, of which each walks all others.
MAX_STEPS = 2**24
# Errors of a full disk, and of a full share of one.
FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors of file systems that cannot write a file or a folder through.
_WITHOUT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS}


def cache_folder() -> Path:
    """Return the folder of downloads and features: $PROBAGG_CACHE, or ~/.cache/probagg."""
    given = os.environ.get("PROBAGG_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "probagg"


def open_regular(path: FilePath, most: int | None = None, *, follow: bool = True) -> BufferedReader:
    """Open a regular file of at most `most` bytes for reading; with `follow` also through a link.

    A pipe may never be written to and a device never end: neither is waited for.
    """
    flags = getattr(os, "O_NONBLOCK", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    file = open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags))  # noqa: SIM115
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        why = "It is not a regular file"
    elif most is not None and status.st_size > most:
        why = f"It has {status.st_size:,} bytes, but at most {most:,} are read"
    else:
        return file
    file.close()
    raise OSError(errno.EINVAL, why, os.fspath(path))


def read_bytes(path: FilePath, most: int | None = None) -> bytes:
    """Return the content of what `open_regular` opens, at most as many bytes as it has now.

    Files below /proc do not say how long they are. A file must fit into the memory.
    """
    with open_regular(path, most) as file:
        size = os.fstat(file.fileno()).st_size
        if size > SETTINGS:
            check_memory(size, os.fspath(path), "Give a smaller file, or use a larger machine.")
        return file.read(size)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text; a ValueError says what is wrong with it."""
    if sum(line.count(".") ** 2 for line in text.splitlines()) > MAX_STEPS:
        raise ValueError("a line has thousands of dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("values are nested too deeply") from None


def map_array(path: FilePath) -> Any:
    """Return the array of a .npy file, mapped from disk."""
    import numpy as np

    with open_regular(path) as file:
        shape, by_columns, dtype = read_array_header(file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        order: Any = "F" if by_columns else "C"
        try:
            return np.memmap(file, dtype, "r", file.tell(), shape, order)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise InputError(
                f"{path} cannot be mapped: a limit on the address space of this process is below "
                "its size. Raise it (ulimit -v); little of the file is in memory at a time."
            ) from error


def read_array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
    """Return shape, whether columns are contiguous, and dtype of an array in NumPy's format."""
    import numpy as np

    is_first = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    return read(file)


def checksum(path: FilePath, *, follow: bool = True) -> str:
    """Return the SHA-256 of a file, in hex."""
    with open_regular(path, follow=follow) as file:
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


def file_version(path: FilePath) -> tuple[int, ...]:
    """Return what changes when a file is replaced or written; empty where there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def unwritable(error: OSError) -> str:
    """Return in words that something cannot be written, why, and what to do.

    >>> unwritable(OSError(errno.ENOSPC, "No space left on device"))
    'cannot be written (No space left on device). Free some space there, or name another place.'
    """
    remedy = "Free some space there" if error.errno in FULL else "Make it writable"
    return f"cannot be written ({error.strerror}). {remedy}, or name another place."


def why_unwritable(path: FilePath) -> str:
    """Return why no file or folder can be made, or ""; the nearest folder that exists decides.

    A folder is made there and removed: permissions say nothing of the superuser or a full disk.
    """
    path = Path(path).absolute()
    folder = next(place for place in (path, *path.parents) if os.path.isdir(place))
    try:
        os.rmdir(tempfile.mkdtemp(dir=folder, prefix=".probagg-"))
    except OSError as error:
        return unwritable(error)
    return ""


def write_file(path: FilePath, data: bytes | Iterable[bytes]) -> None:
    """Write a file that does not last before `sync` has returned; `data` may come in parts."""
    with open(path, "wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)


def append(path: FilePath, text: str) -> None:
    """Add text to the end of a file, which may be new but not a link."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with open(path, "a", opener=lambda name, _: os.open(name, flags, 0o666)) as file:
        file.write(text)


def copy_file(path: FilePath, target: FilePath) -> None:
    """Copy a regular file with its times and permissions."""
    with open_regular(path) as file, open(target, "wb") as copy:
        shutil.copyfileobj(file, copy)
    shutil.copystat(path, target)


def sync(path: FilePath) -> None:
    """Return once a file, or the names in a folder, would survive a power cut.

    Windows opens no folders, and some file systems cannot say when they have written.
    """
    with contextlib.suppress(PermissionError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _WITHOUT_SYNC:
                raise
        finally:
            os.close(descriptor)


def sync_all(folder: FilePath) -> None:
    """`sync` a folder and everything in it, without what links lead to."""
    for here, _, files in os.walk(folder, topdown=False):
        for path in (os.path.join(here, name) for name in files):
            if not os.path.islink(path):
                sync(path)
        sync(here)


def move(path: FilePath, target: FilePath) -> None:
    """Give a file or folder, which is on the disk already, another name that lasts."""
    os.replace(path, target)
    sync(Path(target).parent)


def write_atomically(
    path: FilePath, data: bytes | Iterable[bytes], check: Callable[[], object] | None = None
) -> None:
    """Write a file, whole or not at all; `data` may come in parts.

    `check` is called before the file takes its place, and may raise.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with naming(path):
            write_file(temporary, data)
            if check is not None:
                check()
            sync(temporary)
            move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file or folder in an error that names none, as of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename or not error.errno:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes the new or empty `target` on success.

    An empty folder is filled and not replaced: it may be a mount point, onto which nothing can be
    renamed.
    """
    home = target if target.is_dir() else target.parent
    home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home, prefix=f".{target.name[:50]}-") as beside, naming(target):
        new = Path(beside, "new")
        new.mkdir()
        yield new
        sync_all(new)
        if home != target:
            move(new, target)
            return
        for path in new.iterdir():
            move(path, target / path.name)


def find_files(folder: FilePath, patterns: Iterable[str]) -> set[str]:
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


def remove_files(folder: FilePath, patterns: Iterable[str], keep: Iterable[str] = ()) -> None:
    """Remove the files that `find_files` finds, and the sub-folders that this leaves empty."""
    for path in (Path(folder) / name for name in find_files(folder, patterns) - {*keep}):
        path.unlink(missing_ok=True)
        if path.parent != Path(folder):
            with contextlib.suppress(OSError):
                path.parent.rmdir()


def set_aside(path: Path) -> Path:
    """Rename a.csv to a.old.csv, or where that exists to a.old2.csv, ...; return the new path."""
    numbers = itertools.chain([""], itertools.count(2))
    names = (path.with_name(f"{path.stem}.old{n}{path.suffix}") for n in numbers)
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def encode(text: str) -> bytes:
    """Return UTF-8; the bytes of a file name that is not valid UTF-8 stay as they are."""
    return text.encode("utf-8", "surrogateescape")


def write_safetensors(
    path: FilePath, kind: str, tensors: dict[str, Any], description: dict[str, Any]
) -> None:
    """Write a safetensors file of NumPy arrays.

    Its metadata are `kind`, `description` and the SHA-256 of all else.
    """
    import numpy as np
    from safetensors.numpy import save

    text = json.dumps(description, default=lambda number: number.item())
    # safetensors copies memory as it is, which would scramble channels-last weights.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    header, data = _split(save(tensors))
    header["__metadata__"] = {"description": text, "format": kind}
    header["__metadata__"][CHECKSUM] = _digest(header, data)
    head = json.dumps(header, separators=(",", ":")).encode()
    # Tensors begin at a multiple of eight bytes.
    head += b" " * (-len(head) % 8)
    write_atomically(path, (len(head).to_bytes(8, "little"), head, bytes(data)))


def _digest(header: dict[str, Any], data: memoryview) -> str:
    """Return the SHA-256 of the header as JSON and of the bytes after it."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


def _split(file: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the header of a safetensors file and the bytes of its tensors."""
    end = 8 + int.from_bytes(file[:8], "little")
    if end > len(file):
        raise ValueError("its end is missing")
    return json.loads(file[8:end]), memoryview(file)[end:]


def read_safetensors(path: FilePath, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors and the description that `write_safetensors` wrote, unchanged."""
    from safetensors.numpy import load

    file = read_bytes(path)
    with reading(path, RESTORE, form="a safetensors file"):
        header, data = _split(file)
        metadata = header.get("__metadata__", {})
        expected = metadata.pop(CHECKSUM, None)
        if metadata.get("format") != kind:
            raise InputError(
                f"{path} holds {metadata.get('format', 'other tensors')!r}, but {kind!r} is "
                "needed. Pass a file that `save` of the same class wrote."
            )
        if expected != _digest(header, data):
            raise ValueError("its checksum is wrong" if expected else "it has no checksum")
        return load(file), json.loads(metadata["description"])
