"""A feature matrix from a file: .npy, .npz, .csv (or .tsv, .txt) and .parquet."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from probagg.errors import NoData

SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".txt", ".parquet")
UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)  # what np.load raises


@dataclass(frozen=True)
class Matrix:
    """Rows to cluster; classes, where the file has them, are only reported against."""

    name: str
    X: np.ndarray  # (rows, columns), float32 or float64
    y: np.ndarray | None = None
    columns: list[str] | None = None


def is_matrix(path: Path) -> bool:
    """Whether a file holds a matrix: by its suffix, and for NumPy's files by the shape inside."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES or not path.is_file():
        return False
    if suffix not in (".npy", ".npz"):
        return True
    return _numpy(path)[0].ndim == 2


def read_matrix(path: Path) -> Matrix:
    """The matrix in a file; numbers only, nothing missing."""
    suffix = path.suffix.lower()
    columns, y = None, None
    if suffix in (".npy", ".npz"):
        X, y = _numpy(path)
    elif suffix == ".parquet":
        X, columns = _parquet(path)
    elif suffix in SUFFIXES:
        X, columns = _text(path)
    else:
        raise NoData(f"{path} is no matrix: a file ending in {', '.join(SUFFIXES)} is needed.")
    if X.ndim != 2 or not X.size or not np.issubdtype(X.dtype, np.number):
        raise NoData(
            f"{path} holds {X.dtype} of shape {X.shape}, but numbers of shape (rows, columns) are "
            "needed."
        )
    if np.iscomplexobj(X):
        raise NoData(f"{path} holds complex numbers, but real ones are needed.")
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise NoData(
            f"{path} has {len(bad)} rows with missing or infinite values, the first is row "
            f"{bad[0]} (counted from 0). Fill them or leave those rows out."
        )
    return Matrix(path.stem, X, y, columns)


def _numpy(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        found = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found, None
        with found as arrays:
            return samples_and_classes(path, arrays)
    except NoData:
        raise
    except UNREADABLE as error:
        raise NoData(f"{path} cannot be read as a NumPy file ({error}).") from error


def samples_and_classes(
    path: Path, arrays: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray | None]:
    """The array X of a .npz file, or the only one beside y whatever its name; and y, if any."""
    others = [name for name in arrays if name != "y"]
    if "X" not in others and len(others) != 1:
        raise NoData(
            f"{path} has no array X; its arrays are: {', '.join(arrays) or 'none'}. Save it with "
            "np.savez(path, X=X), and y=y if classes are known."
        )
    return arrays["X" if "X" in others else others[0]], arrays.get("y")


def _text(path: Path) -> tuple[np.ndarray, list[str] | None]:
    """Numbers between commas, semicolons, tabs or spaces; a first line of words names columns."""
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
        raise NoData(f"{path} is no table of numbers ({error}). {hint}") from error
    return X, names if header else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(path: Path) -> tuple[np.ndarray, list[str]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise NoData(f"{path} needs pyarrow to be read: pip install pyarrow") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise NoData(f"{path} cannot be read as parquet ({error}).") from error
    types = pyarrow.types
    others = [
        field.name
        for field in table.schema
        if not (types.is_floating(field.type) or types.is_integer(field.type))
    ]
    if others:
        raise NoData(
            f"{path} has columns that are no numbers: {', '.join(others)}. Leave them out or "
            "encode them."
        )
    columns = [np.asarray(column.to_numpy(), dtype=np.float64) for column in table.columns]
    return np.column_stack(columns) if columns else np.empty((0, 0)), table.column_names
