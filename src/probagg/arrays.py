"""Arrays, whichever library holds them, and slices of their rows.

Nothing here imports torch: whoever passes a tensor has.
"""

import io
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from probagg.errors import InputError

# The label of a row whose cluster or class is not known.
UNKNOWN = -1


def is_tensor(X: Any) -> bool:
    """Return whether X is a torch tensor."""
    return type(X).__module__.partition(".")[0] == "torch"


def to_numpy(X: Any) -> Any:
    """Return a tensor as a NumPy array, half precision in single; return anything else as it is."""
    return floating(X.detach()).cpu().numpy() if is_tensor(X) else X


def like(array: Any, X: Any) -> Any:
    """Return an array or a tensor as the kind of array that X is, on its device."""
    if is_tensor(X):
        return sys.modules["torch"].as_tensor(array, device=X.device)
    return to_numpy(array)


def floating(X: Any) -> Any:
    """Return a tensor in single precision where it has half of that, which NumPy may not know."""
    return X if X.dtype.itemsize >= 4 else X.float()


def numpy_dtype(X: Any) -> Any:
    """Return the type of the numbers that rows X are computed with, as NumPy's."""
    if is_tensor(X):
        return np.float64 if X.dtype.itemsize == 8 else np.float32
    return X.dtype


def chunks(n_rows: int, size: int) -> Iterator[slice]:
    """Return slices of at most `size` that cover `n_rows`.

    >>> list(chunks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Return rows of length 1; a zero row stays zero.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    tiny = 1e-300 if X.dtype == np.float64 else 1e-30
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), tiny)


def npy_bytes(array: np.ndarray) -> bytes:
    """Return an array as the content of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz_bytes(**arrays: Any) -> bytes:
    """Return arrays as the content of a .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


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


def check_stored(X: Any) -> None:
    """Raise an error for masked values, and for a sparse array whose indices lie outside of it.

    NumPy uses what a mask hides, and SciPy reads and writes other memory.
    """
    if np.ma.is_masked(X):
        raise InputError(
            f"X is an array with {np.ma.count_masked(X):,} masked values. Fill them in (X.filled), "
            "or leave out their rows or columns."
        )
    try:
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)
        for places, n in zip(*(getattr(X, name, ()) for name in ("coords", "shape")), strict=False):
            if len(places) and not 0 <= places.min() <= places.max() < n:
                raise ValueError(f"an index is not among 0 to {n - 1}")
    except ValueError as error:
        raise InputError(f"The sparse X is damaged ({error}). Build it again.") from error
