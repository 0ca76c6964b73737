"""How scores become P by Eq. 8: all of it, or of each row only the clusters near it.

Once clusters have formed, a few of hundreds of clusters have a share of a row that can be told from
nothing. P is then a CSR array of what `aggregation.assign_nearest` keeps. Rows take one product for
their scores and one comparison; powers, changes and sums are of the entries kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from probagg.aggregation import (
    TAIL,
    Array,
    assign_columns,
    assign_nearest,
    cluster_objectives,
    dual,
    mass_factor,
    namespace,
    raise_to,
)
from probagg.arrays import chunks
from probagg.environment import map_in_threads
from probagg.pac.coordinates import linear_floor

MANY = 32  # the number of clusters from which on P may be kept as CSR
SPARSE = 1 / 8  # the share of its entries up to which a dense P becomes CSR
DENSE = 1 / 2  # the share above which a CSR one becomes dense
PART = 2**19  # scores computed at once: what fits in the processor's cache
LEAST_ROWS = 64  # rows scored at once, at least


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


class Entries(NamedTuple):
    """Entries of some rows of P, or changes of them."""

    rows: np.ndarray
    clusters: np.ndarray
    values: np.ndarray

    def before(self, row: int) -> Entries:
        """Return those of the rows before this one."""
        return Entries(*(array[self.rows < row] for array in self))


class Scorer:
    """What assigns lifted rows by Eq. 8: the sums of the clusters, as a product needs them."""

    def __init__(self, sums: np.ndarray, update: Update, dtype: Any, n_threads: int = 1) -> None:
        self.sums, self.update, self.dtype, self.n_threads = sums, update, dtype, n_threads
        self._side = dual(sums).astype(dtype)
        self._floor = linear_floor(sums, dtype)[:, 0]

    def assign(self, lifted: Array) -> Entries:
        """Return P without its tails, sorted by row, then by cluster."""
        side, floor = self._side, self._floor
        if self.update.balance != 1.0:
            factor = mass_factor(self.sums[:, -1], self.update.balance).astype(self.dtype)
            side, floor = side * factor[:, None], floor * factor

        def assign(part: slice) -> Entries:
            rows, clusters, P = assign_nearest(lifted[part] @ side.T, self.update.m, floor)
            return Entries(rows + part.start, clusters, P)

        n = lifted.shape[0]
        size = max(LEAST_ROWS, -(-n // max(1, round(n * len(side) / PART))))
        return joined(map_in_threads(assign, list(chunks(n, size)), self.n_threads))

    def add(self, dA: Entries, lifted: Array) -> None:
        """Add a change of the weights of lifted rows to the sums."""
        order = np.argsort(dA.clusters.astype(np.min_scalar_type(len(self.sums))), kind="stable")
        clusters = dA.clusters[order]
        first = np.flatnonzero(np.diff(clusters, prepend=-1))
        changed, indptr = clusters[first], np.append(first, len(order))
        shape = len(changed), lifted.shape[0]
        product = sp.csr_array((dA.values[order], dA.rows[order], indptr), shape=shape) @ lifted
        self.sums[changed] += product.toarray() if sp.issparse(product) else product
        self._side[changed] = dual(self.sums[changed])
        self._floor[changed] = linear_floor(self.sums[changed], self.dtype)[:, 0]


def joined(found: Iterable[Entries]) -> Entries:
    """Return all entries."""
    return Entries(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def to_csr(entries: Entries, shape: tuple[int, int]) -> sp.csr_array:
    """Return sorted entries as a CSR array."""
    indptr = np.searchsorted(entries.rows, np.arange(shape[0] + 1))
    return sp.csr_array((entries.values, entries.clusters, indptr), shape=shape)


def entries_of(P: sp.csr_array, start: int, stop: int) -> Entries:
    """Return the entries of some rows, numbered from 0."""
    indptr = P.indptr[start : stop + 1]
    inside = slice(indptr[0], indptr[-1])
    rows = np.repeat(np.arange(stop - start), np.diff(indptr))
    return Entries(rows, P.indices[inside], P.data[inside])


def without_tails(P: np.ndarray) -> sp.csr_array:
    """Return a dense P as CSR, without what `assign_nearest` would leave out."""
    parts, K = [], P.shape[1]
    for some in chunks(P.shape[0], max(LEAST_ROWS, PART // K)):
        part = np.ascontiguousarray(P[some])
        parts.append(sp.csr_array(np.where(part < TAIL / K, part.dtype.type(0.0), part)))
    return sp.vstack(parts, "csr")


def labels_of_entries(P: sp.csr_array) -> np.ndarray:
    """Return the most probable cluster of each row, the first of several.

    >>> labels_of_entries(sp.csr_array([[0.0, 0.1, 0.9], [0.5, 0.0, 0.5]]))
    array([2, 0])
    """
    counts = np.diff(P.indptr)
    largest = np.maximum.reduceat(P.data, P.indptr[:-1])
    found = np.flatnonzero(P.data == np.repeat(largest, counts))
    rows = np.repeat(np.arange(P.shape[0]), counts)[found]
    return P.indices[found[np.flatnonzero(np.diff(rows, prepend=-1))]].astype(np.int64)


def weight_change(
    new: Entries,
    old: Entries,
    K: int,
    update: Update | None = None,
    weights: np.ndarray | None = None,
) -> Entries:
    """Return the change of p, or of a_jk of an update; entries that stay are left out."""
    keys, old_keys = new.rows * K + new.clusters, old.rows * K + old.clusters
    place = np.searchsorted(keys, old_keys)
    place[place == len(keys)] = 0
    stays = keys[place] == old_keys
    values, gone = new.values.copy(), old.values
    if update is not None:
        values, gone = update.weigh(values), update.weigh(gone)
    values[place[stays]] -= gone[stays]
    all_of_it = joined(
        [
            Entries(new.rows, new.clusters, values),
            Entries(old.rows[~stays], old.clusters[~stays], -gone[~stays]),
        ]
    )
    rows, clusters, values = (array[all_of_it.values != 0.0] for array in all_of_it)
    return Entries(rows, clusters, values if weights is None else values * weights[rows])
