"""How scores become P by Eq. 8: all of it, or of each row only the clusters near it.

Once clusters have formed, a few of hundreds of clusters have a share of a row that can be told from
nothing. P is then a CSR array of what `aggregation.assign_nearest` keeps. Rows take one product for
their scores and one comparison; powers, changes and sums are of the entries kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from probagg.aggregation import (
    TAIL,
    Array,
    assign_columns,
    assign_nearest,
    cluster_objectives,
    mass_factor,
    namespace,
    raise_to,
)
from probagg.arrays import chunks
from probagg.estimators import labels_of
from probagg.pac.coordinates import linear_floor, linear_side
from probagg.threads import in_threads

MANY = 32  # the number of clusters from which on P may be kept as CSR
SPARSE = 1 / 8  # the share of its entries up to which a dense P becomes CSR
DENSE = 1 / 2  # the share above which a CSR one becomes dense
PART = 2**19  # scores computed at once: what fits in the processor's cache
LEAST_ROWS = 64  # rows scored at once, at least


# Entries of P: their rows, in rising order, their clusters, and p.
Entries: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
# The same with how many entries each row has in place of their rows, which takes less memory.
Counted: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Update:
    """One update by Eq. 8: how probabilities become weights, and scores probabilities."""

    m: float
    aggregate: str = "p"
    balance: float = 1.0

    def weigh(self, P: Array, weights: Array | None = None) -> Array:
        """Return a_jk of s_ik = sum_j a_jk d_ij: w_j p_jk or w_j p_jk^m, for P (K, rows)."""
        A = P if self.aggregate == "p" else P**self.m
        return A if weights is None else A * weights

    def scale(self, S: Array, mass: Array) -> Array:
        """Multiply the sums of Eq. 8, (K, rows), by n_k^(balance - 1), in place."""
        if self.balance != 1.0:
            factor = mass_factor(mass, self.balance)
            S *= namespace(S).asarray(factor, dtype=S.dtype)[:, None]
        return S

    def assign(self, S: Array, mass: Array, floor: Array | float) -> Array:
        """Turn the sums of Eq. 8, raised to `floor`, into P (K, rows), in place."""
        return assign_columns(self.scale(raise_to(S, floor), mass), self.m)

    def objective(self, sums: Array) -> float:
        """Return sum_k n_k^(balance - 1) sum_ij a_ik a_jk d_ij: Eq. 1 for the paper's options."""
        return self.total(cluster_objectives(sums), sums[:, -1])

    def total(self, objectives: Array, mass: Array) -> float:
        """Return the sum of the clusters' objectives, each times n_k^(balance - 1)."""
        return float((objectives * mass_factor(mass, self.balance)).sum())


@cache
def kernels() -> Any:
    """Return `pac.fused`, or None where Triton is not installed."""
    try:
        from probagg.pac import fused
    except ImportError:
        return None
    return fused


def assign_entries(lifted: Array, sums: np.ndarray, update: Update, n_threads: int = 1) -> Entries:
    """Return P without its tails, for lifted rows and the sums of the clusters."""
    side, floor = linear_side(sums, lifted.dtype), linear_floor(sums, lifted.dtype)[:, 0]
    if update.balance != 1.0:
        factor = mass_factor(sums[:, -1], update.balance).astype(lifted.dtype)
        side, floor = side * factor[:, None], floor * factor
    n, K = lifted.shape[0], len(sums)
    size = max(LEAST_ROWS, -(-n // max(1, round(n * K / PART))))
    if n <= size:
        return assign_nearest(lifted @ side.T, update.m, floor)

    def assign(part: slice) -> Entries:
        rows, clusters, P = assign_nearest(lifted[part] @ side.T, update.m, floor)
        return rows + part.start, clusters, P

    return joined(list(in_threads(assign, list(chunks(n, size)), n_threads)))


def joined(entries: Sequence[Entries]) -> Entries:
    """Return entries as one."""
    rows, clusters, P = (np.concatenate(arrays) for arrays in zip(*entries, strict=True))
    return rows, clusters, P


def first_rows(n: int, entries: Entries) -> Entries:
    """Return the entries of the first n rows."""
    rows, clusters, P = entries
    inside = rows < n
    return rows[inside], clusters[inside], P[inside]


def counted(n: int, entries: Entries) -> Counted:
    """Return the entries of n rows, counted."""
    rows, clusters, P = entries
    return np.bincount(rows, minlength=n), clusters, P


def of_counted(found: list[Counted], K: int) -> sp.csr_array:
    """Return P from counted entries of blocks of rows.

    `found` is emptied on the way: memory may not hold both.
    """
    ends = np.cumsum([0, *(len(P) for _, _, P in found)])
    index = np.int32 if ends[-1] < 2**31 else np.int64
    counts = np.concatenate([counts for counts, _, _ in found])
    clusters, values = np.empty(ends[-1], index), np.empty(ends[-1], found[0][2].dtype)
    while found:
        inside = slice(ends[len(found) - 1], ends[len(found)])
        _, clusters[inside], values[inside] = found.pop()
    indptr = np.append(0, np.cumsum(counts)).astype(index)
    return sp.csr_array((values, clusters, indptr), shape=(len(counts), K))


def entries_of(P: sp.csr_array, rows: slice) -> Entries:
    """Return the entries of some rows of P, counted from the first of them."""
    counts = np.diff(P.indptr[rows.start : rows.stop + 1])
    inside = slice(P.indptr[rows.start], P.indptr[rows.stop])
    return np.repeat(np.arange(len(counts)), counts), P.indices[inside], P.data[inside]


def assign_rows(
    lifted: Array, sums: np.ndarray, update: Update, n_threads: int = 1
) -> sp.csr_array:
    """Return P (rows, K) without its tails, for lifted rows and the sums of the clusters."""
    entries = assign_entries(lifted, sums, update, n_threads)
    return of_counted([counted(lifted.shape[0], entries)], len(sums))


def without_tails(P: np.ndarray) -> sp.csr_array:
    """Return a dense P as CSR, without what `assign_nearest` would leave out."""
    parts, K = [], P.shape[1]
    for some in chunks(P.shape[0], max(LEAST_ROWS, PART // K)):
        part = np.ascontiguousarray(P[some])
        parts.append(sp.csr_array(np.where(part < TAIL / K, part.dtype.type(0.0), part)))
    return sp.vstack(parts, "csr")


def labels_of_rows(P: Array) -> Array:
    """Return the most probable cluster of each row of P, dense or CSR; the first of several.

    >>> labels_of_rows(sp.csr_array([[0.0, 0.1, 0.9], [0.5, 0.0, 0.5]]))
    array([2, 0])
    """
    if not sp.issparse(P):
        return labels_of(P)
    rows = entries_of(P, slice(0, P.shape[0]))[0]
    found = np.flatnonzero(P.data == np.maximum.reduceat(P.data, P.indptr[:-1])[rows])
    rows = rows[found]
    return P.indices[found[np.flatnonzero(np.diff(rows, prepend=-1))]].astype(np.int64)
