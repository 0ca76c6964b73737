"""Arrays and files whose rows a device computes: copied there once, or block by block in sweeps."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from probagg.aggregation import Array, namespace
from probagg.arrays import chunks, like
from probagg.errors import import_optional
from probagg.pac.files import FileChunks, FileRows, MappedRows
from probagg.pac.out_of_core import Block, RowSample, finite_bounds
from probagg.threads import read_ahead

# Rows are copied in pieces of about this size. So many threads read those of an array or a memory
# map; those of other files are read by one, which keeps a row group for all of its strides.
PIECE_BYTES = 2**26
READERS = 4
# Rows stay on the device where they take at most this share of its free memory.
SHARE = 0.4


class DeviceRows(FileRows):
    """The rows of an array or a file, which a device computes; results are NumPy arrays."""

    def __init__(self, X: np.ndarray | FileRows, device: str) -> None:
        import_optional("torch", f"PAC(device={device!r})", "deep")
        from probagg.devices import Copies, choose_device

        self.in_memory = isinstance(X, np.ndarray)
        rows = MappedRows(X) if isinstance(X, np.ndarray) else X
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype
        self.columns, self.starts = rows.columns, rows.starts
        self.nbytes = self.shape[0] * self.shape[1] * self.dtype.itemsize
        self.copies = Copies(choose_device(device))
        self.example = self.copies.empty((0,), self.dtype)
        self._loaded: Array = None

    def read(self, chunk: int) -> np.ndarray:
        return self.rows.read(chunk)

    @property
    def fits(self) -> bool:
        """Whether all rows can stay on the device."""
        return self.nbytes <= SHARE * self.copies.free_bytes

    def load(self) -> Array:
        """Return all rows, which must be finite, as a tensor that stays on the device."""
        X = self.copies.empty(self.shape, self.dtype)
        for some, rows in self.in_order():
            X[some] = rows
        self._loaded = X
        return X

    def map(
        self, function: Callable[[Any], Any], *, width: int | None, dtype: DTypeLike
    ) -> np.ndarray:
        n = self.shape[0]
        found = np.empty(n if width is None else (n, width), dtype)
        for some, rows in self.in_order():
            found[some] = function(rows).cpu()
        return found

    def in_order(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of all rows and these rows on the device; they must be finite."""
        if self._loaded is not None:
            n = max(1, PIECE_BYTES * self.shape[0] // self.nbytes)
            yield from ((some, self._loaded[some]) for some in chunks(self.shape[0], n))
            return
        start, block = 0, [(chunk, slice(None)) for chunk in self.filled]
        for rows, _ in self.copied(self.divided(block)):
            if not bool((rows.amin() + rows.amax()).isfinite()):
                finite_bounds(rows.cpu().numpy())
            yield slice(start, start + len(rows)), rows
            start += len(rows)

    def divided(self, block: Block) -> Sequence[Block]:
        """Return a block in pieces of about the size that is copied at once."""
        pieces: list[list[tuple[int, slice]]] = []
        size, row_bytes, lengths = PIECE_BYTES, self.nbytes // self.shape[0], np.diff(self.starts)
        for chunk, rows in block:
            if size >= PIECE_BYTES:
                pieces.append([])
                size = 0
            pieces[-1].append((chunk, rows))
            size += row_bytes * len(range(*rows.indices(int(lengths[chunk]))))
        return pieces

    def copied(
        self, pieces: Sequence[Block], weights: np.ndarray | None = None
    ) -> Iterator[tuple[Array, Array | None]]:
        """Yield rows and weights of pieces, on the device; threads read and copy the next ones."""
        is_mapped = isinstance(self.rows, MappedRows)
        read = self.rows.read if is_mapped else self.rows.read_again

        def send(piece: Block) -> tuple[Any, Any]:
            X = self.copies.send([read(chunk)[rows] for chunk, rows in piece])
            if weights is None:
                return X, None
            starts = self.starts
            w = [weights[starts[chunk] : starts[chunk + 1]][rows] for chunk, rows in piece]
            return X, self.copies.send(w)

        for X, w in read_ahead(send, pieces, READERS if is_mapped else 1):
            yield self.copies.receive(X), None if w is None else self.copies.receive(w)


class DeviceChunks(FileChunks):
    """Rows that do not fit on the device: each block of a sweep is copied there."""

    rows: DeviceRows

    def sample(self, indices: np.ndarray) -> RowSample:
        found, low, high = [], [], []
        for some, rows in self.rows.in_order():
            first, end = np.searchsorted(indices, [some.start, some.stop])
            found.append(rows[like(indices[first:end] - some.start, rows)])
            low.append(rows.amin(0))
            high.append(rows.amax(0))
        xp, w = namespace(self.rows.example), self.weights
        return RowSample(
            X=xp.cat(found),
            weights=None if w is None else like(w[indices], self.rows.example),
            bounds=(xp.stack(low).amin(0), xp.stack(high).amax(0)),
            total_weight=self.shape[0] if w is None else float(w.sum()),
        )

    def read_blocks(
        self, round: int, size: int
    ) -> Iterator[tuple[float, Iterator[tuple[slice, Array, Array | None]]]]:
        blocks = [(share, self.rows.divided(block)) for share, block in self.blocks(round, size)]
        every = [piece for _, pieces in blocks for piece in pieces]
        copied = self.rows.copied(every, self.weights)
        for share, pieces in blocks:
            yield share, ((slice(None), *next(copied)) for _ in pieces)
