"""Scores that aggregate probabilities and distances, shared by PAC, OPA and DPAC.

    s_ik = sum_j p_jk |x_i - x_j|^2                                             (Eqs. 8 and 9)

looks quadratic in the number of samples, but squared distance is bilinear in *lifted* rows:

    lift(x) = (x, |x|^2, 1)     dual(M, q, n) = (-2 M, n, q)     |x - y|^2 = lift(x) . dual(lift(y))

so the sum over j moves inside, onto K vectors of D + 2 numbers: the *moments* sum_j p_jk lift(x_j).
A sweep of PAC and a step of OPA are then two matrix products. Cosine distance is the same on rows
of length sqrt(1/2), where 1 - cos(x, y) = |x - y|^2.

Everything here takes NumPy arrays or torch tensors, on any device, and imports only NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from probagg.errors import InputError

Array = Any  # a NumPy array or a torch tensor; lifted rows may also be a SciPy CSR array

LINEAR_METRICS = ("sqeuclidean", "cosine")
TAIL = 1e-6  # the most of a row's mass that `assign_nearest` leaves out
MANY_ENTRIES = 16  # per row; of more, the smallest are sought


def namespace(array: Array) -> Any:
    """Return the module with this array's functions; if it is a tensor, torch is imported."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def _like(P: Any, X: Array) -> Array:
    """Return P as the same kind of array as X, in its precision."""
    return np.asarray(P, dtype=X.dtype) if isinstance(X, np.ndarray) else P.to(X.dtype)


def _floats(X: Any) -> Array:
    """Return X as an array or tensor of floats; lists and data frames become arrays."""
    if type(X).__module__.startswith("torch"):
        return X if X.is_floating_point() and X.dtype.itemsize >= 4 else X.float()
    X = np.asarray(X)
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


class Moments:
    """Per-cluster sums, all that PAC keeps of the data. Moments of parts of the data add up.

    >>> X, P = np.array([[0.0], [1.0], [4.0]]), np.array([[1, 0], [1, 0], [0, 1]])
    >>> moments = Moments.of(X, P)
    >>> moments.mass, moments.first[:, 0], moments.second
    (array([2., 1.]), array([1., 4.]), array([ 1., 16.]))
    """

    __slots__ = ("sums",)

    def __init__(self, mass: Array, first: Array, second: Array) -> None:
        columns = [first, second[:, None], mass[:, None]]
        self.sums = namespace(first).concatenate(columns, 1)

    @classmethod
    def of_sums(cls, sums: Array) -> Moments:
        """Return moments that share memory with `sums`, the (K, D + 2) sums of lifted rows."""
        moments = cls.__new__(cls)
        moments.sums = sums
        return moments

    @classmethod
    def of(cls, X: Array, P: Array, metric: str = "sqeuclidean") -> Moments:
        """Return the moments of rows X (N, D) with weights P (N, K)."""
        rows = lift(embed(X, metric))
        return cls.of_sums(_like(P, rows).T @ rows)

    @property
    def mass(self) -> Array:
        """(K,) sum_j p_jk."""
        return self.sums[:, -1]

    @property
    def first(self) -> Array:
        """(K, D) sum_j p_jk x_j."""
        return self.sums[:, :-2]

    @property
    def second(self) -> Array:
        """(K,) sum_j p_jk |x_j|^2."""
        return self.sums[:, -2]

    def __add__(self, other: Moments) -> Moments:
        return Moments.of_sums(self.sums + other.sums)

    def __sub__(self, other: Moments) -> Moments:
        return Moments.of_sums(self.sums - other.sums)

    def __repr__(self) -> str:
        K, D = self.first.shape
        return f"Moments(n_clusters={K}, n_features={D}, mass={self.mass})"


def check_metric(metric: str) -> None:
    """Raise an error unless distances by `metric` have the linear form."""
    if metric not in LINEAR_METRICS:
        known = " or ".join(map(repr, LINEAR_METRICS))
        raise InputError(f"metric={metric!r} has no linear form. Use {known}.")


def check_m(m: float) -> None:
    """Raise an error unless m is a number above 1."""
    if isinstance(m, str) or not m > 1.0:
        raise InputError(f"m is {m!r}, but a number above 1 is needed; the paper uses 1.03.")


def check_balance(balance: float) -> None:
    """Raise an error unless balance is a number from 0 to 2."""
    if isinstance(balance, str) or not 0.0 <= balance <= 2.0:
        raise InputError(
            f"balance is {balance!r}, but a number from 0 to 2 is needed; the paper's is 1."
        )


def embed(X: Array, metric: str = "sqeuclidean") -> Array:
    """Return rows whose squared Euclidean distance is `metric`; for cosine, of length sqrt(1/2).

    A zero row has no direction. It stays at the origin, at distance 1/2 from all others.
    """
    check_metric(metric)
    X = _floats(X)
    if metric == "sqeuclidean":
        return X
    xp = namespace(X)
    largest = xp.amax(xp.abs(X), 1)[:, None]
    X = X / xp.where(largest > 0.0, largest, xp.ones_like(largest))  # so that no square overflows
    squares = 2.0 * (X * X).sum(1)[:, None]
    return X / xp.where(squares > 0.0, squares, xp.ones_like(squares)) ** 0.5


def lift(X: Array) -> Array:
    """Return rows (x, |x|^2, 1), in which squared distance is bilinear."""
    squares = (X * X).sum(1)[:, None]
    xp = namespace(X)
    return xp.concatenate([X, squares, xp.ones_like(squares)], 1)


def dual(sums: Array) -> Array:
    """Return the other side of the bilinear form: (M, q, n) -> (-2 M, n, q)."""
    return namespace(sums).concatenate([-2.0 * sums[:, :-2], sums[:, -1:], sums[:, -2:-1]], 1)


def aggregate(
    X: Array, moments: Moments, metric: str = "sqeuclidean", balance: float = 1.0
) -> Array:
    """Return the scores s_ik = n_k^(balance - 1) sum_j p_jk d_ij of rows X, (N, K) (Eqs. 8, 9).

    The term j = i of Eq. 8 is zero, so training rows and new rows are scored alike. `balance=1` is
    the paper's score, which prefers clusters of equal size.

    >>> X, P = np.array([[0.0], [1.0], [4.0]]), np.array([[1, 0], [1, 0], [0, 1]])
    >>> aggregate(X, Moments.of(X, P))
    array([[ 1., 16.],
           [ 1.,  9.],
           [25.,  0.]])
    """
    rows, side = _promoted(lift(embed(X, metric)), dual(moments.sums).T)
    return (rows @ side).clip(0.0) * mass_factor(moments.mass, balance)


def _promoted(a: Array, b: Array) -> tuple[Array, Array]:
    """Return tensors in the higher precision of the two; NumPy promotes by itself."""
    if isinstance(a, np.ndarray):
        return a, b
    dtype = namespace(a).promote_types(a.dtype, b.dtype)
    return a.to(dtype), b.to(dtype)


def mass_factor(mass: Array, balance: float) -> Array:
    """Return n_k^(balance - 1), with masses of at least the rounding error of their sum."""
    xp, info = namespace(mass), namespace(mass).finfo(mass.dtype)
    floor = mass.sum() * float(info.eps) + float(info.tiny)
    return xp.maximum(mass, floor) ** (balance - 1.0)


def assign(S: Array, m: float) -> Array:
    """Return soft assignments from scores: p_ik = s_ik^-alpha / sum_r s_ir^-alpha (Eq. 8).

    alpha = 1 / (m - 1) is 33 at the paper's m, so plain powers overflow; each score is divided by
    the smallest of its row first. Scores are raised to the rounding error of the row's largest, so
    clusters that all score zero share the row equally.

    >>> assign(np.array([[1.0, 2.0]]), m=2.0)
    array([[0.66666667, 0.33333333]])
    """
    xp, info = namespace(S), namespace(S).finfo(S.dtype)
    S = xp.maximum(S, xp.amax(S, 1)[:, None] * float(info.eps) + float(info.tiny))
    if xp is np:
        return assign_columns(np.array(S.T, order="C"), m).T
    return xp.softmax(xp.log(S / xp.amin(S, 1)[:, None]) / (1.0 - m), 1)


def assign_columns(S: Array, m: float) -> Array:
    """Compute `assign` in place for positive scores laid out (K, rows): the inner loop.

    Powers are at least 2^-60, which is negligible beside 1: denormal numbers make a sweep four
    times as slow.
    """
    xp, alpha = namespace(S), 1.0 / (m - 1.0)
    smallest = np.minimum.reduce(S) if xp is np else xp.amin(S, 0)
    xp.divide(smallest, S, out=S)
    raise_to(S, 2.0 ** (-60.0 / alpha))
    xp.pow(S, alpha, out=S)
    S /= S.sum(0)
    return S


def assign_nearest(
    S: np.ndarray, m: float, floor: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries of P that matter, for scores (rows, K): their rows, clusters and p.

    Once clusters have formed, a row is in a few of them. p_ik is below TAIL / 2K of the row's
    largest where s_ik > (2K / TAIL)^(m - 1) times its smallest score, so all scores are touched
    only by a minimum and a comparison. Where that leaves many, the last of a row that have TAIL / 2
    of its largest together are left out too: at most TAIL of the row's mass in all. Scores are
    raised to `floor` (K,). Entries are sorted by row, then by cluster.

    >>> assign_nearest(np.array([[1.0, 2.0, 9.0]]), 1.03, np.zeros(3))[1]
    array([0], dtype=int32)
    """
    (n, K), alpha = S.shape, 1.0 / (m - 1.0)
    with np.errstate(over="ignore"):
        limit = np.maximum(S.min(1), floor.max()) * (2.0 * K / TAIL) ** (m - 1.0)
    entries = true_places(limit[:, None] >= S)
    ends = np.searchsorted(entries, K * np.arange(1, n + 1))
    counts = np.diff(ends, prepend=0)
    rows, first = np.repeat(np.arange(n, dtype=np.int32), counts), ends - counts
    clusters = (entries - np.repeat(K * np.arange(n), counts)).astype(np.int32)
    scores = np.maximum(S.ravel()[entries], floor[clusters])
    P = (np.minimum.reduceat(scores, first)[rows] / scores) ** alpha
    if len(entries) > MANY_ENTRIES * n:
        keys = rows + 0.5 * P
        ordered = np.sort(keys)  # by row, then by p
        tails = np.cumsum(ordered - rows)
        tails -= np.append(0.0, tails)[first][rows]
        n_left_out = np.add.reduceat(tails <= 0.25 * TAIL, first, dtype=np.int64)
        kept = np.flatnonzero(keys >= ordered[first + n_left_out][rows])
        rows, clusters, P = rows[kept], clusters[kept], P[kept]
        first = np.searchsorted(rows, np.arange(n, dtype=np.int32))
    P /= np.add.reduceat(P, first)[rows]
    return rows, clusters, P


def true_places(found: np.ndarray) -> np.ndarray:
    """Return `np.flatnonzero` of booleans few of which are true: eight are tested at once."""
    found = found.ravel()
    n = len(found) // 8 * 8
    words = found[:n].view(np.uint64)
    some = np.flatnonzero(words)
    inside = np.flatnonzero(words[some].view(bool))
    return np.append(8 * some[inside // 8] + inside % 8, n + np.flatnonzero(found[n:]))


def raise_to(S: Array, floor: Array | float) -> Array:
    """Set smaller numbers of S to `floor`, in place."""
    if isinstance(S, np.ndarray):
        return np.maximum(S, floor, out=S)  # np.clip takes longer to call than a block to compute
    return S.clamp_(min=floor)


def objective(X: Array, P: Array, m: float = 1.0, metric: str = "sqeuclidean") -> float:
    """Return J = sum_ij d_ij sum_k p_ik^m p_jk: Eq. 1 for m = 1, Eq. 5 for larger m.

    >>> objective(np.array([[0.0], [1.0], [4.0]]), np.array([[1, 0], [1, 0], [0, 1]]))
    2.0
    """
    X = embed(X, metric)
    X = X - X.mean(0)
    P = _like(P, X)
    return float((Moments.of(X, P**m).sums * dual(Moments.of(X, P).sums)).sum())


def cluster_objectives(sums: Array) -> Array:
    """Return (K,) sum_ij a_ik a_jk d_ij, the trace of Eq. 2 per cluster, from the sums of A."""
    return (sums * dual(sums)).sum(1).clip(0.0)


def critical_m(X: Array, metric: str = "sqeuclidean", aggregate: str = "p") -> float:
    """Return the m at and above which uniform assignments are stable, so no cluster can form.

    Around p_ik = 1/K, one update of all rows by Eq. 8 multiplies a perturbation v of a column of P
    by alpha * lambda. Here lambda is the largest eigenvalue of v -> -R^-1 D v, R_i = sum_j d_ij:
    about the share of variance along the first principal component. Hence m* = 1 + lambda. With
    p^m in the sum (`aggregate="p_m"`) the factor is alpha m lambda, so m* = 1 / (1 - lambda).

    >>> from sklearn.datasets import load_digits
    >>> round(critical_m(load_digits().data), 3)
    1.148
    """
    if aggregate not in ("p", "p_m"):
        raise InputError(f"aggregate is {aggregate!r}. Use 'p' or 'p_m'.")
    if hasattr(X, "tocsr"):
        raise InputError("X is sparse. Pass X.toarray(), or use critical_m_ of PAC fitted to X.")
    rows = _floats(X.detach() if hasattr(X, "detach") else X)
    if rows.ndim != 2 or 0 in rows.shape:
        raise InputError(f"X has shape {tuple(rows.shape)}, but (rows, columns) is needed.")
    if not float(abs(rows).max()) < np.inf:  # NaN spreads
        raise InputError("X has NaN or infinite values. Fill them in or leave those rows out.")
    rows = embed(rows, metric)
    rows = rows - rows.mean(0)
    size = abs(rows).max().clip(float(namespace(rows).finfo(rows.dtype).tiny))
    rows = lift(rows / size)
    return critical_m_from_growth(lifted_growth(lambda: [(rows, 1.0)]), aggregate)


def critical_m_from_growth(growth: float, aggregate: str) -> float:
    """Return m* of `critical_m` from lambda."""
    growth = min(max(growth, 0.0), 1.0 - 1e-12)
    return 1.0 + growth if aggregate == "p" else 1.0 / (1.0 - growth)


def lifted_growth(blocks: Callable[[], Iterable[tuple[Array, Array]]]) -> float:
    """Return lambda of `critical_m`; each call of `blocks` yields (lifted rows, sample weights).

    A perturbation v acts on scores only through its own moments T = sum_j w_j v_j lift(x_j), so
    the eigenvector is sought among D + 2 numbers instead of N, in a few passes over the rows.
    `balance` has no effect: its term, (1 - balance) sum_j w_j v_j / sum_j w_j, is the same for each
    row, and a constant v is already an eigenvector, with eigenvalue -balance <= 0.
    """
    total: Array = sum(_weigh(rows, weights).sum(0) for rows, weights in blocks())
    total = total.reshape(1, -1)
    mean_R = float(cluster_objectives(total)[0]) / float(total[0, -1])
    if not mean_R > 0.0:
        return 0.0  # all rows coincide
    floor = mean_R * float(namespace(total).finfo(total.dtype).eps)

    def update(T: Array) -> Array:
        side = dual(namespace(T).concatenate([T.T, total], 0)).T
        moved: Array = 0.0
        for rows, weights in blocks():
            S = rows @ side  # the scores of the perturbation, and R in the last column
            moved = moved - _weigh(rows, weights).T @ (S[:, :-1] / S[:, -1:].clip(floor))
        return moved

    return largest_eigenvalue(update, total.T)


def _weigh(rows: Array, weights: Array | float) -> Array:
    return rows if isinstance(weights, float) else rows * weights[:, None]


def largest_eigenvalue(apply: Callable[[Array], Array], like: Array) -> float:
    """Return the largest eigenvalue of an operator on columns, by block Krylov projection.

    `like` is a column of the operator's size, type and device. Eight columns cost little more than
    one, as both read all rows from memory, and after four products they span 32 directions. On
    isotropic noise, the hardest case, the result is up to 5 % too small.
    """
    xp, dim = namespace(like), like.shape[0]
    width = dim if dim <= 64 else 8
    start = np.random.default_rng(0).standard_normal((dim, width))
    new = xp.linalg.qr(xp.asarray(start, dtype=like.dtype, device=like.device))[0]
    basis = new
    images: list[Array] = []
    for _ in range(min(4, dim // width)):
        if images:
            for _ in range(2):  # once leaves rounding errors
                new = xp.linalg.qr(new - basis @ (basis.T @ new))[0]
            basis = xp.concatenate([basis, new], 1)
        new = apply(new)
        images.append(new)
    projected = basis.T @ xp.concatenate(images, 1)
    return float(xp.linalg.eigvals(projected).real.max())
