"""Torch tensors as the data of a sweep, on their own device.

Nothing here imports torch: whoever passes a tensor has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from probagg.aggregation import Array, dual, lifted_growth, namespace
from probagg.errors import InputError
from probagg.pac.coordinates import Frame, chunks, floating, linear_floor
from probagg.pac.out_of_core import ArrayChunks, Survey
from probagg.pac.rows import LinearRows, each_in_turn

GRAPHED = 16  # panels from which a sweep on a GPU is captured as a CUDA graph
CHUNK = 2**16  # rows that are scored or added at once
SCORES = 2**27  # numbers of a chunk of a large tensor: 512 MiB


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

    def __init__(
        self, X: Array, weights: Array | None, order: np.ndarray | None, frame: Frame
    ) -> None:
        xp = self.xp = namespace(X)
        if order is not None:
            order = xp.as_tensor(order, device=X.device)
        self.X, self.frame, self.order, self.unit = X, frame, order, frame.scale**2
        self.sample_weight = weights if weights is None or order is None else weights[order]
        self._file_weight = weights
        self._lifted = frame(X if order is None else X[order])
        self._last = None

    def each(self, step: Callable[[Any], None], parts: Iterable[slice]) -> None:
        """Call `step` with each slice; many on a GPU are one CUDA graph, replayed.

        A step launches some tens of small kernels, and starting each from Python takes longer than
        running it.
        """
        first, *rest = parts
        full = [part for part in rest if part.stop - part.start == first.stop - first.start]
        step(first)  # which also loads what a capture must not load
        if self.X.device.type != "cuda" or len(full) < GRAPHED:
            return each_in_turn(step, rest)
        cuda = self.xp.cuda
        places = self.xp.arange(first.stop, 2 * first.stop, device=self.X.device)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            step(places)
            places += first.stop
        for _ in full:
            graph.replay()
        return each_in_turn(step, rest[len(full) :])

    def parts(self) -> Iterator[slice]:
        return chunks(len(self.X), CHUNK)

    def arrange(self, P: Array) -> Array:
        return (P if self.order is None else P[self.order]).T.contiguous().T

    def restore(self, P: Array) -> Array:
        if self.order is None:
            return P.contiguous()
        restored = self.xp.empty(P.shape, dtype=P.dtype, device=P.device)
        restored[self.order] = P
        return restored

    def start(self, A: Array) -> None:
        shape = len(A), self._lifted.shape[1]
        self.sums = self.xp.zeros(shape, dtype=self.xp.float64, device=A.device)
        for rows in self.parts():
            self.absorb(rows, A[:, rows])

    def distances(self, rows: Any) -> Array:
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

    def __init__(self, X: Array, weights: Array | None, K: int) -> None:
        super().__init__(X, weights)
        self._chunk = max(1, SCORES // (K + X.shape[1]))

    def survey(self, places: np.ndarray) -> Survey:
        rows = namespace(self.X).as_tensor(places, device=self.X.device)
        bounds = list(zip(*((part.amin(0), part.amax(0)) for part in self._parts()), strict=True))
        low, high = (namespace(self.X).stack(found) for found in bounds)
        w = self.weights
        return Survey(
            X=floating(self.X[rows]),
            weights=None if w is None else w[rows],
            bounds=(low.amin(0), high.amax(0)),
            n_rows=len(self.X) if w is None else float(w.sum()),
        )

    def _parts(self) -> Iterator[Array]:
        return (self.X[rows] for rows in chunks(len(self.X), self._chunk))
