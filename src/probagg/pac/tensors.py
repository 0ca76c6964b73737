"""Torch tensors as the data of a sweep, on their own device.

Nothing here imports torch: whoever passes a tensor has.
"""

from collections.abc import Iterator

import numpy as np

from probagg.aggregation import Array, dual, lifted_growth, namespace
from probagg.arrays import chunks, floating
from probagg.errors import InputError
from probagg.pac.coordinates import linear_floor
from probagg.pac.out_of_core import ArrayChunks, RowSample
from probagg.pac.rows import Index, LinearRows

# A sweep of so many panels on a GPU is captured as a CUDA graph.
GRAPHED = 16
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


class TensorRows(LinearRows):
    """Rows of a tensor, lifted once and in the sweep's order."""

    def _lift_all(self) -> None:
        X = self.X
        if self.order is not None:
            self.order = namespace(X).as_tensor(self.order, device=X.device)
        self._lifted = self.coordinates.lift(X if self.order is None else X[self.order])

    def chunks(self) -> Iterator[slice]:
        return chunks(len(self.X), CHUNK)

    def panels(self, size: int) -> Iterator[Index]:
        """Yield panels; from the second on, many on a GPU are one CUDA graph, replayed.

        A panel takes some tens of small kernels, and starting each from Python takes longer than
        running it. What the caller does with the second panel is captured, as that is yielded
        inside `cuda.graph`; replays, for which its numbers move on, do the same with the others.
        """
        first, *rest = chunks(len(self.X), size)
        yield first  # which also loads what a capture must not load
        full = [panel for panel in rest if panel.stop - panel.start == first.stop]
        if self.X.device.type == "cuda" and len(full) >= GRAPHED:
            xp = namespace(self.X)
            numbers = xp.arange(first.stop, 2 * first.stop, device=self.X.device)
            graph = xp.cuda.CUDAGraph()
            with xp.cuda.graph(graph):
                yield numbers
                numbers += first.stop
            for _ in full:
                graph.replay()
            rest = rest[len(full) :]
        yield from rest

    def arrange(self, P: Array) -> Array:
        return (P if self.order is None else P[self.order]).T.contiguous().T

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
