"""Feature matrices from .npy, .npz, .csv (.tsv, .txt) and .parquet files, arrays, DataFrames."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probagg.errors import NoData, import_optional

SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".txt", ".parquet")
KEPT_MAPPED = 2**28  # bytes of a memory map from which its numbers are not converted in memory
_UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)  # of np.load


@dataclass(frozen=True)
class Matrix:
    """Rows to cluster; classes are used for reporting only."""

    name: str
    X: np.ndarray  # (rows, columns), float32 or float64, or a map; sparse rows stay a CSR array
    y: np.ndarray | None = None
    columns: list[str] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 where they are unknown."""
        return 0 if self.y is None else len(np.unique(self.y))


def is_matrix(path: Path) -> bool:
    """Return whether a file is a matrix: by its suffix, and for NumPy's files by the shape."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES or not path.is_file():
        return False
    return suffix not in (".npy", ".npz") or read_numpy(path)[0].ndim == 2


def read_matrix(path: Path) -> Matrix:
    """Return the matrix in a file of finite numbers."""
    suffix = path.suffix.lower()
    columns, y = None, None
    if suffix in (".npy", ".npz"):
        X, y = read_numpy(path)
    elif suffix == ".parquet":
        X, columns = _read_parquet(path)
    elif suffix in SUFFIXES:
        X, columns = _read_text(path)
    else:
        raise NoData(f"{path} is not a matrix: a file ending in {', '.join(SUFFIXES)} is needed.")
    return Matrix(path.stem, _checked(X, str(path)), y, columns)


def matrix_of(rows: Any) -> Matrix:
    """Return the matrix in a NumPy array, a SciPy sparse array, or a pandas or polars DataFrame.

    >>> matrix_of(np.arange(6).reshape(3, 2)).X.dtype
    dtype('float32')
    """
    if hasattr(rows, "columns"):
        pairs = rows.items() if hasattr(rows, "items") else zip(rows.columns, rows, strict=True)
        X, names = _join_columns("The DataFrame", ((name, c.to_numpy()) for name, c in pairs))
        columns = names if all(isinstance(name, str) for name in names) else None
        return Matrix("rows", _checked(X, "The DataFrame"), columns=columns)
    if hasattr(rows, "tocsr"):
        return Matrix("rows", _checked(rows.tocsr(), "The sparse array"))
    return Matrix("rows", _checked(np.asarray(rows), "The array"))


def _checked(X: Any, where: str) -> Any:
    """Return X as float32 or float64, or raise an error where it is not a matrix of numbers."""
    if X.ndim != 2 or 0 in X.shape or not np.issubdtype(X.dtype, np.number):
        raise NoData(
            f"{where} holds {X.dtype} of shape {X.shape}, but numbers of shape (rows, columns) are "
            "needed."
        )
    if np.iscomplexobj(X):
        raise NoData(f"{where} holds complex numbers, but real ones are needed.")
    mapped = isinstance(X, np.memmap) and X.nbytes >= KEPT_MAPPED
    X = X if mapped or X.dtype in (np.float32, np.float64) else X.astype(np.float32)
    if hasattr(X, "indptr"):
        row_of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        bad = np.unique(row_of[~np.isfinite(X.data)])
    else:
        parts = (slice(start, start + 2**16) for start in range(0, len(X), 2**16))
        bad = np.flatnonzero(~np.concatenate([np.isfinite(X[rows]).all(axis=1) for rows in parts]))
    if len(bad):
        raise NoData(
            f"{where} has {len(bad)} rows with missing or infinite values, the first is row "
            f"{bad[0]} (counted from 0). Fill them in or leave those rows out."
        )
    return X


def read_numpy(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the array of a .npy file (mapped from disk) or X of a .npz file, and y, if any."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found, None
        with found as arrays:
            return _samples_and_classes(path, arrays)
    except NoData:
        raise
    except _UNREADABLE as error:
        raise NoData(
            f"{path} cannot be read as a NumPy file ({error}). Write it again with np.savez or "
            "np.save."
        ) from error


def _samples_and_classes(
    path: Path, arrays: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the array X, or the only one beside y whatever its name, and y, if any."""
    others = [name for name in arrays if name != "y"]
    if "X" not in others and len(others) != 1:
        raise NoData(
            f"{path} has no array X; its arrays are: {', '.join(arrays) or 'none'}. Save it with "
            "np.savez(path, X=X), and y=y if classes are known."
        )
    return arrays["X" if "X" in others else others[0]], arrays.get("y")


def _read_text(path: Path) -> tuple[np.ndarray, list[str] | None]:
    """Read numbers between commas, semicolons, tabs or spaces; a header line names the columns."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            line = file.readline()
    except (OSError, UnicodeDecodeError) as error:
        raise NoData(f"{path} cannot be read as text ({error}).") from error
    delimiter = next((d for d in ",;\t" if d in line), None)
    names = next(csv.reader([line.strip()], delimiter=delimiter or " "), [])
    header = not all(_is_number(name) for name in names if name)
    try:
        X = np.loadtxt(
            path, delimiter=delimiter, skiprows=int(header), ndmin=2, quotechar='"',
            encoding="utf-8-sig",
        )  # fmt: skip
    except ValueError as error:
        hint = "Every column must be a number in every row; leave out or encode the others."
        raise NoData(f"{path} is not a table of numbers ({error}). {hint}") from error
    return X, names if header else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> tuple[np.ndarray, list[Any]]:
    pyarrow = import_optional("pyarrow", f"Reading {path}", "table")
    parquet = import_optional("pyarrow.parquet", f"Reading {path}", "table")
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise NoData(f"{path} cannot be read as parquet ({error}).") from error
    columns = zip(table.column_names, (column.to_numpy() for column in table.columns), strict=True)
    return _join_columns(str(path), columns)


def _join_columns(
    where: str, columns: Iterable[tuple[Any, np.ndarray]]
) -> tuple[np.ndarray, list[Any]]:
    """Return columns of numbers as one float64 matrix, and their names."""
    found = list(columns)
    others = [str(name) for name, column in found if column.dtype.kind not in "fiu"]
    if others:
        raise NoData(
            f"{where} has columns that are not numbers: {', '.join(others)}. Leave them out or "
            "encode them."
        )
    X = [np.asarray(column, np.float64) for _, column in found]
    return np.column_stack(X) if X else np.empty((0, 0)), [name for name, _ in found]
