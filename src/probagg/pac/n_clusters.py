"""Select the number of clusters: how probable each K is, from readings of a tree of clusters.

Rows are averaged over their neighbours, which makes gaps between groups visible, and joined into a
tree by Ward's criterion. At each K the tree is cut and read: how well clusters are separated
(silhouette), how often neighbours share one (modularity), both also for a single Gaussian, and
where the scatter within clusters has its elbow. A logistic model turns readings into probabilities;
its weights were learned on data with known groups (`python -m benchmarks pac_select --learn`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence, Set
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse.linalg import eigsh
from scipy.special import softmax
from sklearn.decomposition import PCA
from sklearn.utils import check_array
from sklearn.utils._param_validation import validate_parameter_constraints

from probagg.aggregation import Array
from probagg.errors import InputError
from probagg.estimators import draw_seed
from probagg.known import check_known_labels
from probagg.neighbours.graph import mean_over, modularity, nearest_rows
from probagg.pac.inputs import CONSTRAINTS, ROWS, check_distances, check_sparse, explained
from probagg.pac.rows import LinearRows, Metric, Rows
from probagg.pac.solver import rows_of

LARGEST_AUTO = 60
# A larger set is sampled: so many rows, or so many per cluster of the largest candidate.
SAMPLE_ROWS = 2_000
ROWS_PER_CLUSTER = 15
# The largest candidate has at least so many rows per cluster, on average.
LEAST_PER_CLUSTER = 4
DIMENSIONS = 64
NEIGHBOURS = 10
# Rows are averaged so often over their nearest rows.
ROUNDS = 3
# A cut of the tree is improved by so many iterations of k-means.
ITERATIONS = 3
N_NULLS = 2
# Columns are judged on so many rows, where there are not more columns than this.
FEW_ROWS = 400
FEW_COLUMNS = 100
# A column is unrelated to the others if they explain less than the first, where they explain more
# than the second of at least two columns.
UNRELATED, RELATED = 0.0, 0.05
# So many of them are named.
NAMED = 8
# The interval has at least this probability. It is no clear number where its ends differ by more
# than a factor of WIDE.
LEVEL = 0.8
WIDE = 4.0
# The weights of the readings in the logarithm of the probability.
WEIGHTS = {
    "silhouette": 2.76,
    "silhouette_gain": 4.92,
    "modularity_gain": 8.1,
    "elbow": 2.21,
    "log_k": -0.78,
}
# There is no clear structure where no number gains more than this over a single Gaussian.
STRUCTURE = 0.17


def select_n_clusters(
    X: Any,
    candidates: str | Iterable[int] = "auto",
    *,
    metric: Metric = "sqeuclidean",
    feature_names: Sequence[Any] | None = None,
    known_labels: Any = None,
    random_state: Any = None,
) -> Selection:
    """Choose the number of clusters, without labels, and say how far the data leave it open.

    The answer is a probability for each candidate, learned on data with known groups: of the
    intervals of 80 %, at least 80 % hold the number of classes (docs/choosing.md has the sets).
    Classes are one of several valid groupings, so a narrow interval may hold another one.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
        The rows, or all distances for `metric="precomputed"`. At most 2,000 rows (15 per cluster if
        that is more) are used, in at most 64 dimensions (by PCA; for metrics that need all
        distances, by classical multidimensional scaling). Of at most 100 columns, those that are
        unrelated to all others are left out.
    candidates : "auto", tuple (low, high) or iterable of int, default="auto"
        The numbers to compare. A tuple of two is a range with both ends. A list, range or set holds
        exactly the candidates; a list of two is an error, as it could mean either. "auto" is every
        number from 2 to 60, or to sqrt(2 n_samples) if that is less.
    metric
        As in :class:`probagg.PAC`.
    feature_names : sequence or None, default=None
        What the reason calls columns that are left out: by default the names of a DataFrame, or
        numbers from 0.
    known_labels : array-like of shape (n_samples,) or None, default=None
        As in :meth:`PAC.fit <probagg.PAC.fit>`: there are at least as many clusters as classes.
    random_state : int, RandomState instance or None, default=None
        Determines the sample of rows and the nulls.

    Returns
    -------
    Selection
        `n_clusters` (the most probable), `interval` (of 80 %), `reason` (in words),
        `clear` (False if there is no clear structure or no clear number), `table` (one row per
        candidate), `to_csv()`.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from probagg import select_n_clusters
    >>> X, _ = make_blobs(600, 4, centers=6, random_state=3)
    >>> select_n_clusters(X, (2, 10), random_state=0).n_clusters
    6
    """
    validate_parameter_constraints(CONSTRAINTS, {"metric": metric}, caller_name="select_n_clusters")
    generator = np.random.default_rng(draw_seed(random_state))
    names = getattr(X, "columns", None) if feature_names is None else feature_names
    with explained(X):
        X = check_sparse(check_array(X, input_name="X", **ROWS), metric)
    X = check_distances(X) if metric == "precomputed" else X
    numbers = _numbers(candidates, X.shape[0])
    known = check_known_labels(known_labels, X.shape[0], numbers[-1])
    numbers = [K for K in numbers if known is None or known.max() < K]
    read, left_out = read_rows(X, metric, numbers, generator)
    return selection_from(read, [j if names is None else names[j] for j in left_out])


def _sample(X: Array, metric: Metric, n_rows: int, generator: np.random.Generator) -> Array:
    """Return X, or random rows of it."""
    if X.shape[0] <= n_rows:
        return X
    sample = np.sort(generator.choice(X.shape[0], n_rows, replace=False))
    return X[np.ix_(sample, sample)] if metric == "precomputed" else X[sample]


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
        return list(range(2, max(2, min(LARGEST_AUTO, int((2 * n_rows) ** 0.5), largest)) + 1))
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


def unrelated_columns(X: Array, generator: np.random.Generator) -> list[int]:
    """Return the columns that the others tell nothing about, where two others tell of each other.

    Each column is predicted by its mean over the 10 rows that are nearest in the other columns.
    Those of the same category, of which one excludes the other, do not count as others.
    """
    N, D = X.shape
    if sp.issparse(X) or not 3 <= D <= FEW_COLUMNS or N <= NEIGHBOURS:
        return []
    X = X[generator.choice(N, min(N, FEW_ROWS), replace=False)].astype(np.float64)
    largest, smallest = X.max(0), X.min(0)
    is_category = ((smallest == X) | (largest == X)).all(0)
    high = ((largest == X) & is_category).astype(np.float64)
    excludes = np.outer(is_category, is_category) & (high.T @ high == 0.0)
    squares = np.array([(x[:, None] - x) ** 2 for x in X.T])
    distances = squares.sum(0)
    np.fill_diagonal(distances, np.inf)
    share = np.ones(D)
    for j, x in enumerate(X.T):
        if (variance := x.var()) > 0.0:
            others = distances - squares[j] - squares[excludes[j]].sum(0)
            near = np.argpartition(others, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
            share[j] = 1.0 - ((x - x[near].mean(1)) ** 2).mean() / variance
    return np.flatnonzero(share < UNRELATED).tolist() if (share > RELATED).sum() >= 2 else []


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
        with np.errstate(invalid="ignore"):  # the ratio of variances of rows that are all the same
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


def read_rows(
    X: Array, metric: Metric, numbers: list[int], generator: np.random.Generator
) -> tuple[dict[str, np.ndarray], list[int]]:
    """Return what is read at each number, and which columns were left out."""
    X = _sample(X, metric, max(SAMPLE_ROWS, ROWS_PER_CLUSTER * numbers[-1]), generator)
    left_out = unrelated_columns(X, generator) if metric == "sqeuclidean" else []
    if left_out:
        X = np.delete(X, left_out, axis=1)
    rows = principal_coordinates(rows_of(X, metric))
    if not rows.any():
        raise InputError("All rows are the same: there is nothing to cluster. Check the data.")
    return readings(rows, numbers, generator), left_out


def readings(
    X: np.ndarray, numbers: list[int], generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return what is read at each number, of rows on principal axes and of their nulls."""
    K = np.array(numbers)
    found = read_tree(X, K[-1])
    nulls = [
        read_tree(X.std(0) * generator.standard_normal(X.shape, np.float32), K[-1])
        for _ in range(N_NULLS)
    ]
    log_scatter = np.log(found["scatter"])
    at = {
        "n_clusters": K,
        "silhouette": found["silhouette"][K],
        "silhouette_null": np.mean([null["silhouette"][K] for null in nulls], axis=0),
        "modularity": found["modularity"][K],
        "modularity_null": np.mean([null["modularity"][K] for null in nulls], axis=0),
        "elbow": log_scatter[K - 1] + log_scatter[K + 1] - 2.0 * log_scatter[K],
    }
    at |= {f"{name}_gain": at[name] - at[f"{name}_null"] for name in ("silhouette", "modularity")}
    return at | {"log_k": np.log(K)}


def read_tree(X: np.ndarray, largest: int) -> dict[str, np.ndarray]:
    """Return silhouette, modularity and scatter of averaged rows in up to `largest` + 1 clusters.

    They are indexed by the number of clusters.
    """
    near = nearest_rows(X, NEIGHBOURS)
    around = np.column_stack([np.arange(len(X)), near])
    for _ in range(ROUNDS):
        X = mean_over(around, X)
    squares = (X * X).sum(1)
    tree = linkage(X, "ward")
    found = {name: np.zeros(largest + 2) for name in ("silhouette", "modularity", "scatter")}
    for K in range(1, largest + 2):
        labels = _improve(X, fcluster(tree, K, "maxclust") - 1, K)
        members = np.eye(K, dtype=X.dtype)[labels]
        sizes = members.sum(0)
        sums = squares[:, None] * sizes - 2.0 * X @ (members.T @ X).T + members.T @ squares
        own = sums[np.arange(len(X)), labels].clip(0.0)
        # Fewer distinct rows than clusters leave some empty.
        filled = np.count_nonzero(sizes) / K
        found["silhouette"][K] = filled * silhouette(sums, labels)
        found["modularity"][K] = filled * modularity(near, labels)
        found["scatter"][K] = 0.5 * (own / sizes[labels]).mean()
    smallest = 1e-6 * found["scatter"][1]
    found["scatter"] = np.maximum(found["scatter"], smallest or 1.0)
    return found


def _improve(X: np.ndarray, labels: np.ndarray, K: int) -> np.ndarray:
    """Return the labels after a few iterations of k-means."""
    for _ in range(ITERATIONS if K > 1 else 0):
        members = np.eye(K, dtype=X.dtype)[labels]
        sizes = members.sum(0)
        means = members.T @ X / np.maximum(sizes, 1.0)[:, None]
        distances = (means * means).sum(1) - 2.0 * X @ means.T
        labels = np.where(sizes > 0, distances, np.inf).argmin(1)
    return labels


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a K, its probability, what was read, and whether it was chosen."""

    n_clusters: int
    probability: float  # if there are groups
    silhouette: float
    silhouette_null: float  # of a single Gaussian
    modularity: float  # the share of neighbours in the same cluster, less the share by chance
    modularity_null: float
    elbow: float  # how much more the scatter falls up to this number than beyond it, as logarithm
    chosen: bool


@dataclass(frozen=True)
class Selection:
    """The chosen K, the interval of 80 %, the reason, and a table of all candidates."""

    n_clusters: int
    interval: tuple[int, int]
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


def selection_from(read: dict[str, np.ndarray], left_out: list[Any]) -> Selection:
    """Return the selection from the readings of all candidates, and what columns are called."""
    K = read["n_clusters"]
    P = probabilities(read)
    low, high = _interval(P)
    best = int(P.argmax())
    names = [column.name for column in fields(Candidate)[2:-1]]
    columns: list[list[Any]] = [K.tolist(), P.tolist(), *(read[name].tolist() for name in names)]
    chosen = [i == best for i in range(len(K))]
    table = [Candidate(*row) for row in zip(*columns, chosen, strict=True)]
    interval = int(K[low]), int(K[high])
    has_groups = bool((read["silhouette_gain"] + read["modularity_gain"]).max() >= STRUCTURE)
    clear = has_groups and interval[1] <= WIDE * interval[0]
    reason = _reason(table, best, interval, has_groups)
    if left_out:
        named = ", ".join(str(name) for name in left_out[:NAMED])
        more = f" and {len(left_out) - NAMED} others" if len(left_out) > NAMED else ""
        reason += f" Columns left out as unrelated to the others: {named}{more}."
    return Selection(int(K[best]), interval, reason, clear, table)


def probabilities(read: dict[str, np.ndarray]) -> np.ndarray:
    """Return the probability of each candidate, if there are groups."""
    score = np.sum([weight * read[name] for name, weight in WEIGHTS.items()], axis=0)
    # A candidate stands for the numbers around it: before anything is read, log K is uniform.
    if len(score) > 1:
        score += np.log(np.gradient(read["log_k"]))
    return softmax(score)


def _interval(P: np.ndarray) -> tuple[int, int]:
    """Return the first and the last of the candidates around the most probable that have 80 %."""
    low = high = int(P.argmax())
    while P[low : high + 1].sum() < LEVEL - 1e-9:
        before = P[low - 1] if low > 0 else -1.0
        after = P[high + 1] if high < len(P) - 1 else -1.0
        low, high = (low - 1, high) if before >= after else (low, high + 1)
    return low, high


def _reason(table: list[Candidate], best: int, interval: tuple[int, int], has_groups: bool) -> str:
    """Return in words why this K was chosen, and which others are plausible."""
    row, ends = table[best], f"{table[0].n_clusters} to {table[-1].n_clusters}"
    facts = (
        f"silhouette {row.silhouette:.2f} ({row.silhouette_null:.2f} for a single Gaussian), "
        f"modularity {row.modularity:.2f} ({row.modularity_null:.2f})"
    )
    within = f"{interval[0]} to {interval[1]} clusters have a probability of 80 %"
    if not has_groups:
        return (
            f"No clear structure: the rows look like a single Gaussian at every number of clusters "
            f"from {ends}. K={row.n_clusters} is used, {facts}. If you know K, pass it."
        )
    if len(table) == 1:
        return f"K={row.n_clusters} is the only candidate: {facts}."
    if interval[1] > WIDE * interval[0]:
        return (
            f"No clear number: {within}, of {ends}; K={row.n_clusters} is used, {facts}. If you "
            "know K, pass it."
        )
    close = f"and {within}" if interval[0] < interval[1] else "and no other comes close"
    text = f"{row.n_clusters} clusters fit best of {ends}, {close}: {facts}."
    more = " It is the largest candidate: with larger ones, more clusters may be found."
    return text + (more if best == len(table) - 1 else "")
