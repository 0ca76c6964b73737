"""Select the number of clusters: the K whose clusters gain most over data without groups.

Rows are clustered with fewer and fewer clusters, and each clustering is measured by how well the
clusters are separated (silhouette) and how often nearest neighbours share a cluster (agreement).
Both are compared with those of a null, a single Gaussian with the same variances on the principal
axes: the gain over it is due to groups.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Set
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

from probagg.aggregation import Array, critical_m_from_growth, mass_factor
from probagg.errors import InputError
from probagg.estimators import CONSTRAINTS as SHARED
from probagg.estimators import draw_seed
from probagg.neighbours.graph import NeighbourAgreement, nearest_rows
from probagg.pac.balance import NEIGHBOURS
from probagg.pac.coordinates import Coordinates
from probagg.pac.inputs import CONSTRAINTS, ROWS, check_distances, check_sparse, explained
from probagg.pac.rows import LinearRows, Metric, Rows
from probagg.pac.solver import choose_m, rows_of
from probagg.pac.sweeps import BlockSweeps, Update, converge, near_uniform
from probagg.progress import Progress
from probagg.svg import curve, stack

LARGEST_AUTO = 60
# A larger set is sampled: so many rows, or so many per cluster of the largest candidate.
SAMPLE_ROWS = 2_000
ROWS_PER_CLUSTER = 15
# The largest candidate has at least so many rows per cluster, on average.
LEAST_PER_CLUSTER = 4
# Each run has this share of the rows, in at most so many dimensions.
N_RUNS = 3
DRAWN = 0.8
DIMENSIONS = 64
# Sweeps end at this mean change of P, or after so many: from the uniform start, or from clusters
# that were joined.
TOLERANCE = 1e-2
FIRST_SWEEPS = 30
LATER_SWEEPS = 3
MEASURES = ("silhouette", "agreement")
# This times log K is subtracted: of numbers that fit alike, the smaller is preferred.
PENALTY = 0.1
# Scores this close to the best fit "nearly as well": where neighbours agree up to 0.9, and at 1.
CLOSE = 0.1, 0.01
# There is no clear structure where the largest gains add up to less.
STRUCTURE = 0.2
SMALLEST_GAIN = 1e-6


def select_n_clusters(
    X: Any,
    candidates: str | Iterable[int] = "auto",
    *,
    metric: Metric = "sqeuclidean",
    m: float | str = "auto",
    balance: float = 1.0,
    n_runs: int = N_RUNS,
    random_state: Any = None,
    progress: Progress | None = None,
) -> Selection:
    """Choose the number of clusters for PAC, without labels.

    In each run, PAC clusters a random 80 % of the rows with every candidate K. Each clustering is
    measured by its silhouette and by the neighbour agreement: how often the 10 nearest neighbours
    of a row are in its cluster (0 is chance, 1 is always). The same is done for a null, rows drawn
    from one Gaussian with the covariance of the data. The gain of a measure is its mean minus that
    of the null. The K with the largest

        score(K) = mean over both measures of gain(K) / largest gain - 0.1 log K

    is chosen. Numbers around it that score nearly as high (within 0.1, or less if neighbours
    nearly always agree) form the interval. If the largest gains add up to less than 0.2, the data
    has no clear structure, and `reason` says so.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
        The rows, or all distances for `metric="precomputed"`. At most 2,000 rows (15 per cluster if
        that is more) are used, in at most 64 dimensions (by PCA; for metrics that need all
        distances, by classical multidimensional scaling).
    candidates : "auto", tuple (low, high) or iterable of int, default="auto"
        The numbers to compare. A tuple of two is a range with both ends. A list, range or set holds
        exactly the candidates; a list of two is an error, as it could mean either. "auto" is 2 to
        60, or to sqrt(2 n_samples) if that is less: every number up to 12, then numbers about a
        sixth apart, and finally every number around the best of these.
    metric, m, balance
        As in :class:`probagg.PAC`.
    n_runs : int, default=3
        The number of runs, each on other rows; at least 2.
    random_state : int, RandomState instance or None, default=None
        Determines the rows of each run, the nulls and the starts.
    progress : callable or None, default=None
        Called as `progress(done, total)` after each candidate of each run, in percent of the work.

    Returns
    -------
    Selection
        `n_clusters`, `interval` (lowest and highest number that fit nearly as well), `reason` (in
        words), `clear` (False if the data has no clear structure), `table` (one row per candidate),
        `to_csv()`, `plot_svg()`.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from probagg import select_n_clusters
    >>> X, _ = make_blobs(600, 4, centers=6, random_state=3)
    >>> select_n_clusters(X, (2, 10), n_runs=2, random_state=0).n_clusters
    6
    """
    validate_parameter_constraints(
        CONSTRAINTS
        | {"n_runs": [Interval(Integral, 2, None, closed="left")], "balance": SHARED["balance"]},
        {"metric": metric, "m": m, "balance": balance, "n_runs": n_runs},
        caller_name="select_n_clusters",
    )
    generator = np.random.default_rng(draw_seed(random_state))
    with explained(X):
        X = check_sparse(check_array(X, input_name="X", **ROWS), metric)
    X = check_distances(X) if metric == "precomputed" else X
    numbers = _numbers(candidates, X.shape[0])
    full = _prepare(X, metric, max(SAMPLE_ROWS, ROWS_PER_CLUSTER * numbers[-1]), generator)
    update = Update(_choose_m(m, full), "p", balance)
    rows = principal_coordinates(full)
    seeds = generator.integers(2**63, size=n_runs).tolist()
    runs = [SubsampleRun(rows, update, seed) for seed in seeds]
    _measure(runs, numbers, progress)
    selection = selection_from(runs)
    around = _skipped(numbers, selection.n_clusters) if isinstance(candidates, str) else []
    if around:
        _measure(runs, around)
        selection = selection_from(runs)
    return selection


def _prepare(X: Array, metric: Metric, n_rows: int, generator: np.random.Generator) -> Rows:
    """Return X, or a sample of it, as the rows of a sweep."""
    if X.shape[0] > n_rows:
        sample = np.sort(generator.choice(X.shape[0], n_rows, replace=False))
        X = X[np.ix_(sample, sample)] if metric == "precomputed" else X[sample]
    return rows_of(X, metric)


def _choose_m(m: float | str, full: Rows) -> float:
    critical_m = critical_m_from_growth(full.growth(), "p")
    if critical_m == 1.0:
        raise InputError("All rows are the same: there is nothing to cluster. Check the data.")
    m = choose_m(m, critical_m)
    if m >= critical_m:
        raise InputError(
            f"m={m:.4g} is at or above the critical value {critical_m:.4g} of this data: no "
            "cluster can form there, for any K. Lower m or pass m='auto'."
        )
    return m


def _measure(
    runs: list[SubsampleRun], numbers: list[int], progress: Progress | None = None
) -> None:
    """Measure all numbers in all runs, the largest first."""
    show = progress or (lambda done, total: None)
    show(0, 100)
    share = _work(numbers).cumsum() / _work(numbers).sum()
    for i, run in enumerate(runs):
        for K, done in zip(sorted(numbers, reverse=True), share, strict=True):
            run.measure(K)
            show(round(100 * (i + done) / len(runs)), 100)


def selection_seconds(candidates: str | Iterable[int], n_rows: int, n_columns: int) -> float:
    """Estimate the time of a selection: measured on an idle ARM core, good to a factor of 2."""
    numbers = _numbers(candidates, n_rows)
    n_rows = min(n_rows, max(SAMPLE_ROWS, ROWS_PER_CLUSTER * numbers[-1]))
    return 0.5 + N_RUNS * 6e-7 * (n_rows + 300) * _work(numbers).sum() + 4e-7 * n_rows * n_columns


def _work(numbers: list[int]) -> np.ndarray:
    """Return the relative cost of each number, the largest first; it starts from no clusters."""
    work = np.array(sorted(numbers, reverse=True)) + 20.0
    work[0] *= 8.0
    return work


def _numbers(candidates: str | Iterable[int], n_rows: int) -> list[int]:
    """Return the candidates in rising order, each once."""
    largest = n_rows // LEAST_PER_CLUSTER
    if largest < 2:
        raise InputError(
            f"X has {n_rows} rows, but at least {2 * LEAST_PER_CLUSTER} are needed: "
            f"{LEAST_PER_CLUSTER} for each of 2 clusters. Pass more rows, or choose the number of "
            "clusters yourself."
        )
    if isinstance(candidates, str) and candidates == "auto":
        return _auto_candidates(max(2, min(LARGEST_AUTO, int((2 * n_rows) ** 0.5), largest)))
    wrong = isinstance(candidates, str) or not np.iterable(candidates)
    numbers: list[Any] = [] if wrong else list(candidates)
    if not numbers or not all(isinstance(K, Integral) for K in numbers):
        raise InputError(
            f"candidates={candidates!r} is given, but 'auto', a range (low, high) or whole numbers "
            "such as [3, 5, 8] are needed."
        )
    if len(numbers) == 2 and not isinstance(candidates, range | Set):
        numbers = _pair(candidates, *numbers)
    if min(numbers) < 2 or max(numbers) > largest:
        raise InputError(
            f"candidates from {min(numbers)} to {max(numbers)} are given, but {n_rows} rows allow "
            f"2 to {largest}: {LEAST_PER_CLUSTER} rows per cluster are needed on average. Choose "
            "candidates within that range."
        )
    return sorted({int(K) for K in numbers})


def _pair(candidates: str | Iterable[int], low: int, high: int) -> list[int]:
    """Return every number of a tuple (low, high). Two numbers in a list could mean either."""
    if isinstance(candidates, tuple) and low > high:
        raise InputError(f"candidates={candidates} has its low end above its high end. Swap them.")
    if not isinstance(candidates, tuple) and abs(high - low) > 1:
        raise InputError(
            f"candidates={candidates!r} could mean a range or two numbers. Pass a tuple, "
            f"({low}, {high}), for every number from {low} to {high}, or a set, {{{low}, {high}}}, "
            "for these two alone."
        )
    return list(range(min(low, high), max(low, high) + 1))


def _auto_candidates(top: int) -> list[int]:
    """Return numbers from 2 to `top`: every number up to 12, then in steps of a sixth."""
    numbers = [2]
    while numbers[-1] < top:
        numbers.append(min(top, numbers[-1] + max(1, numbers[-1] // 6)))
    return numbers


def _skipped(numbers: list[int], best: int) -> list[int]:
    """Return the numbers between the neighbours of the best that are not candidates yet."""
    at = numbers.index(best)
    low, high = numbers[max(0, at - 1)], numbers[min(at + 1, len(numbers) - 1)]
    return [K for K in range(low, high) if K not in numbers]


@dataclass(frozen=True)
class Measurement:
    """What one clustering looks like without labels."""

    n_clusters: int
    silhouette: float
    agreement: float  # kappa of the labels of nearest neighbours
    objective: float  # Eq. 1 over the number of pairs
    seconds: float


class MergePath:
    """Rows clustered with fewer and fewer clusters; the labels of every number are kept.

    The first number starts with a quarter more clusters. For each smaller one, clusters are joined
    and PAC sweeps again. That is fast, since a few sweeps suffice, and it avoids the common poor
    solutions, in which one cluster covers two groups while another group has two.
    """

    def __init__(self, X: np.ndarray, update: Update, generator: np.random.Generator) -> None:
        self.rows = LinearRows(X, None, None, Coordinates.of(X, "sqeuclidean"))
        self.update, self.generator = update, generator
        self.near = nearest_rows(X, NEIGHBOURS)
        self.labels: dict[int, np.ndarray] = {}

    def measure(self, K: int) -> Measurement:
        """Cluster into K, from the next larger number that is known, and measure the result."""
        began, everything = time.perf_counter(), slice(0, len(self.near))
        larger = min((number for number in self.labels if number > K), default=None)
        if larger is None:
            P = near_uniform(
                self.rows.X, min(K + max(3, K // 4), len(self.near) // 2), self.generator
            )
            P, _ = self._sweep(P, FIRST_SWEEPS)
        else:
            P = self._start_from(self.labels[larger], larger)
        P = join(P, self.rows.scores(everything) @ P, K)
        P, objective = self._sweep(P, LATER_SWEEPS)
        labels = self.labels[K] = P.argmax(1)
        self._start_from(labels, K)
        filled = len(np.unique(labels)) / K  # fewer distinct rows than clusters leave some empty
        return Measurement(
            n_clusters=K,
            silhouette=filled * silhouette(self.rows.scores(everything).T, labels),
            agreement=filled * NeighbourAgreement.of(labels, self.near, K).kappa,
            objective=objective,
            seconds=time.perf_counter() - began,
        )

    def _start_from(self, labels: np.ndarray, K: int) -> np.ndarray:
        """Set the sums to those of hard assignments, and return these."""
        P = np.eye(K, dtype=self.rows.X.dtype)[labels]
        self.rows.start(P.T)
        return P

    def _sweep(self, P: np.ndarray, max_iter: int) -> tuple[np.ndarray, float]:
        """Return P after at most `max_iter` sweeps, and its objective per pair of rows."""
        P = np.asfortranarray(P)
        run = converge(BlockSweeps(self.rows, P, self.update), max_iter=max_iter, tol=TOLERANCE)
        return P, run.history[-1] * self.rows.unit / len(P) ** 2


class SubsampleRun:
    """Measurements of some random rows, and of their null."""

    def __init__(self, X: np.ndarray, update: Update, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.index = np.sort(generator.choice(len(X), int(DRAWN * len(X)), replace=False))
        rows = X[self.index]
        self.data = MergePath(rows, update, generator)
        null = rows.std(0) * generator.standard_normal(rows.shape, np.float32)
        self.null = MergePath(null, update, generator)
        self.measured: dict[int, tuple[Measurement, Measurement]] = {}

    def measure(self, K: int) -> None:
        """Measure the data and the null at K, if that is not done; start with the largest K."""
        if K not in self.measured:
            self.measured[K] = self.data.measure(K), self.null.measure(K)

    def common_labels(self, other: SubsampleRun, K: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels of the rows that are in both runs, from each."""
        _, ours, theirs = np.intersect1d(self.index, other.index, return_indices=True)
        return self.data.labels[K][ours], other.data.labels[K][theirs]


def principal_coordinates(full: Rows) -> np.ndarray:
    """Return rows in at most 64 dimensions, on principal axes, with about the same distances.

    Rows given by their distances are embedded by classical multidimensional scaling.
    """
    N = full.X.shape[0]
    if not isinstance(full, LinearRows):
        centred = full.X - full.X.mean(0) - full.X.mean(1)[:, None] + full.X.mean()
        values, vectors = eigsh(-0.5 * centred, k=min(DIMENSIONS, N - 1), which="LA", v0=np.ones(N))
        found = vectors * np.sqrt(values.clip(0.0))
    else:
        X = full.lifted(slice(0, N))[:, :-2]
        D = X.shape[1]
        size = min(DIMENSIONS, D, N - 1)
        wide = size < D or sp.issparse(X)
        solver = "arpack" if wide and size < min(N, D) else "covariance_eigh"
        found = PCA(size, svd_solver=solver, random_state=0).fit_transform(X)
    return np.ascontiguousarray(found, np.float32)


def silhouette(sums: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean silhouette coefficient, from sums of distances to the clusters (N, K).

    The distances are PAC's, squared Euclidean ones, so that the sums come from moments.
    """
    rows, sizes = np.arange(len(labels)), np.bincount(labels, minlength=sums.shape[1])
    if (sizes > 0).sum() < 2:
        return 0.0
    own = sums[rows, labels].clip(0.0) / np.maximum(sizes[labels] - 1, 1)
    means = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.inf)
    means[rows, labels] = np.inf
    other = means.min(1)
    values = (other - own) / np.maximum(np.maximum(own, other), np.finfo(np.float32).tiny)
    return float(np.where(sizes[labels] > 1, values, 0.0).mean())


def join(P: np.ndarray, sums: np.ndarray, K: int) -> np.ndarray:
    """Return P with K columns: the two closest clusters by Ward's criterion are joined repeatedly.

    `sums` are sum_ij p_ik p_jl d_ij. Joining k and l raises the scatter within clusters by
    n_k n_l / (n_k + n_l) times (their mean distance - half of those within each), here doubled.
    """
    sums, members = sums.astype(np.float64), np.eye(P.shape[1], dtype=P.dtype)
    mass = P.sum(0, dtype=np.float64)
    while len(mass) > K:
        inverse = mass_factor(mass, 0.0)
        within = np.diagonal(sums) * inverse**2
        rise = 2.0 * sums * np.outer(inverse, inverse) - within[:, None] - within
        rise /= inverse[:, None] + inverse
        rise[np.tril_indices(len(rise))] = np.inf
        kept, gone = np.unravel_index(rise.argmin(), rise.shape)
        for array in (members.T, mass, sums, sums.T):
            array[kept] += array[gone]
        members, mass = np.delete(members, gone, 1), np.delete(mass, gone)
        sums = np.delete(np.delete(sums, gone, 0), gone, 1)
    return P @ members


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a K, means over the runs, and whether it was chosen."""

    n_clusters: int
    score: float  # the largest is chosen
    silhouette: float
    silhouette_null: float  # of a single Gaussian
    agreement: float  # kappa of nearest neighbours' labels: 0 is chance, 1 is perfect
    agreement_null: float
    stability: float  # ARI of the partitions of two runs; 0 is chance
    objective: float  # Eq. 1 divided by the number of pairs
    seconds: float  # per run
    chosen: bool


@dataclass(frozen=True)
class Selection:
    """The chosen K, the interval that fits nearly as well, the reason, and a table of all."""

    n_clusters: int
    interval: tuple[int, int]  # the numbers that the data does not tell from the best
    reason: str
    clear: bool
    table: list[Candidate] = field(repr=False)

    def to_csv(self) -> str:
        """Return the table as CSV with a header; `chosen` is 1 in one row and 0 in the others."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(column.name for column in fields(Candidate))
        for row in self.table:
            values = asdict(row).values()
            writer.writerow(f"{v:.6g}" if isinstance(v, float) else int(v) for v in values)
        return text.getvalue()

    def plot_svg(self) -> str:
        """Return score and stability by K as a small picture, in the colour of the text around."""
        K, (low, high) = [row.n_clusters for row in self.table], self.interval
        curves = {
            name: curve(
                K,
                [getattr(row, name) for row in self.table],
                label=name,
                unit="clusters",
                mark=self.n_clusters,
            )
            for name in ("score", "stability")
        }
        also = f" ({low} to {high} fit nearly as well)" if low < high else ""
        return stack(f"{self.n_clusters} clusters are chosen{also}", curves)


def selection_from(runs: list[SubsampleRun]) -> Selection:
    """Return the selection from the measurements of all runs."""
    K = sorted(runs[0].measured)

    def mean(name: str, of_null: int = 0) -> np.ndarray:
        values = [[getattr(run.measured[k][of_null], name) for k in K] for run in runs]
        return np.mean(values, axis=0)

    means = {name: mean(name) for name in (*MEASURES, "objective", "seconds")}
    means |= {f"{name}_null": mean(name, 1) for name in MEASURES}
    means["stability"] = np.array([_stability(runs, k) for k in K])
    gains = [means[name] - means[f"{name}_null"] for name in MEASURES]
    means["score"] = np.mean([gain / max(gain.max(), SMALLEST_GAIN) for gain in gains], axis=0)
    means["score"] -= PENALTY * np.log(K)
    best = int(means["score"].argmax())
    table = [
        Candidate(K[i], chosen=i == best, **{name: float(v[i]) for name, v in means.items()})
        for i in range(len(K))
    ]
    clear = bool(sum(gain.max() for gain in gains) >= STRUCTURE)
    close = float(np.interp(means["agreement"][best], (0.9, 1.0), CLOSE))
    low, high = _interval(means["score"], best, close)
    reason = _reason(table, best, (K[low], K[high]), clear)
    return Selection(K[best], (K[low], K[high]), reason, clear, table)


def _stability(runs: list[SubsampleRun], K: int) -> float:
    """Return the mean ARI of consecutive runs, on the rows that both have."""
    pairs = zip(runs, runs[1:] + runs[:1], strict=True)
    return float(np.mean([adjusted_rand_score(*a.common_labels(b, K)) for a, b in pairs]))


def _interval(score: np.ndarray, best: int, close: float) -> tuple[int, int]:
    """Return the first and the last of the candidates around the best that score nearly as high."""
    far = np.flatnonzero(score < score[best] - close)
    after = np.append(far[far > best], len(score))
    return int(max(far[far < best], default=-1)) + 1, int(after[0]) - 1


def _reason(table: list[Candidate], best: int, interval: tuple[int, int], clear: bool) -> str:
    """Return in words why this K was chosen, and which others fit nearly as well."""
    row, ends = table[best], f"{table[0].n_clusters} to {table[-1].n_clusters}"
    facts = (
        f"silhouette {row.silhouette:.2f} ({row.silhouette_null:.2f} for a single Gaussian), "
        f"agreement of neighbours {row.agreement:.2f} ({row.agreement_null:.2f})"
    )
    if not clear:
        return (
            f"No clear structure: no number of clusters from {ends} gives clusters better "
            f"separated than those of a single Gaussian; the best is K={row.n_clusters}, {facts}. "
            "If you know K, pass it."
        )
    if len(table) == 1:
        return f"K={row.n_clusters} is the only candidate: {facts}."
    close = f"and {interval[0]} to {interval[1]} nearly as well"
    close = close if interval[0] < interval[1] else "and no other comes close"
    text = f"{row.n_clusters} clusters fit best of {ends}, {close}: {facts}."
    more = " It is the largest candidate: with larger ones, more clusters may be found."
    return text + (more if best == len(table) - 1 else "")
