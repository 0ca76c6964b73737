"""Sweeps on a CUDA GPU: kernels in Triton beside the products of cuBLAS in tensor cores.

`sums_of` and `BlockStep` compute what `LinearClusters.sums_of` and `BlockSweeps` do in plain torch,
for any P: no entry is left out. Importing this module needs Triton; torch is that of the tensors.

Tensor cores multiply numbers of 11 bits. A float32 is a sum of two of them, hi + lo, up to 2^-22:
products of rows with means, and of P with rows, are sums of products of those. All are multiplied
by 2^14, so that float16 has full precision down to 4e-9. P of rows in half precision is not split.
Masses, and means by the largest, are within 3e-5 of those in double precision, those of plain
float32 within 1e-5 (benchmarks/results/scale_gpu/kernels.json).
"""

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

from probagg.aggregation import Array, dual, embed, namespace
from probagg.arrays import chunks

if TYPE_CHECKING:
    from probagg.pac.assignment import Update

UNIT = tl.constexpr(2.0**14)
ON_GPU = tl.constexpr(not triton.knobs.runtime.interpret)
LARGEST_K = 8192  # a row of scores must fit in registers
SCORES = 2**28  # at once: 1 GiB
GROUP = 2048  # rows whose products are added in tensor cores, which truncate their sums
# Rows and columns of a tile, and warps.
ROW_TILE = 8, 128, 4
# Rows of a tile, programs, warps, and stages of loading: of six choices the fastest on an H200.
SCORE_TILE = 1, 660, 8, 3
# Clusters and columns of a tile, rows added at once, and warps.
ABSORB_TILE = 16, 64, 64, 4


@triton.jit
def _log2(x):
    """Return the GPU's own log2, which is right to 2^-22; scores are not known better."""
    if ON_GPU:  # noqa: SIM108
        y = libdevice.fast_log2f(x)
    else:
        y = tl.log2(x)
    return y


@triton.jit
def _powers(S, least, alpha):
    """Return the powers of Eq. 8 of scores and their least, from 2^-60 to 1, not normalised."""
    return tl.exp2(tl.maximum(-alpha * _log2(S * (1.0 / least)), -60.0))


@triton.jit
def _split_clusters(
    sums, center, inverse, side, clusters, columns, K, W, exponent,
    PADDED: tl.constexpr, CENTRED: tl.constexpr, BALANCED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write a mean as float16, (hi, lo, hi) or (lo, hi), and what else gives a cluster's scores."""
    k = tl.program_id(0)
    place = k.to(tl.int64) * W
    mass = tl.load(sums + place + W - 1)
    second = tl.load(sums + place + W - 2)
    inverse_mass = 1.0 / tl.maximum(mass, 1e-300)
    side += k.to(tl.int64) * ((3 if CENTRED else 2) * PADDED)
    beside = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, PADDED, BLOCK):
        d = start + tl.arange(0, BLOCK)
        there = d < W - 2
        mean = tl.load(sums + place + d, there, 0.0) * inverse_mass
        mean = tl.minimum(tl.maximum(mean, -3.0), 3.0)
        unit = mean * UNIT
        hi = unit.to(tl.float32).to(tl.float16)
        lo = (unit - hi.to(tl.float64)).to(tl.float32).to(tl.float16)
        inside = d < PADDED
        if CENTRED:
            tl.store(side + d, hi, inside)
            tl.store(side + PADDED + d, lo, inside)
            tl.store(side + 2 * PADDED + d, hi, inside)
        else:
            tl.store(side + d, lo, inside)
            tl.store(side + PADDED + d, hi, inside)
            beside += mean * (tl.load(center + d, there, 0.0) * inverse).to(tl.float64)
    square = second * inverse_mass + 2.0 * tl.sum(beside, 0)
    floor = tl.maximum(second * 1.1920928955078125e-07, 0.0) + 1.1754943508222875e-38
    factor = mass * 0.0 + 1.0
    if not BALANCED:
        all = tl.arange(0, BLOCK_K)
        masses = tl.load(sums + all.to(tl.int64) * W + W - 1, all < K, 0.0)
        least = tl.sum(masses, 0) * 2.220446049250313e-16 + 2.2250738585072014e-308
        factor = tl.exp2(exponent * tl.log2(tl.maximum(mass, least)))
    tl.store(clusters + k, mass.to(tl.float32))
    tl.store(clusters + columns + k, square.to(tl.float32))
    tl.store(clusters + 2 * columns + k, floor.to(tl.float32))
    tl.store(clusters + 3 * columns + k, factor.to(tl.float32))


@triton.jit(do_not_specialize=["groups"])
def _collect(
    first, rest, partial, center, inverse, total, K, W, groups, padded_K,
    PADDED: tl.constexpr, CENTRED: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the products of all groups, and the sums of w |x|^2 and w, to the sums of a cluster."""
    k = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = d < W - 2
    width = (2 if CENTRED else 1) * PADDED
    found = tl.zeros((BLOCK,), tl.float32)
    for group in range(groups):
        place = (group * padded_K + k) * width + d
        found += tl.load(first + place, there, 0.0)
        if CENTRED:
            found += tl.load(first + place + PADDED, there, 0.0)
        if SPLIT:
            found += tl.load(rest + (group * padded_K + k) * PADDED + d, there, 0.0)
    sums = found.to(tl.float64) / UNIT
    if not CENTRED:
        mass = tl.load(partial + K + k)
        sums -= mass * (tl.load(center + d, there, 0.0) * inverse).to(tl.float64)
    sums = tl.where(d == W - 2, tl.load(partial + k), sums)
    sums = tl.where(d == W - 1, tl.load(partial + K + k), sums)
    place = total + k * W + d
    tl.store(place, tl.load(place, d < W, 0.0) + sums / UNIT, d < W)


@triton.jit(do_not_specialize=["n"])
def _split_rows(
    X, center, inverse, out, squares, n, stride, D,
    PADDED: tl.constexpr, CENTRED: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write rows in units of their scale as float16: (lo, hi, hi) of centred ones, or (x, x)."""
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, PADDED, BLOCK):
        d = start + tl.arange(0, BLOCK)
        there = (rows[:, None] < n) & (d[None, :] < D)
        x = tl.load(X + rows[:, None] * stride + d[None, :], there, 0.0).to(tl.float32)
        c = tl.load(center + d, d < D, 0.0)
        x0 = tl.where(there, (x - c[None, :]) * inverse, 0.0)
        total += tl.sum(x0 * x0, 1)
        inside = d[None, :] < PADDED
        if CENTRED:
            place = out + rows[:, None] * (3 * PADDED) + d[None, :]
            hi = (x0 * UNIT).to(tl.float16)
            tl.store(place, (x0 * UNIT - hi.to(tl.float32)).to(tl.float16), inside)
            tl.store(place + PADDED, hi, inside)
            tl.store(place + 2 * PADDED, hi, inside)
        else:
            place = out + rows[:, None] * (2 * PADDED) + d[None, :]
            hi = (x * (inverse * UNIT)).to(tl.float16)
            tl.store(place, hi, inside)
            tl.store(place + PADDED, hi, inside)
    tl.store(squares + rows, total)


@triton.jit(do_not_specialize=["n", "n_padded"])
def _weigh_scored(
    S, squares, clusters, weights, hi, lo, sums, n, n_padded, K, alpha, m,
    PADDED: tl.constexpr, WEIGHTED: tl.constexpr, P_M: tl.constexpr, SPLIT: tl.constexpr,
    R: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Turn products of rows and means into weights, as float16, and sum weights and w |x|^2.

    `clusters` are rows of mass, mean square, floor and factor of the balance, (4, K).
    """
    k = tl.arange(0, BLOCK)
    there = k < K
    mass = tl.load(clusters + k, there, 0.0)[None, :]
    square = tl.load(clusters + PADDED + k, there, 0.0)[None, :]
    floor = tl.load(clusters + 2 * PADDED + k, there, float("inf"))[None, :]
    factor = tl.load(clusters + 3 * PADDED + k, there, 1.0)[None, :]
    of_mass = tl.zeros((BLOCK,), tl.float32)
    of_squares = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(
        tl.program_id(0) * R, n_padded, tl.num_programs(0) * R, num_stages=STAGES
    ):
        rows = start + tl.arange(0, R)
        place = rows[:, None] * PADDED + k[None, :]
        inside = (k < PADDED)[None, :]
        dot = tl.load(S + place, inside, 0.0)
        xx = tl.load(squares + rows)[:, None]
        score = mass * (xx - (2.0 / UNIT / UNIT) * dot + square)
        score = tl.maximum(score, floor) * factor
        A = _powers(score, tl.min(score, 1)[:, None], alpha)
        scale = 1.0 / tl.sum(A, 1)
        if P_M:
            A, scale = tl.exp2(m * _log2(A)), tl.exp2(m * _log2(scale))
        if WEIGHTED:
            scale *= tl.load(weights + rows, rows < n, 0.0)
        A *= tl.where(rows < n, scale * UNIT, 0.0)[:, None]
        high = A.to(tl.float16)
        tl.store(hi + place, high, inside)
        if SPLIT:
            tl.store(lo + place, (A - high.to(tl.float32)).to(tl.float16), inside)
        else:
            A = high.to(tl.float32)
        of_mass += tl.sum(A, 0)
        of_squares += tl.sum(A * xx, 0)
    place = sums + tl.program_id(0) * 2 * K + k
    tl.store(place, of_squares, there)
    tl.store(place + K, of_mass, there)


@triton.jit
def _assign_block(
    S, sums, P, dA, numbers, weights, measured, K, W, alpha, m, exponent,
    WEIGHTED: tl.constexpr, P_M: tl.constexpr, BALANCED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Replace one row of P by that of its scores; write what changes, by |dP| and by p^2."""
    row = tl.program_id(0).to(tl.int64)
    number = tl.load(numbers + row)
    k = tl.arange(0, BLOCK)
    there = k < K
    second = tl.load(sums + k.to(tl.int64) * W + W - 2, there, 0.0)
    floor = tl.maximum(second * 1.1920928955078125e-07, 0.0).to(tl.float32) + 1.1754943508222875e-38
    score = tl.maximum(tl.load(S + row * K + k, there, 0.0), floor)
    if not BALANCED:
        mass = tl.load(sums + k.to(tl.int64) * W + W - 1, there, 0.0)
        least = tl.sum(mass, 0) * 2.220446049250313e-16 + 2.2250738585072014e-308
        mass = tl.maximum(mass, least).to(tl.float32)
        score *= tl.exp2(exponent * _log2(mass))
    score = tl.where(there, score, float("inf"))
    new = _powers(score, tl.min(score, 0), alpha)
    new /= tl.sum(new, 0)
    old = tl.load(P + number * K + k, there, 0.0)
    tl.store(P + number * K + k, new, there)
    tl.store(measured + 2 * number, tl.sum(tl.abs(new - old), 0))
    tl.store(measured + 2 * number + 1, tl.sum(new * new, 0))
    if P_M:
        new, old = tl.exp2(m * _log2(new)), tl.exp2(m * _log2(old))
    if WEIGHTED:
        w = tl.load(weights + number)
        new, old = new * w, old * w
    tl.store(dA + row * K + k, new - old, there)


@triton.jit(do_not_specialize=["n"])
def _absorb(
    dA, lifted, sums, side, n, K, W,
    R: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Add dA.T @ lifted to the sums of clusters, and write their dual as float32."""
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, n, R):
        rows = start + tl.arange(0, R)
        a = tl.load(
            dA + rows[None, :] * K + k[:, None], (rows < n)[None, :] & (k < K)[:, None], 0.0
        )
        x = tl.load(
            lifted + rows[:, None] * W + d[None, :], (rows < n)[:, None] & (d < W)[None, :], 0.0
        )
        total += tl.dot(a, x, input_precision="ieee")
    there = (k < K)[:, None] & (d < W)[None, :]
    place = k.to(tl.int64)[:, None] * W
    total = tl.load(sums + place + d[None, :], there, 0.0) + total.to(tl.float64)
    tl.store(sums + place + d[None, :], total, there)
    swapped = tl.where(d < W - 2, d, 2 * W - 3 - d)[None, :]
    factor = tl.where(d < W - 2, -2.0, 1.0)[None, :]
    tl.store(side + place + swapped, (total * factor).to(tl.float32), there)


def takes(X: Array, K: int) -> bool:
    """Return whether these kernels compute K clusters of the rows of X."""
    fits = X.dtype.itemsize <= 4 and X.stride(1) == 1 and K <= LARGEST_K
    return fits and namespace(X).__version__ >= (2, 8)  # which has products of float16 in float32


def sums_of(clusters: Any, X: Array, weights: Array | None = None) -> Array:
    """Return the sums of rows X, (K, D + 2) in float64, as these clusters assign them."""
    xp, update, coordinates = namespace(X), clusters.update, clusters.coordinates
    sums, center, scale = clusters.sums, coordinates.center, coordinates.scale
    if coordinates.metric == "cosine":
        X = embed(X, "cosine")
    K, W = sums.shape
    K8, D8 = -(-K // 8) * 8, -(-(W - 2) // 8) * 8
    is_centred = X.dtype.itemsize == 4 or coordinates.offset > 3.0
    terms = 3 if is_centred else 2
    side = xp.zeros((K8, terms * D8), dtype=xp.float16, device=X.device)
    of_clusters = xp.empty((4, K8), device=X.device)
    _split_clusters[(K,)](
        sums, center, 1.0 / scale, side, of_clusters, K8, K, W, update.balance - 1.0,
        PADDED=D8, CENTRED=is_centred, BALANCED=update.balance == 1.0,
        BLOCK=128, BLOCK_K=triton.next_power_of_2(K),
    )  # fmt: skip
    largest = None
    if weights is not None:
        largest = weights.max().clamp(min=1e-30)
        weights = (weights / largest).float().contiguous()
    total = xp.zeros((K, W), dtype=xp.float64, device=X.device)
    for some in chunks(len(X), max(GROUP, SCORES // K8)):
        w = None if weights is None else weights[some]
        _add_part(total, X[some], w, coordinates, of_clusters, side, update)
    return total if largest is None else total * largest


def _add_part(total, X, weights, coordinates, clusters, side, update) -> None:
    xp, (n, D), (K, W), K8 = namespace(X), X.shape, total.shape, len(side)
    D8 = -(-D // 8) * 8
    terms = side.shape[1] // D8
    groups = -(-n // GROUP)
    length = -(-n // (16 * groups)) * 16
    padded, inverse = groups * length, 1.0 / coordinates.scale

    def empty(*shape: int, dtype: Any = xp.float16) -> Array:
        return xp.empty(shape, dtype=dtype, device=X.device)

    rows, squares = empty(padded, terms * D8), empty(padded, dtype=xp.float32)
    R, BLOCK, n_warps = ROW_TILE
    _split_rows[(triton.cdiv(padded, R),)](
        X, coordinates.center, inverse, rows, squares, n, X.stride(0), D,
        PADDED=D8, CENTRED=terms == 3, R=R, BLOCK=BLOCK, num_warps=n_warps,
    )  # fmt: skip
    S = product(rows, side.T)
    is_split = terms == 3
    hi = empty(padded, K8)
    lo = empty(padded, K8) if is_split else hi
    R, n_programs, n_warps, n_stages = SCORE_TILE
    n_programs = min(n_programs, padded // R)
    partial = empty(n_programs, 2, K, dtype=xp.float32)
    _weigh_scored[(n_programs,)](
        S, squares, clusters, squares if weights is None else weights, hi, lo, partial,
        n, padded, K, 1.0 / (update.m - 1.0), update.m,
        PADDED=K8, WEIGHTED=weights is not None, P_M=update.aggregate == "p_m", SPLIT=is_split,
        R=R, BLOCK=triton.next_power_of_2(K8), STAGES=n_stages, num_warps=n_warps,
    )  # fmt: skip
    rows = rows.view(groups, length, terms * D8)
    width = 2 * D8 if terms == 3 else D8
    first = product(hi.view(groups, length, K8).mT, rows[:, :, :width])
    rest = first
    if is_split:
        rest = product(lo.view(groups, length, K8).mT, rows[:, :, -D8:])
    BLOCK = min(1024, triton.next_power_of_2(W))
    _collect[(K, triton.cdiv(W, BLOCK))](
        first, rest, partial.sum(0, dtype=xp.float64), coordinates.center, inverse, total,
        K, W, groups, K8,
        PADDED=D8, CENTRED=terms == 3, SPLIT=is_split, BLOCK=BLOCK,
    )  # fmt: skip


def product(A: Array, B: Array) -> Array:
    """Return the product of matrices, or of groups of them, of float16, in float32."""
    xp = namespace(A)
    multiply = xp.mm if A.ndim == 2 else xp.bmm
    return multiply(A, B, out_dtype=xp.float32) if A.is_cuda else multiply(A.float(), B.float())


class BlockStep:
    """One block of rows of a sweep: scores, probabilities, and the sums that they change.

    On a GPU it is recorded as a CUDA graph, and replayed for all blocks of a size.
    """

    def __init__(
        self,
        lifted: Array,
        weights: Array | None,
        sums: Array,
        P: Array,
        update: "Update",
        block: int,
    ) -> None:
        xp, (K, W), device = namespace(P), sums.shape, P.device
        self._given = (lifted, weights, sums, P, update, block)
        self.lifted, self.sums, self.P, self.update = lifted, sums, P, update
        self.weights = None if weights is None else weights.float()
        self.side = xp.empty((K, W), device=device)
        self.rows, self.S = xp.empty((block, W), device=device), xp.empty((block, K), device=device)
        self.dA = xp.empty_like(self.S)
        self.numbers = xp.empty(block, dtype=xp.int64, device=device)
        self.measured = xp.empty((len(P), 2), device=device)
        self.graph: Any = None

    def is_of(self, *given: Any) -> bool:
        """Return whether this was made of these arguments."""
        tensors = all(a is b for a, b in zip(self._given[:4], given, strict=False))
        return tensors and self._given[4:] == given[4:]

    def sweep(self) -> Array:
        """Update all rows of P, and return the sums of |dP| and of p^2."""
        xp, N, block = namespace(self.P), len(self.P), len(self.numbers)
        self.side.copy_(dual(self.sums))
        xp.arange(block, out=self.numbers)
        n_full = N // block
        for number in range(n_full):
            if self.graph is not None:
                self.graph.replay()
                continue
            self._update(block)  # the first one loads what a capture must not load
            if self.P.is_cuda and number + 1 < n_full:
                self.graph = xp.cuda.CUDAGraph()
                with xp.cuda.graph(self.graph):
                    self._update(block)
        if N % block:
            self._update(N % block)
        return self.measured.sum(0, dtype=xp.float64)

    def _update(self, n: int) -> None:
        """Update the next n rows."""
        xp, update, (K, W) = namespace(self.P), self.update, self.sums.shape
        numbers, rows, S, dA = self.numbers[:n], self.rows[:n], self.S[:n], self.dA[:n]
        xp.index_select(self.lifted, 0, numbers, out=rows)
        xp.mm(rows, self.side.T, out=S)
        is_weighted = self.weights is not None
        _assign_block[(n,)](
            S, self.sums, self.P, dA, numbers, self.weights if is_weighted else S, self.measured,
            K, W, 1.0 / (update.m - 1.0), update.m, update.balance - 1.0,
            WEIGHTED=is_weighted, P_M=update.aggregate == "p_m", BALANCED=update.balance == 1.0,
            BLOCK=triton.next_power_of_2(K),
        )  # fmt: skip
        BLOCK, WIDTH, R, n_warps = ABSORB_TILE
        grid = triton.cdiv(K, BLOCK), triton.cdiv(W, WIDTH)
        _absorb[grid](
            dA, rows, self.sums, self.side, n, K, W,
            R=R, BLOCK=BLOCK, WIDTH=WIDTH, num_warps=n_warps,
        )  # fmt: skip
        self.numbers += n
