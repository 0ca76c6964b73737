"""Rows in files: NumPy's memory maps, Parquet and Arrow, read piece by piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.aggregation import Array
from probagg.errors import InputError, import_optional, reading
from probagg.pac.coordinates import chunks
from probagg.pac.out_of_core import PARTS, Chunks, Survey, Tally, check_finite, look
from probagg.storage import check_mapped

PIECE_BYTES = 2**20  # of a memory map, read at once
PIECE_ROWS = 16  # at least


class FileRows(ABC):
    """The rows of a file, or of what was opened from one, in pieces that are read as needed."""

    shape: tuple[int, int]
    dtype: np.dtype
    columns: list[str] | None = None
    starts: np.ndarray  # (pieces + 1,) the first row of every piece, and the number of rows
    ndim = 2
    _last: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Return some rows: a slice of them, or places in rising order."""
        places = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        edges = np.searchsorted(places, self.starts)
        found = [np.empty((0, self.shape[1]), self.dtype)]
        for piece in np.flatnonzero(edges[:-1] < edges[1:]).tolist():
            inside = places[edges[piece] : edges[piece + 1]] - self.starts[piece]
            found.append(self.read_again(piece)[inside])
        return np.concatenate(found)

    def read_again(self, piece: int) -> np.ndarray:
        """Return a piece as `read` does, and keep it until another one is asked for."""
        if self._last is None or self._last[0] != piece:
            self._last = None  # two pieces may be more than memory allows
            self._last = piece, self.read(piece)
        return self._last[1]

    @abstractmethod
    def read(self, piece: int) -> np.ndarray:
        """Return the rows of one piece as float32 or float64."""

    def load(self) -> np.ndarray:
        """Return all rows, which must be finite."""
        X = np.concatenate([self.read(piece) for piece in range(self.n_pieces)])
        check_finite(X)
        return X

    @property
    def n_pieces(self) -> int:
        return len(self.starts) - 1

    @property
    def filled(self) -> Iterator[int]:
        """The numbers of the pieces that have rows."""
        return (
            piece for piece in range(self.n_pieces) if self.starts[piece] < self.starts[piece + 1]
        )

    def map(self, function: Any, *, width: int | None, dtype: Any) -> np.ndarray:
        """Return the results of a function of rows, joined."""
        n = self.shape[0]
        found = np.empty(n if width is None else (n, width), dtype)
        for piece in self.filled:
            X = self.read(piece)
            check_finite(X)
            found[self.starts[piece] : self.starts[piece + 1]] = function(X)
        return found


class MappedRows(FileRows):
    """A memory map, in slices."""

    def __init__(self, X: np.ndarray) -> None:
        if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "fiub":
            raise InputError(
                f"The memory map holds {X.dtype} of shape {X.shape}, but numbers of shape "
                "(n_samples, n_features) are needed. Flatten images: X.reshape(len(X), -1)."
            )
        self.X, self.shape, self.dtype = X, X.shape, _floating(X.dtype)
        size = min(PIECE_BYTES // (X.shape[1] * X.itemsize), X.shape[0] // 1024)
        slices = chunks(X.shape[0], max(PIECE_ROWS, size))
        self.starts = np.array([0, *(rows.stop for rows in slices)])

    def read(self, piece: int) -> np.ndarray:
        check_mapped(self.X)
        return np.array(self.X[self.starts[piece] : self.starts[piece + 1]], self.dtype)


class BatchRows(FileRows):
    """Arrow record batches or Parquet row groups. Columns are joined as one float type."""

    def __init__(self, schema: Any, sizes: list[int], read: Any, where: str) -> None:
        import pyarrow as pa

        numeric = [pa.types.is_floating(t) or pa.types.is_integer(t) for t in schema.types]
        others = [name for name, good in zip(schema.names, numeric, strict=True) if not good]
        if others:
            raise InputError(
                f"{where} has columns that are not numbers: {', '.join(others)}. Leave them out or "
                "encode them."
            )
        self.shape = sum(sizes), len(schema.names)
        if 0 in self.shape:
            raise InputError(
                f"{where} has {self.shape[0]:,} rows and {self.shape[1]:,} columns, but at least "
                "one of each is needed."
            )
        self._read, self._where, self.columns = read, where, list(schema.names)
        self.dtype = np.result_type(
            *(_floating(np.dtype(t.to_pandas_dtype())) for t in schema.types)
        )
        self.starts = np.cumsum([0, *sizes])

    def read(self, piece: int) -> np.ndarray:
        batch = self._read(piece)
        X = np.empty((batch.num_rows, self.shape[1]), self.dtype)
        for number, column in enumerate(batch.columns):
            if column.null_count:
                name = batch.schema.names[number]
                raise InputError(
                    f"{self._where} has missing values in the column {name!r}. Fill them in or "
                    "leave those rows out."
                )
            X[:, number] = column.to_numpy(zero_copy_only=False)
        return X


def _floating(dtype: np.dtype) -> np.dtype:
    if dtype in (np.float32, np.float64):
        return dtype
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def is_file_source(X: Any) -> bool:
    """Return whether X is a path, a memory map, or was opened by pyarrow or `open_file`."""
    opened = type(X).__module__.partition(".")[0] == "pyarrow"
    return opened or isinstance(X, str | PathLike | FileRows) or is_mapped(X)


def is_mapped(X: Any) -> bool:
    """Return whether X is a memory map; a copy of one is of the same class, but in memory."""
    return isinstance(X, np.memmap) and X.offset is not None


def open_file(X: Any) -> FileRows:
    """Return the rows of a .npy, .parquet or .arrow file, a memory map, or a pyarrow object.

    Of pyarrow: a `Table`, a `RecordBatch`, a `parquet.ParquetFile`, a `dataset` of Parquet files,
    or a file of record batches that `ipc.open_file` returned.
    """
    if isinstance(X, FileRows):
        return X
    if is_mapped(X):
        return MappedRows(X)
    if isinstance(X, str | PathLike):
        return _open_path(Path(X).expanduser())
    return _open_arrow(X, f"The {type(X).__name__}")


def _open_arrow(X: Any, where: str) -> BatchRows:
    """Return the rows of a pyarrow object; `where` names it in messages."""
    if hasattr(X, "read_row_group"):
        sizes = [X.metadata.row_group(i).num_rows for i in range(X.num_row_groups)]
        return BatchRows(X.schema_arrow, sizes, X.read_row_group, where)
    if hasattr(X, "get_fragments"):
        parts = [part for file in X.get_fragments() for part in _row_groups(file)]
        sizes = [_n_rows(part) for part in parts]
        return BatchRows(X.schema, sizes, lambda i: parts[i].to_table(X.schema), where)
    if hasattr(X, "get_batch"):
        sizes = [X.get_batch(i).num_rows for i in range(X.num_record_batches)]
        return BatchRows(X.schema, sizes, X.get_batch, where)
    if hasattr(X, "num_rows"):  # a Table or a RecordBatch
        batches = X.to_batches() if hasattr(X, "to_batches") else [X]
        return BatchRows(X.schema, [b.num_rows for b in batches], batches.__getitem__, where)
    raise InputError(
        f"X is a pyarrow {type(X).__name__}, which can be read once only, but PAC reads the rows "
        "several times. Pass a Table, a ParquetFile or ipc.open_file(path), or call partial_fit "
        "with each batch."
    )


def _row_groups(fragment: Any) -> list[Any]:
    split = getattr(fragment, "split_by_row_group", None)  # of Parquet files
    return split() if split else [fragment]


def _n_rows(fragment: Any) -> int:
    if hasattr(fragment, "row_groups"):  # `count_rows` counts those of the whole file
        return sum(group.num_rows for group in fragment.row_groups)
    return fragment.count_rows()


def _open_path(path: Path) -> FileRows:
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".parquet", ".arrow", ".feather"):
        raise InputError(
            f"{path} is not a file that PAC reads: .npy, .parquet, .arrow or .feather is needed. "
            "Read it yourself and pass the array."
        )
    with reading(path, "Check the path, or write the file again."):
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a regular file. Give one.")
        if suffix == ".npy":
            return MappedRows(np.load(path, mmap_mode="r", allow_pickle=False))
        pa = import_optional("pyarrow", f"Reading {path}", "table")
        parquet = import_optional("pyarrow.parquet", f"Reading {path}", "table")
        if suffix == ".parquet":  # mapped, as buffers would take as much memory as a row group
            file = parquet.ParquetFile(path, memory_map=True, pre_buffer=False)
            return _open_arrow(file, str(path))
        return _open_arrow(pa.ipc.open_file(pa.memory_map(str(path))), str(path))


class FileChunks(Chunks):
    """A file in pieces, each of which is read once per sweep.

    A part is a random choice of pieces, or one of them where they are few, as the row groups of a
    Parquet file may be. A block is several pieces, or a stride of one.
    """

    def __init__(self, rows: FileRows, weights: np.ndarray | None) -> None:
        self.rows, self.weights, self.shape = rows, weights, rows.shape
        filled = list(rows.filled)
        self._pieces = [filled[i] for i in np.random.default_rng(0).permutation(len(filled))]
        self.n_parts = min(PARTS, len(filled))

    def survey(self, places: np.ndarray) -> Survey:
        rows, found = self.rows, []
        for piece in rows.filled:
            start, stop = rows.starts[piece : piece + 2]
            inside = places[np.searchsorted(places, start) : np.searchsorted(places, stop)]
            found.append(look(rows.read(piece), inside - start))
        sample, low, high = zip(*found, strict=True)
        w = self.weights
        return Survey(
            X=np.concatenate(sample),
            weights=None if w is None else w[places],
            bounds=(np.min(low, axis=0), np.max(high, axis=0)),
            n_rows=self.shape[0] if w is None else float(w.sum()),
        )

    def blocks(self, part: int, size: int) -> Iterator[tuple[float, Any]]:
        pieces = self._pieces[part :: self.n_parts]
        sizes = np.diff(self.rows.starts)
        n_rows = float(sizes[pieces].sum())
        waiting: list[int] = []
        for piece in pieces:
            strides = -(-int(sizes[piece]) // size)
            if strides > 1:
                for first in range(strides):
                    yield sizes[piece] / strides / n_rows, [(piece, first, strides)]
                continue
            waiting.append(piece)
            if sizes[waiting].sum() + sizes[piece] > size:
                yield sizes[waiting].sum() / n_rows, [(piece, 0, 1) for piece in waiting]
                waiting = []
        if waiting:
            yield sizes[waiting].sum() / n_rows, [(piece, 0, 1) for piece in waiting]

    def sums(self, tally: Tally, block: Any) -> Array:
        total: Any = 0.0
        for piece, first, step in block:
            start, stop = self.rows.starts[piece : piece + 2]
            rows = slice(first, None, step)
            w = None if self.weights is None else self.weights[start:stop][rows]
            X = self.rows.read_again(piece)  # the strides of one follow each other
            total = total + tally(X[rows], w)
        return total
