"""Warnings of a fit: problems, sizes that do not fit, columns whose scales differ; with advice."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize

from probagg.aggregation import LINEAR_METRICS, Array
from probagg.arrays import is_tensor, to_numpy
from probagg.environment import one_thread
from probagg.errors import ClusteringWarning
from probagg.neighbours.graph import (
    nearest_rows,
    neighbour_agreement,
    plain_rows,
    without_themselves,
)
from probagg.pac.files import FileRows
from probagg.pac.inputs import RowSource
from probagg.pac.out_of_core import Chunks
from probagg.pac.rows import Metric
from probagg.pac.solver import Solution

# A cluster is tiny below this share of the mean size.
TINY = 0.05
# Equal sizes are forced where the score of k-means' clusters is higher by this much, and they are
# others by their adjusted Rand index.
FORCED = 0.055
ALIKE = 0.85
# They are compared for at most so many clusters: for more, k-means takes longer than PAC.
MOST_CLUSTERS = 100
# So many rows, or so many per cluster, are compared, by the neighbours of a share of them.
COMPARED_ROWS, ROWS_PER_CLUSTER = 1_000, 20
NEIGHBOURS, SHARE = 10, 0.2
# In at most so many columns: principal axes of wider rows. Rows with larger or smaller values are
# divided by a power of two before.
FEW_COLUMNS = 32
SMALLEST, LARGEST = 1e-15, 1e15
# k-means is the best of so many starts after some iterations, and so many more.
SHORT_STARTS, SHORT_ITERATIONS, MORE_ITERATIONS = 16, 3, 15
# `PAC.fit` warns where scales differ by this factor. Standard deviations are computed from so many
# rows, of a file from so many of its chunks. The smallest few columns do not count, nor does one
# with the same value in nearly all rows, as a rare pixel has.
LARGE_FACTOR = 100.0
ROWS = 1_000
CHUNKS = 8
FEW = 0.05
NEARLY_ALL = 0.9
FORCED_SIZES = "Clusters of about equal size do not fit these samples"


def advise(solution: Solution, X: Array | Chunks) -> list[tuple[str, type[Warning]]]:
    """Return what a user should know about the clusters of X, each with its kind of warning."""
    found = problems(solution)
    if found:
        return [(problem, ConvergenceWarning) for problem in found]
    problem = uneven_sizes(solution) or forced_sizes(solution, X)
    return [(problem, ClusteringWarning)] if problem else []


def problems(solution: Solution) -> list[str]:
    """Return what went wrong, each with what to do; consequences of a cause are left out."""
    parameters, clusters = solution.parameters, solution.clusters
    m, critical_m = clusters.update.m, clusters.critical_m
    if critical_m == 1.0:
        return ["All samples are the same: there is nothing to cluster. Check the data."]
    is_uniform = solution.departure < 1e-6
    if m >= critical_m:
        so = "another start may end in them"
        if is_uniform:
            so = f"all stay near 1/{parameters.n_clusters}: no cluster forms"
        paper = " (the paper uses 1.03)" if critical_m > 1.03 else ""
        return [
            f"m={m:.4g} is at or above the critical value {critical_m:.4g} of this data: uniform "
            f"probabilities are stable there, and {so}. Lower m below it{paper} or pass m='auto'."
        ]
    if is_uniform:
        return [
            "All probabilities are still equal. If the columns of init are equal, pass an init "
            "with some noise, or init='uniform'. If m is just below the critical value "
            f"{critical_m:.4g}, lower m or raise max_iter."
        ]
    found = []
    if not solution.converged:
        found.append(
            f"PAC still changed after max_iter={parameters.max_iter} sweeps. Raise max_iter, or "
            f"tol (now {parameters.tol:g})."
        )
    n_empty = int((solution.sizes < 0.5).sum())
    if n_empty:
        found.append(
            f"{n_empty} of {parameters.n_clusters} clusters lost all their samples. Use fewer "
            "clusters or lower m; fewer distinct rows than clusters also cause this."
        )
    return found


def uneven_sizes(solution: Solution) -> str | None:
    """Return advice where many clusters are tiny beside the others, which outliers cause."""
    sizes, K = solution.sizes, solution.parameters.n_clusters
    tiny = int((sizes < TINY * sizes.mean()).sum())
    if sizes.sum() < 100 * K or tiny < max(2, K / 4):
        return None
    balance = solution.clusters.update.balance
    raise_it = f", or raise balance (now {balance:g}; the paper's is 1)" if balance < 1.0 else ""
    return (
        f"{tiny} of {K} clusters have less than {100 * TINY:.0f} % of the mean size, the largest "
        f"has {100 * sizes.max() / sizes.sum():.0f} % of the samples: the small ones may be "
        f"outliers. Use fewer clusters, scale the columns alike, leave outliers out{raise_it}."
    )


def forced_sizes(solution: Solution, X: Array | Chunks) -> str | None:
    """Return advice where clusters of equal size cut through dense groups, or None.

    Then k-means, which does not prefer equal sizes, finds other clusters that fit better. On few
    rows and axes it takes a fraction of PAC's time.
    """
    K, N, metric = solution.parameters.n_clusters, X.shape[0], solution.parameters.metric
    is_judged = solution.clusters.update.balance >= 1.0 and 1 < K <= min(MOST_CLUSTERS, N // 20)
    if isinstance(X, Chunks) or solution.P is None or metric not in LINEAR_METRICS or not is_judged:
        return None
    size = min(N, max(COMPARED_ROWS, ROWS_PER_CLUSTER * K))
    chosen = np.random.default_rng(0).choice(N, size, replace=False)
    with one_thread():
        rows = _in_range(plain_rows(X[chosen]))
        rows = _few_columns(normalize(rows) if metric == "cosine" else rows)
        used, labels = to_numpy(solution.P[chosen]).argmax(1), short_kmeans(rows, K)
        if adjusted_rand_score(used, labels) >= ALIKE:
            return None
        before, after = fit_scores(rows, [used, labels], K)
    if after - before < FORCED:
        return None
    return (
        f"{FORCED_SIZES}: k-means' clusters fit better (by {after - before:.2f} in a score: "
        "neighbours have the same label more often, and samples are closer to the mean of their "
        "cluster). Use GraphPAC (at balance=0.5 where sizes differ by a factor of 10 or more), or "
        "pass balance=0, which does not prefer equal sizes."
    )


def fit_scores(rows: Array, clusterings: Sequence[np.ndarray], K: int) -> list[float]:
    """Return how well clusters fit rows: agreement of neighbours less the log of the spread.

    Agreement is that of `neighbour_agreement`, over rows and over clusters. The spread is the sum
    of squares within clusters. Random categories and noise mislead neighbours, but hardly the
    spread.
    """
    N, found = rows.shape[0], []
    some = rows[: int(SHARE * N)]
    near = without_themselves(nearest_rows(some, NEIGHBOURS + 1, among=rows))
    rows = rows.astype(np.float64)
    rows = rows if sp.issparse(rows) else rows - rows.mean(0)
    squares = (rows * rows).sum()
    for labels in clusterings:
        agreement = sum(neighbour_agreement(labels, near, K))
        members = sp.csr_array((np.ones(N), (labels, np.arange(N))), shape=(K, N))
        sums = members @ rows
        between = ((sums * sums).sum(1) / np.maximum(members.sum(1), 1.0)).sum()
        spread = max(float(squares - between), 1e-9 * float(squares), 1e-300)
        found.append(agreement - float(np.log(spread)))
    return found


def short_kmeans(rows: Array, n_clusters: int) -> np.ndarray:
    """Return labels by k-means: the best of many short runs from k-means++ starts, run on.

    All starts are computed at once, in a tenth of the time of as many runs of `KMeans`.
    """
    X = rows.toarray() if sp.issparse(rows) else rows
    X = (X - X.mean(0, dtype=np.float64)).astype(np.float32)
    generator, squares = np.random.default_rng(0), np.einsum("ij,ij->i", X, X)
    drawn = generator.integers(len(X), size=SHORT_STARTS)
    means = np.empty((SHORT_STARTS, n_clusters, X.shape[1]), X.dtype)
    nearest = np.full((SHORT_STARTS, len(X)), np.inf, X.dtype)
    for k in range(n_clusters):
        means[:, k] = X[drawn]
        distances = (squares - 2.0 * (X[drawn] @ X.T) + squares[drawn, None]).clip(0.0)
        nearest = np.minimum(nearest, distances)
        sums = np.cumsum(nearest, axis=1, dtype=np.float64)
        limits = generator.random((SHORT_STARTS, 1)) * sums[:, -1:]
        drawn = np.minimum((sums < limits).sum(1), len(X) - 1)
    means, spreads, _ = _iterate(X, means, SHORT_ITERATIONS)
    best = spreads.argmin()
    return _iterate(X, means[best : best + 1], MORE_ITERATIONS)[2][0]


def _iterate(X: np.ndarray, means: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means (runs, K, D), spreads (runs,) and labels (runs, rows) after n iterations."""
    for _ in range(n):
        distances = np.square(means).sum(2)[..., None] - 2.0 * (means @ X.T)
        smallest = distances.min(1, keepdims=True)
        members = (distances == smallest).astype(X.dtype)
        sizes = members.sum(2)[..., None]
        means = np.where(sizes > 0.0, members @ X / np.maximum(sizes, 1.0), means)
    return means, smallest.sum((1, 2)), members.argmax(1)


def _in_range(rows: Array) -> Array:
    """Return rows whose squares neither overflow nor vanish: divided by a power of two, if needed.

    Neighbours and k-means' clusters do not depend on the unit.
    """
    largest = float(abs(rows).max())
    if largest == 0.0 or SMALLEST < largest < LARGEST:
        return rows
    # The power itself may overflow, and SciPy divides by multiplying with its reciprocal.
    shift = 1 - int(np.frexp(largest)[1])
    if not sp.issparse(rows):
        return np.ldexp(rows, shift)
    rows = rows.copy()
    rows.data = np.ldexp(rows.data, shift)
    return rows


def _few_columns(rows: Array) -> Array:
    """Return rows, on principal axes where they have many columns; sparse rows are not centred."""
    if rows.shape[1] <= 2 * FEW_COLUMNS:
        return rows
    from sklearn.decomposition import TruncatedSVD  # slow to import

    return TruncatedSVD(FEW_COLUMNS, n_iter=1, random_state=0).fit_transform(rows)


@dataclass(frozen=True)
class Scales:
    """The columns with the largest and the smallest standard deviation that count."""

    largest: int
    smallest: int
    high: float
    low: float

    @property
    def factor(self) -> float:
        """How many times larger the largest standard deviation is."""
        return self.high / self.low


def differing_scales(X: np.ndarray, factor: float) -> Scales | None:
    """Return the largest and the smallest scale where they differ by more than `factor`, or None.

    A scale is the standard deviation of a column, without its missing values (NaN). Constant
    columns do not count, nor does the smallest twentieth of more than 20 columns, nor a column
    other than the largest with one value in nine of ten rows.

    >>> X = np.array([[1.0, 0.0, 7.0], [2.0, 500.0, 7.0], [3.0, 1000.0, 7.0]])
    >>> scales = differing_scales(X, 100.0)
    >>> scales.largest, scales.smallest, round(scales.factor)
    (1, 0, 500)
    """
    X = np.asarray(X[:: 1 + len(X) // ROWS], np.float64)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without values
        spread, size = np.nanstd(X, axis=0), np.nanmax(np.abs(X), axis=0)
    varies = np.flatnonzero(spread > 1e-12 * size)  # the rest is constant, but for rounding
    if not len(varies) or not np.isfinite(spread[varies]).all():
        return None
    largest = int(varies[spread[varies].argmax()])
    if spread[largest] <= factor * spread[varies].min():
        return None
    order = varies[np.argsort(spread[varies], kind="stable")]
    counted = order[(order == largest) | ~_nearly_constant(X[:, order])]
    smallest = int(counted[int(FEW * (len(counted) - 1))])
    found = Scales(largest, smallest, float(spread[largest]), float(spread[smallest]))
    return found if found.factor > factor else None


def _are_components(X: np.ndarray) -> bool:
    """Return whether rows look like principal components, which have one unit.

    Nearly all of their means are 0, and nearly each has a smaller scale than the one before, within
    the errors of a sample; the last may be nothing but rounding errors.
    """
    spread, mean = X.std(axis=0, dtype=np.float64), X.mean(axis=0, dtype=np.float64)
    error = 100.0 * np.finfo(X.dtype).eps * spread.max() if X.dtype.kind == "f" else 0.0
    is_centred = np.abs(mean) <= 4.0 * spread / np.sqrt(len(X)) + error
    falls = spread[1:] <= 1.25 * spread[:-1] + error
    is_first = 1.25 * spread[0] >= spread.max() and spread[-1] <= 1.25 * spread.min() + error
    return bool(is_first and min(is_centred.mean(), falls.mean()) >= 1.0 - FEW)


def _nearly_constant(X: np.ndarray) -> np.ndarray:
    """Return which columns have one value in nearly all rows that have a value."""
    known = ~np.isnan(X)
    median = np.median(X, axis=0) if known.all() else np.nanmedian(X, axis=0)
    return (median == X).sum(0) > NEARLY_ALL * known.sum(0)


def uneven_scales(
    rows: RowSource, metric: Metric, names: Sequence[str] | None = None
) -> str | None:
    """Return the warning for rows whose columns differ in scale; None where there is no reason.

    Only squared Euclidean distances of dense rows are judged: counts and words of sparse rows have
    one unit. Of a Dask array nothing is computed.
    """
    if metric != "sqeuclidean" or (X := _some(rows)) is None:
        return None
    if (scales := differing_scales(X, LARGE_FACTOR)) is None or _are_components(X):
        return None
    large, small = (_name(j, names) for j in (scales.largest, scales.smallest))
    return (
        f"Columns differ in scale by a factor of {scales.factor:,.0f}: the standard deviation of "
        f"{large} is {scales.high:.3g}, that of {small} {scales.low:.3g}, so distances hardly see "
        "the second. If their units differ, standardise them: make_pipeline(StandardScaler(), "
        "PAC(...)), or --scale standard for a table. If they have one unit, as pixels or principal "
        "components, ignore this."
    )


def _name(column: int, names: Sequence[str] | None) -> str:
    return f"column {column}" if names is None else repr(str(names[column]))


def _some(rows: RowSource) -> np.ndarray | None:
    """Return at most a thousand rows or so as an array; None for rows that are not judged."""
    if isinstance(rows, FileRows):
        filled = list(rows.filled)
        read = filled[:: 1 + len(filled) // CHUNKS]
        return np.concatenate([_every(rows.read(chunk), ROWS // len(read)) for chunk in read])
    if is_tensor(rows):
        return rows[:: 1 + len(rows) // ROWS].detach().cpu().double().numpy()
    if sp.issparse(rows) or not isinstance(rows, np.ndarray):
        return None
    return _every(rows, ROWS)


def _every(X: np.ndarray, size: int) -> np.ndarray:
    """Return at most `size` rows, evenly spaced, as a copy."""
    return X[:: 1 + len(X) // size].copy()
