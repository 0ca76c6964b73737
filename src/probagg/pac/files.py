"""Rows in files: NumPy's memory maps, Parquet and Arrow, read chunk by chunk."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from probagg.arrays import check_mapped, chunks
from probagg.errors import InputError, import_optional, reading
from probagg.pac.out_of_core import (
    ROUNDS,
    Block,
    Chunks,
    RowSample,
    finite_bounds,
    sample_chunk,
)
from probagg.storage import map_array, open_regular

# The size of a chunk of a memory map, which has at least so many rows.
CHUNK_BYTES = 2**20
CHUNK_ROWS = 16


class FileRows(ABC):
    """The rows of a file, or of what was opened from one, in chunks that are read as needed."""

    shape: tuple[int, int]
    dtype: np.dtype
    columns: list[str] | None = None
    starts: np.ndarray  # (chunks + 1,) the first row of every chunk, and the number of rows
    ndim = 2
    _last: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Return some rows: a slice of them, or numbers in rising order."""
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        edges = np.searchsorted(numbers, self.starts)
        found = [np.empty((0, self.shape[1]), self.dtype)]
        for chunk in np.flatnonzero(edges[:-1] < edges[1:]).tolist():
            inside = numbers[edges[chunk] : edges[chunk + 1]] - self.starts[chunk]
            found.append(self.read_again(chunk)[inside])
        return np.concatenate(found)

    def read_again(self, chunk: int) -> np.ndarray:
        """Return a chunk as `read` does, and keep it until another one is asked for."""
        if self._last is None or self._last[0] != chunk:
            self._last = None  # two chunks may be more than memory allows
            self._last = chunk, self.read(chunk)
        return self._last[1]

    @abstractmethod
    def read(self, chunk: int) -> np.ndarray:
        """Return the rows of one chunk as float32 or float64."""

    def load(self) -> np.ndarray:
        """Return all rows, which must be finite."""
        X = np.concatenate([self.read(chunk) for chunk in range(self.n_chunks)])
        finite_bounds(X)
        return X

    @property
    def n_chunks(self) -> int:
        return len(self.starts) - 1

    @property
    def filled(self) -> Iterator[int]:
        """The numbers of the chunks that have rows."""
        return (
            chunk for chunk in range(self.n_chunks) if self.starts[chunk] < self.starts[chunk + 1]
        )

    def map(
        self, function: Callable[[np.ndarray], np.ndarray], *, width: int | None, dtype: DTypeLike
    ) -> np.ndarray:
        """Return the results of a function of rows, joined."""
        n = self.shape[0]
        found = np.empty(n if width is None else (n, width), dtype)
        for chunk in self.filled:
            X = self.read(chunk)
            finite_bounds(X)
            found[self.starts[chunk] : self.starts[chunk + 1]] = function(X)
        return found


class MappedRows(FileRows):
    """A memory map, or an array or CSR array in memory, in slices."""

    def __init__(self, X: np.ndarray | sp.csr_array) -> None:
        if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "fiub":
            raise InputError(
                f"The memory map holds {X.dtype} of shape {X.shape}, but numbers of shape "
                "(n_samples, n_features) are needed. Flatten images: X.reshape(len(X), -1)."
            )
        self.X, self.shape, self.dtype = X, X.shape, _floating(X.dtype)
        width = X.shape[1] if isinstance(X, np.ndarray) else 1 + X.nnz // X.shape[0]
        size = min(CHUNK_BYTES // (width * X.dtype.itemsize), X.shape[0] // 1024)
        slices = chunks(X.shape[0], max(CHUNK_ROWS, size))
        self.starts = np.array([0, *(rows.stop for rows in slices)])

    def read(self, chunk: int) -> np.ndarray:
        some = self.X[self.starts[chunk] : self.starts[chunk + 1]]
        if sp.issparse(some):
            return some
        check_mapped(self.X)
        return np.array(some, self.dtype)


class BatchRows(FileRows):
    """Arrow record batches or Parquet row groups. Columns are joined as one float type."""

    def __init__(
        self, schema: Any, sizes: list[int], read: Callable[[int], Any], where: str
    ) -> None:
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

    def read(self, chunk: int) -> np.ndarray:
        batch = self._read(chunk)
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
    """Return whether X is a path, a memory map, or was opened by pyarrow or `open_regular`."""
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
        groups = [group for file in X.get_fragments() for group in _row_groups(file)]
        sizes = [_n_rows(group) for group in groups]
        return BatchRows(X.schema, sizes, lambda i: groups[i].to_table(X.schema), where)
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
        open_regular(path).close()
        if suffix == ".npy":
            return MappedRows(map_array(path))
        pa = import_optional("pyarrow", f"Reading {path}", "table")
        parquet = import_optional("pyarrow.parquet", f"Reading {path}", "table")
        if suffix == ".parquet":  # mapped, as buffers would take as much memory as a row group
            file = parquet.ParquetFile(path, memory_map=True, pre_buffer=False)
            return _open_arrow(file, str(path))
        return _open_arrow(pa.ipc.open_file(pa.memory_map(str(path))), str(path))


class FileChunks(Chunks):
    """A file, each chunk of which is read once per sweep.

    A round takes random chunks, or one of them where they are few, as the row groups of a Parquet
    file may be. A block is several chunks, or a stride of one.
    """

    def __init__(self, rows: FileRows, weights: np.ndarray | None) -> None:
        self.rows, self.weights, self.shape = rows, weights, rows.shape
        filled = list(rows.filled)
        self._order = [filled[i] for i in np.random.default_rng(0).permutation(len(filled))]
        self.n_rounds = min(ROUNDS, len(filled))

    def sample(self, indices: np.ndarray) -> RowSample:
        rows, found = self.rows, []
        for chunk in rows.filled:
            start, stop = rows.starts[chunk : chunk + 2]
            inside = indices[np.searchsorted(indices, start) : np.searchsorted(indices, stop)]
            found.append(sample_chunk(rows.read(chunk), inside - start))
        X, low, high = zip(*found, strict=True)
        w = self.weights
        return RowSample(
            X=sp.vstack(X, "csr") if sp.issparse(X[0]) else np.concatenate(X),
            weights=None if w is None else w[indices],
            bounds=(np.min(low, axis=0), np.max(high, axis=0)),
            total_weight=self.shape[0] if w is None else float(w.sum()),
        )

    def chunk(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        start, stop = self.rows.starts[number : number + 2]
        w = None if self.weights is None else self.weights[start:stop]
        return self.rows.read_again(number), w  # the strides of one follow each other

    def blocks(self, round: int, size: int) -> Iterator[tuple[float, Block]]:
        order, sizes = self._order[round :: self.n_rounds], np.diff(self.rows.starts)
        n_rows = float(sizes[order].sum())
        waiting: list[int] = []
        for chunk in order:
            strides = -(-int(sizes[chunk]) // size)
            if strides > 1:
                for first in range(strides):
                    share = sizes[chunk] / strides / n_rows
                    yield share, [(chunk, slice(first, None, strides))]
                continue
            waiting.append(chunk)
            if sizes[waiting].sum() + sizes[chunk] > size:
                yield sizes[waiting].sum() / n_rows, [(i, slice(None)) for i in waiting]
                waiting = []
        if waiting:
            yield sizes[waiting].sum() / n_rows, [(i, slice(None)) for i in waiting]
