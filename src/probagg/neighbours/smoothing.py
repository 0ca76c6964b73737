"""Probabilities smoothed over the kNN graph of rows, for fitted and for new rows.

PAC places the boundary of a cluster by its sums alone. Smoothing moves the boundary to where the
graph has few edges. Where clusters are not compact, `Smoothing` joins parts instead (joining.py).
The functions take NumPy arrays or torch tensors.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from probagg.aggregation import LINEAR_METRICS, Array, embed, namespace
from probagg.arrays import UNKNOWN, chunks
from probagg.errors import ClusteringWarning, InputError, warn_user
from probagg.known import with_known
from probagg.neighbours.graph import mean_over, nearest_rows
from probagg.neighbours.joining import choose_clusters
from probagg.progress import Progress

NEAREST = 20  # neighbours per row, including the row itself
SHARE = 0.1  # of a cluster's mean size, which limits the number of neighbours
ROUNDS = 20  # of smoothing, by default
PHOTO_ROUNDS = 5  # of `Smoothing`; with 20, one of 16 sets of photos loses 0.7 ACC (docs/photos.md)
PER_CLUSTER = 20  # rows per cluster, below which a tenth of one is less than two rows
SAMPLE = 10_000  # rows that are kept to label others by
CHUNK = 2_000  # rows that are labelled at a time
KNOWN = 5.0  # neighbours that one whose cluster is known counts as


def count_nearest(n: int, n_clusters: int) -> int:
    """Return how many neighbours a row has in a kNN graph of n rows, itself included.

    >>> [count_nearest(n, 10) for n in (5000, 500, 50)]
    [20, 5, 2]
    """
    return min(n, max(2, min(NEAREST, int(SHARE * n / n_clusters))))


def smoothing_graph(X: Array, n_clusters: int, metric: str) -> Array:
    """Return the nearest rows of each row, (N, 2 to 20), itself included.

    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> smoothing_graph(X, 2, "cosine").tolist()
    [[0, 2], [1, 3], [2, 0], [3, 1]]
    """
    return nearest_rows(X, count_nearest(X.shape[0], n_clusters), metric, among=X)


def smooth(
    near: Array,
    P: Array,
    mass: Array | None = None,
    *,
    rounds: int = ROUNDS,
    known: Array | None = None,
    weight: float = KNOWN,
) -> Array:
    """Smooth P (N, K) over the kNN graph, rescaling to the cluster masses after each round.

    Without rescaling, large clusters would grow. `mass` (K,) replaces the masses of P. Rows whose
    cluster is `known`, (N,) with -1 elsewhere, keep it in every round, and count as `weight` rows,
    also in what is returned.

    >>> near = np.array([[0, 1, 2], [1, 0, 2], [2, 0, 1], [3, 4, 4], [4, 3, 3]])
    >>> P = np.array([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1], [0.2, 0.8], [0.1, 0.9]])
    >>> smooth(near, P).argmax(1).tolist()
    [0, 0, 0, 1, 1]
    """
    mass = P.sum(0) if mass is None else mass
    Q = P if known is None else with_known(P + 0, known, weight)
    for _ in range(rounds):
        T = mean_over(near, Q)
        Q = with_known(_normalise(T * _factor(T, mass)), known, weight)
    return Q


def _factor(T: Array, mass: Array) -> Array:
    """Return what the columns of T are multiplied by to have the given sums, (K,)."""
    return mass / T.sum(0).clip(1e-30)


def _normalise(T: Array) -> Array:
    return T / T.sum(1)[:, None].clip(1e-12)


def sharpness(Q: Array) -> float:
    """Return the mean of the largest probability of each row."""
    return float(namespace(Q).amax(Q, 1).mean())


def to_power(Q: Array, power: float) -> Array:
    """Return Q raised to a power, rows normalised."""
    xp = namespace(Q)
    largest = xp.amax(Q, 1)[:, None].clip(1e-30)
    return _normalise((Q / largest) ** power)


def find_power(Q: Array, to: float) -> float:
    """Return the power that gives Q the sharpness `to`.

    >>> Q = np.array([[0.5, 0.3, 0.2], [0.3, 0.3, 0.4]])
    >>> [round(sharpness(to_power(Q, find_power(Q, to))), 3) for to in (0.9, 0.35)]
    [0.9, 0.35]
    """
    low, high = 1e-4, 1e4
    for _ in range(50):
        power = (low * high) ** 0.5
        low, high = (power, high) if sharpness(to_power(Q, power)) < to else (low, power)
    return low


def sharpen(Q: Array, to: float) -> Array:
    """Return Q raised to the power that gives it the sharpness `to`, rows normalised.

    Smoothing flattens probabilities where clusters touch and sharpens them where they do not.
    """
    return to_power(Q, find_power(Q, to))


@dataclass(frozen=True, eq=False)
class Smoothing:
    """Clusters of rows, smoothed: a row has the mean probabilities of its nearest fitted rows.

    The probabilities of a sample of the fitted rows are smoothed over its kNN graph in all rounds
    but the last. The last one assigns any row, fitted or new: `factor` are those by which clusters
    have the masses they had before.

    The probabilities are PAC's, and with `power` the sample has PAC's mean confidence. Where
    clusters are not compact, they are those of joined parts (`choose_clusters`), and the mean
    confidence is the share of neighbours in one cluster.

    >>> from sklearn.datasets import load_digits
    >>> from probagg import PAC
    >>> X = load_digits().data
    >>> pac = PAC(10, random_state=0).fit(X)
    >>> smoothing, P = Smoothing.fit(X, pac.probabilities_, metric="sqeuclidean")
    >>> smoothing.reason.partition(":")[0]
    'joined parts'
    >>> bool(np.allclose(smoothing.predict_proba(X[:9]), P[:9]))
    True
    """

    rows: np.ndarray  # (S, D): float32, or for cosine float16 of length sqrt(1/2)
    P: np.ndarray  # (S, K) float32
    factor: np.ndarray  # (K,) float64
    power: float
    n_nearest: int
    metric: str
    reason: str  # why PAC's clusters were kept or replaced, in words

    @classmethod
    def fit(
        cls,
        X: Any,
        P: Any,
        random_state: int = 0,
        progress: Progress | None = None,
        *,
        metric: str = "cosine",
        balance: float = 1.0,
        known: np.ndarray | None = None,
        joined: bool | None = None,
    ) -> tuple[Self, np.ndarray]:
        """Return the smoothing of PAC's P (N, K) of X (N, D), and the new P (N, K).

        `balance` is PAC's, and so is `known`, the clusters of rows that keep them: P is what PAC
        gives these rows by itself. `joined` says whether clusters that are fitted again were joined
        parts, and stay so; most known labels are their own then, and count one row. `progress` is
        called with the number of rows done and of all,
        beyond one sample.
        """
        N, K = P.shape
        kept = _sampled_rows(N, known, np.random.default_rng(random_state))
        some = None if known is None else known[kept]
        points, before = _rows(X[kept], metric), np.asarray(P[kept], np.float64)
        rows = points.astype(np.float16 if metric == "cosine" else np.float32)
        near = _nearest(points, rows.astype(np.float64), count_nearest(len(kept), K), metric)
        smoothed = partial(smooth, near, rounds=PHOTO_ROUNDS)
        chosen, reason, doubt = choose_clusters(
            points, near, before, smoothed, balance, random_state, some, joined
        )
        if doubt is not None:
            warn_user(doubt, ClusteringWarning)
        confidence = sharpness(before)
        if chosen is not None:
            before, confidence = np.eye(K)[chosen.labels], chosen.inside
        before = with_known(before, some)
        weight = KNOWN if joined is None else 1.0
        Q = smooth(near, before, rounds=PHOTO_ROUNDS - 1, known=some, weight=weight)
        Q = Q.astype(np.float32)
        T = mean_over(near, Q.astype(np.float64))
        factor = _factor(T, before.sum(0))
        power = find_power(T * factor, confidence)
        found = cls(rows, Q, factor, power, near.shape[1], metric, reason)
        if N > SAMPLE:
            return found, with_known(found.predict_proba(X, progress), known)
        return found, with_known(to_power(T * factor, power).astype(np.float32), known)

    @property
    def n_clusters(self) -> int:
        """K."""
        return self.P.shape[1]

    @property
    def n_features_in_(self) -> int:
        """D."""
        return self.rows.shape[1]

    @cached_property
    def _double(self) -> tuple[np.ndarray, np.ndarray]:
        return self.rows.astype(np.float64), self.P.astype(np.float64)

    def predict_proba(self, X: Any, progress: Progress | None = None) -> np.ndarray:
        """Return the probabilities of rows (n, D), float32 (n, K)."""
        X = X if hasattr(X, "toarray") else np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has the shape {X.shape}, but rows of {self.n_features_in_} features are "
                "needed. Pass rows with the columns, or features of the network, of fit."
            )
        rows, P = self._double
        found = np.empty((X.shape[0], self.n_clusters), np.float32)
        for chunk in chunks(X.shape[0], CHUNK):
            near = _nearest(_rows(X[chunk], self.metric), rows, self.n_nearest, self.metric)
            T = mean_over(near, P)
            found[chunk] = to_power(T * self.factor, self.power)
            if progress is not None:
                progress(chunk.stop, X.shape[0])
        return found

    def placed(self, numbers: np.ndarray, n_clusters: int) -> Self:
        """Return the clusters with other numbers; no row is in the rest of `n_clusters`."""
        P, factor = np.zeros((len(self.P), n_clusters), self.P.dtype), np.ones(n_clusters)
        P[:, numbers], factor[numbers] = self.P, self.factor
        return replace(self, P=P, factor=factor)

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays to save, and the numbers and words."""
        arrays = {"rows": self.rows, "P": self.P, "factor": self.factor}
        names = ("power", "n_nearest", "metric", "reason")
        return arrays, {name: getattr(self, name) for name in names}

    @classmethod
    def of_arrays(cls, arrays: dict[str, Any], facts: dict[str, Any]) -> Self:
        """Return what `to_arrays` gave; raise ValueError where it does not belong together."""
        found = cls(**arrays, **facts)
        found._check()
        return found

    def _check(self) -> None:
        rows, P, factor = self.rows, self.P, self.factor
        if rows.ndim != 2 or P.ndim != 2 or len(rows) != len(P) or factor.shape != P.shape[1:]:
            raise ValueError("its arrays do not belong together")
        if self.metric not in LINEAR_METRICS or not isinstance(self.reason, str):
            raise ValueError(f"the metric {self.metric!r:.20} or the reason is not known")
        if type(self.n_nearest) is not int or not 1 <= self.n_nearest <= len(rows):
            raise ValueError(f"it has {len(rows)} rows, but {self.n_nearest!r:.20} are nearest")
        if type(self.power) is not float or not all(
            np.isfinite(values).all() for values in (rows, P, factor, self.power)
        ):
            raise ValueError("some of its numbers are not finite")


def _sampled_rows(n: int, known: np.ndarray | None, generator: np.random.Generator) -> np.ndarray:
    """Return the sorted numbers of the rows that are kept; up to half of them are known ones."""
    if n <= SAMPLE:
        return np.arange(n)
    drawn = generator.choice(n, SAMPLE, replace=False)
    if known is not None:
        of_known = generator.permutation(np.flatnonzero(known != UNKNOWN))[: SAMPLE // 2]
        drawn = np.append(of_known, drawn[~np.isin(drawn, of_known)])[:SAMPLE]
    return np.sort(drawn)


def _rows(X: Any, metric: str) -> np.ndarray:
    """Return rows with Euclidean distances, in float64: rounding hardly ever changes an order."""
    X = X.toarray() if hasattr(X, "toarray") else X
    if not np.isfinite(X).all():
        raise InputError("X has values that are NaN or infinite. Leave those rows out.")
    return embed(np.asarray(X, np.float64), metric)


def _nearest(queries: np.ndarray, rows: np.ndarray, k: int, metric: str) -> np.ndarray:
    """Return the k nearest of some rows to each of the queries, in rising order.

    Rows for cosine are rounded, so their lengths differ slightly. One more column makes them equal,
    and then the nearest have the largest products.
    """
    if metric == "cosine":
        squares = (rows * rows).sum(1)
        rows = np.column_stack([rows, np.sqrt(squares.max() - squares)])
        queries = np.pad(queries, ((0, 0), (0, 1)))
    return np.sort(nearest_rows(queries, k, among=rows), axis=1)
