"""Fetch a public release once: resumed after a cut connection, checked, unpacked safely."""

from __future__ import annotations

import hashlib
import http.client
import math
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

from probagg.errors import NoData
from probagg.processes import hold
from probagg.progress import Progress
from probagg.storage import cache_folder

TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Remote:
    """A public file and its digest."""

    url: str
    digest: str  # "md5:..." or "sha256:..."

    @property
    def file(self) -> str:
        """The name of the file in the cache."""
        return self.url.rpartition("/")[2]


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
REMOTES = {
    "cifar10": (
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    "cifar100": (
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "md5:03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
    "stl10": (
        Remote(
            "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            "md5:91f7769df0f17e558f3565bffb0c7dfb",
        ),
    ),
    "mnist": (
        Remote(_MNIST + "train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        Remote(_MNIST + "train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
        Remote(_MNIST + "t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
        Remote(_MNIST + "t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
    ),
}


def obtain(release: str, *, progress: Progress | None = None) -> Path:
    """Return the folder of a release in the cache; fetch and unpack what is missing there."""
    folder = cache_folder() / release
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # One process at a time; the others wait, then find the work done.
        with hold(folder.with_name(f".{release}.lock"), wait=math.inf):
            for remote in REMOTES[release]:
                if not remote.file.endswith(".tar.gz"):
                    folder.mkdir(exist_ok=True)
                    fetch(remote, folder, progress=progress)
                elif not folder.is_dir():
                    unpack(fetch(remote, folder.parent, progress=progress), folder)
    except OSError as error:
        raise NoData(
            f"{folder} cannot be written ({error.strerror or error}). Set PROBAGG_CACHE to a "
            "folder with room."
        ) from error
    return folder


def is_here(release: str) -> bool:
    """Return whether `obtain` has nothing to fetch."""
    folder = cache_folder() / release
    files = (remote.file for remote in REMOTES[release])
    return all(folder.is_dir() if f.endswith(".tar.gz") else (folder / f).exists() for f in files)


def fetch(remote: Remote, folder: Path, *, progress: Progress | None = None) -> Path:
    """Return the path of a remote file in `folder`, downloaded unless it is there.

    `progress` is called with the bytes so far and the total.
    """
    path = folder / remote.file
    if path.exists():
        if digest := _other_digest(path, remote):
            raise NoData(
                f"{path} has {digest} where {remote.digest} is needed: it is truncated or "
                "another file. Delete it, and it is fetched again."
            )
        return path
    part = path.with_name(path.name + ".part")
    try:
        while not _continue(remote.url, part, progress):
            pass
    except (OSError, http.client.HTTPException) as error:
        raise NoData(
            f"{remote.file} could not be fetched from {remote.url} "
            f"({getattr(error, 'reason', error)}). Run again to resume, or save the file "
            f"yourself as {path}, or unpack it in the folder that PROBAGG_DATA names."
        ) from error
    if digest := _other_digest(part, remote):
        part.unlink()
        raise NoData(
            f"The download of {remote.url} has {digest} where {remote.digest} is needed, and was "
            f"deleted. Run again, or save the right file yourself as {path}."
        )
    os.replace(part, path)
    return path


def _continue(url: str, part: Path, progress: Progress | None) -> bool:
    """Append what one connection sends to `part`; return whether the file is complete.

    An error is raised where the connection adds nothing.
    """
    start = before = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "probagg"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
            start = start if reply.status == 206 else 0  # 200: the whole file from the start
            total = start + int(reply.headers.get("Content-Length") or 0)
            with part.open("ab" if start else "wb") as file:
                while block := reply.read(1 << 20):
                    file.write(block)
                    if progress:
                        progress(file.tell(), total)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: there is nothing after `start`
            raise
        return True
    except (OSError, http.client.HTTPException):
        if not part.exists() or part.stat().st_size <= before:
            raise
        return False
    size = part.stat().st_size
    if size < total and size <= before:
        raise ConnectionError(f"the connection was cut after {size:,} of {total:,} bytes")
    return size >= total


def _other_digest(path: Path, remote: Remote) -> str | None:
    """Return the digest of a file if it differs from the remote's, else None."""
    kind = remote.digest.partition(":")[0]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    found = f"{kind}:{digest.hexdigest()}"
    return None if found == remote.digest else found


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .tar.gz into a new folder, whole or not at all."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir()
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")  # refuses members that leave the folder
        os.replace(temporary, folder)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise NoData(
            f"{archive} cannot be unpacked ({error}), and no part of it was kept. Delete it, "
            "and it is fetched again."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
