"""A cache of features, keyed by the content of the image."""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import numpy as np

from probagg.progress import logger
from probagg.storage import cache_folder, fingerprint

Result = TypeVar("Result")

PIECE = 500  # keys in one query: SQLite allows 999
_SCHEMA = """
CREATE TABLE IF NOT EXISTS features (
    identity TEXT, digest BLOB, features BLOB, PRIMARY KEY (identity, digest)
);
CREATE TABLE IF NOT EXISTS files (
    path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digest BLOB
);
"""


class Stamp(NamedTuple):
    """What identifies the content of a file without reading it."""

    path: bytes
    size: int
    mtime_ns: int


def cache_path() -> Path:
    """Return the path of the cache: features.sqlite in $PROBAGG_CACHE, or ~/.cache/probagg."""
    return cache_folder() / "features.sqlite"


class FeatureCache:
    """Features of one backbone in an SQLite file, and the content that files had when last seen.

    A context manager that several processes may share. If the file is broken or read-only, one
    warning is logged and nothing is cached; `path=None` caches nothing either. Each row begins with
    a digest; one that does not match it, or is not finite, is computed again.
    """

    def __init__(self, path: Path | None, identity: str, n_features: int) -> None:
        self._path, self._identity = path, identity
        self._n_features = n_features
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._try(self._open, None)
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> None:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=30.0, check_same_thread=False)
        self._connection = connection
        connection.execute("PRAGMA journal_mode=WAL")  # readers do not wait for a writer
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_SCHEMA)

    def digests(self, stamps: Sequence[Stamp | None]) -> list[bytes | None]:
        """Return the content digest of each file that was seen with this size and time."""

        def read(connection: sqlite3.Connection) -> list[bytes | None]:
            query = "SELECT digest FROM files WHERE path=? AND size=? AND mtime_ns=?"
            rows = [stamp and connection.execute(query, stamp).fetchone() for stamp in stamps]
            return [row[0] if row else None for row in rows]

        return self._use(read, [None] * len(stamps))

    def find(self, digests: Iterable[bytes | None]) -> dict[bytes, np.ndarray]:
        """Return the cached features by content digest."""
        keys = list({digest for digest in digests if digest is not None})

        def read(connection: sqlite3.Connection) -> dict[bytes, np.ndarray]:
            found = {}
            for start in range(0, len(keys), PIECE):
                piece = keys[start : start + PIECE]
                query = (
                    "SELECT digest, features FROM features WHERE identity=? AND digest IN "
                    f"({','.join('?' * len(piece))})"
                )
                for digest, data in connection.execute(query, (self._identity, *piece)):
                    if (row := self._row(digest, data)) is not None:
                        found[digest] = row
            return found

        return self._use(read, {})

    def store(
        self, files: Iterable[tuple[Stamp, bytes]], features: Iterable[tuple[bytes, np.ndarray]]
    ) -> None:
        """Store the content digests of files and the features of contents, all or nothing."""
        seen = [(*stamp, digest) for stamp, digest in files]
        rows = [(self._identity, digest, self._blob(digest, row)) for digest, row in features]

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", seen)
                connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", rows)

        self._use(write, None)

    def _blob(self, digest: bytes, row: np.ndarray) -> bytes:
        """Return what is stored of a row: a digest of all that belongs to it, and the row."""
        data = row.astype("<f4").tobytes()
        return bytes.fromhex(fingerprint([self._identity, digest, data])) + data

    def _row(self, digest: bytes, blob: bytes) -> np.ndarray | None:
        """Return the row that `_blob` was made of, or None where it is damaged."""
        if len(blob) != 8 + 4 * self._n_features:
            return None
        row = np.frombuffer(blob, "<f4", offset=8)
        return row if np.isfinite(row).all() and self._blob(digest, row) == blob else None

    def _use(self, work: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        with self._lock:  # the thread that reads ahead uses the connection too
            connection = self._connection
            return self._try(lambda: work(connection), otherwise) if connection else otherwise

    def _try(self, work: Callable[[], Result], otherwise: Result) -> Result:
        try:
            return work()
        except (sqlite3.Error, OSError) as error:
            logger.warning(
                "The cache of features %s cannot be used (%s): nothing is cached. Delete the file, "
                "or name another folder with PROBAGG_CACHE.",
                self._path,
                error,
            )
            self._connection = None
            return otherwise
