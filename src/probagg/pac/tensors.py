"""Torch tensors as the data of a sweep, on their own device.

Nothing here imports torch: whoever passes a tensor has.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from probagg.aggregation import Array, dual, lifted_growth, namespace
from probagg.arrays import chunks, floating, is_tensor
from probagg.errors import InputError
from probagg.pac.assignment import Update, kernels
from probagg.pac.coordinates import linear_floor
from probagg.pac.out_of_core import ArrayChunks, RowSample
from probagg.pac.rows import Index, LinearRows

# So many rows are scored or added at once.
CHUNK = 2**16


def check_tensor(X: Array) -> Array:
    """Return a tensor of finite float32 or float64 numbers (rows, columns), without gradient."""
    if X.ndim != 2 or 0 in X.shape or X.is_complex():
        raise InputError(
            f"X is a tensor of {X.dtype} and shape {tuple(X.shape)}, but real numbers of shape "
            "(n_samples, n_features) are needed. Flatten images with X.flatten(1)."
        )
    if str(X.layout) != "torch.strided":
        raise InputError(
            f"X is a tensor of layout {X.layout}, but a dense one is needed. Pass X.to_dense(), or "
            "the rows as a SciPy CSR array, which stays sparse."
        )
    X = X.detach()
    if not X.is_floating_point():
        X = X.to(namespace(X).get_default_dtype())
    if not bool(X.amin().isfinite() & X.amax().isfinite()):  # NaN spreads
        raise InputError("X has NaN or infinite values. Fill them in or leave those rows out.")
    return X


@contextmanager
def rough_products(X: Array) -> Iterator[None]:
    """Let products of float32 tensors have 11 bits (TF32) on a GPU: enough for where to start."""
    if not (is_tensor(X) and X.is_cuda):
        yield
        return
    xp = namespace(X)
    before = xp.get_float32_matmul_precision()
    xp.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        xp.set_float32_matmul_precision(before)


class TensorRows(LinearRows):
    """Rows of a tensor, lifted once and in the sweep's order."""

    def _lift_all(self) -> None:
        X = self.X
        self._step: Any = None
        if self.order is not None:
            self.order = namespace(X).as_tensor(self.order, device=X.device)
        self._lifted = self.coordinates.lift(X if self.order is None else X[self.order])

    def chunks(self) -> Iterator[slice]:
        return chunks(len(self.X), CHUNK)

    def sweep(self, P: Array, update: Update, block: int) -> Array:
        """Update P in place and return the sums of changes and squares; None if not on a GPU."""
        if not (P.is_cuda and kernels() and kernels().takes(self._lifted, P.shape[1])):
            return None
        given = (self._lifted, self.sample_weight, self.sums, P, update, block)
        if self._step is None or not self._step.is_of(*given):
            self._step = kernels().BlockStep(*given)
        return self._step.sweep()

    def arrange(self, P: Array) -> Array:
        P = P if self.order is None else P[self.order]
        return P.contiguous() if P.is_cuda else P.T.contiguous().T

    def restore(self, P: Array) -> Array:
        if self.order is None:
            return P.contiguous()
        restored = namespace(P).empty(P.shape, dtype=P.dtype, device=P.device)
        restored[self.order] = P
        return restored

    def start(self, A: Array) -> None:
        xp, shape = namespace(A), (len(A), self._lifted.shape[1])
        self.sums = xp.zeros(shape, dtype=xp.float64, device=A.device) + self.fixed
        for rows in self.chunks():
            self.absorb(rows, A[:, rows])

    def distances(self, rows: Index) -> Array:
        lifted = self.lifted(rows)
        return (lifted @ dual(lifted).T).clip(0.0).fill_diagonal_(0.0)

    @property
    def floor(self) -> Array:
        return linear_floor(self.sums, self._lifted.dtype)

    def growth(self) -> float:
        w = 1.0 if self.sample_weight is None else self.sample_weight
        return lifted_growth(lambda: [(self._lifted, w)])


class TensorChunks(ArrayChunks):
    """A tensor too large for P."""

    def sample(self, indices: np.ndarray) -> RowSample:
        X, w, xp = self.X, self.weights, namespace(self.X)
        rows = xp.as_tensor(indices, device=X.device)
        slices = list(chunks(len(X), CHUNK))
        low = xp.stack([X[some].amin(0) for some in slices])
        high = xp.stack([X[some].amax(0) for some in slices])
        return RowSample(
            X=floating(X[rows]),
            weights=None if w is None else w[rows],
            bounds=(low.amin(0), high.amax(0)),
            total_weight=len(X) if w is None else float(w.sum()),
        )
