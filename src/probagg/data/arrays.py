"""Feature matrices: arrays, sparse arrays, tensors, AnnData, and .npy, .npz and .h5ad files.

SciPy's sparse .npz files stay sparse, as CSR.
"""

import math
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from probagg.arrays import check_stored, chunks
from probagg.environment import check_memory
from probagg.errors import NoData, import_optional, reading
from probagg.storage import map_array, open_regular, read_array_header

# What scanpy.pp.pca leaves in obsm of AnnData.
COORDINATES = "X_pca"
KEPT_MAPPED = 2**28  # bytes of a memory map from which its numbers are not converted in memory


@dataclass(frozen=True)
class Matrix:
    """Rows to cluster; classes are used for reporting only."""

    kind: ClassVar = "matrix"
    class_names: ClassVar = None

    name: str
    X: np.ndarray  # (rows, columns), float32 or float64, or a map; sparse rows stay a CSR array
    y: np.ndarray | None = None
    columns: list[str] | None = None
    names: list[str] | None = None  # the names of the rows, where they have any

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 where they are unknown."""
        return 0 if self.y is None else len(np.unique(self.y))


def matrix_of(rows: Any) -> Matrix:
    """Return the matrix in a NumPy array, a SciPy sparse array or a tensor of any precision.

    >>> matrix_of(np.arange(6).reshape(3, 2)).X.dtype
    dtype('float32')
    """
    check_stored(rows)
    if hasattr(rows, "tocsr"):
        return Matrix("rows", checked_rows(rows.tocsr(), "The sparse array"))
    array = numpy_of_tensor(rows) if hasattr(rows, "detach") else np.asarray(rows)
    return Matrix("rows", checked_rows(array, "The array"))


def numpy_of_tensor(tensor: Any) -> np.ndarray:
    """Return a torch tensor as an array; precisions that NumPy does not know become float32."""
    tensor = tensor.detach().cpu()
    is_short = tensor.is_floating_point() and tensor.element_size() < 4
    return (tensor.float() if is_short else tensor).numpy()


def checked_rows(X: Any, where: str) -> Any:
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
        check_memory(
            8.0 * sum(X.shape), f"{where}, of shape {X.shape},", "Leave out empty columns."
        )
        row_of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        bad = np.unique(row_of[~np.isfinite(X.data)])
    else:
        finite = [np.isfinite(X[rows]).all(axis=1) for rows in chunks(len(X), 2**16)]
        bad = np.flatnonzero(~np.concatenate(finite))
    if len(bad):
        raise NoData(
            f"{where} has {len(bad)} rows with missing or infinite values, the first is row "
            f"{bad[0]} (counted from 0). Fill them in or leave those rows out."
        )
    return X


def read_numpy(path: Path) -> tuple[Any, np.ndarray | None]:
    """Return the array of a .npy file (mapped from disk) or X of a .npz file, and y, if any.

    The rows of SciPy's sparse .npz file are a CSR array.
    """
    remedy = "Write it again with np.savez or np.save."
    with reading(path, remedy, NoData, "a NumPy file"):
        with open_regular(path) as file:
            is_archive = file.read(2) == b"PK"
        if not is_archive:
            return map_array(path), None
        arrays = read_npz(path)
        if "format" in arrays and "shape" in arrays:
            import scipy.sparse as sp

            with open_regular(path) as file:
                found = sp.load_npz(file)
            check_stored(found)
            return sp.csr_array(found), None
        return _samples_and_classes(path, arrays)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz file, which must fit into memory and be as long as they state."""
    arrays = {}
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        entries = [e for e in archive.infolist() if e.filename.endswith(".npy")]
        check_memory(
            1.5 * sum(entry.file_size for entry in entries),
            f"{path}, unpacked,",
            "Save the array as .npy, which is read in parts, or save fewer rows.",
        )
        for entry in entries:
            with archive.open(entry) as part:
                arrays[entry.filename.removesuffix(".npy")] = _read_array(part, entry.file_size)
    return arrays


def _read_array(file: IO[bytes], size: int) -> np.ndarray:
    """Return an array in NumPy's format, `size` bytes with its header."""
    shape, _, dtype = read_array_header(file)
    count = math.prod(shape)
    if not dtype.hasobject and count * dtype.itemsize > size:  # before NumPy takes that much memory
        raise ValueError(f"{dtype} of shape {shape} is stated, but there are {size} bytes")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


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


def is_annotated(source: Any) -> bool:
    """Return whether a source is an AnnData object."""
    return all(hasattr(source, name) for name in ("X", "obs_names", "var_names", "obsm"))


def read_annotated(path: Path) -> Matrix:
    """Return the rows of an .h5ad file."""
    anndata = import_optional("anndata", f"Reading {path}", "anndata")
    with reading(path, "Write the file again.", NoData, "an AnnData file"), open_regular(path):
        return matrix_of_annotated(anndata.read_h5ad(path), str(path))


def matrix_of_annotated(data: Any, where: str = "The AnnData object") -> Matrix:
    """Return the principal components of the observations if there are any, otherwise X."""
    names = [str(name) for name in data.obs_names]
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise NoData(
            f"{where} has {times} observations named {name!r}. Name each differently: "
            "adata.obs_names_make_unique()."
        )
    if COORDINATES in data.obsm:
        found = matrix_of(data.obsm[COORDINATES])
        columns = [f"PC{j + 1}" for j in range(found.X.shape[1])]
    elif data.X is None:
        raise NoData(f"{where} has neither X nor obsm[{COORDINATES!r}]. Set one of them.")
    else:
        found, columns = matrix_of(data.X), [str(name) for name in data.var_names]
    return replace(found, columns=columns, names=names)
