"""Select the number of clusters: the K whose clusters gain most over data without groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

from probagg.aggregation import critical_m_from_growth
from probagg.errors import InputError
from probagg.estimators import CONSTRAINTS as SHARED
from probagg.estimators import draw_seed
from probagg.pac.checks import CONSTRAINTS, ROWS, check_distances, check_sparse, explained
from probagg.pac.readings import Run, coordinates
from probagg.pac.selection import Selection, choose
from probagg.pac.solver import choose_m, rows_of
from probagg.pac.sweeps import Update

LARGEST_AUTO = 60
SAMPLE_ROWS = 2_000  # used of a larger set, or
ROWS_PER_CLUSTER = 15  # of the largest candidate, where that is more
LEAST_PER_CLUSTER = 4  # rows of all, on average, of the largest candidate
N_RUNS = 3


def select_n_clusters(
    X: Any,
    candidates: str | Iterable[int] = "auto",
    *,
    metric: str | Callable[..., float] = "sqeuclidean",
    m: float | str = "auto",
    balance: float = 1.0,
    n_runs: int = N_RUNS,
    random_state: Any = None,
    progress: Callable[[int, int], None] | None = None,
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
    rows = coordinates(full)
    runs = [Run(rows, update, seed) for seed in generator.integers(2**63, size=n_runs).tolist()]
    _read(runs, numbers, progress)
    selection = choose(runs)
    around = _skipped(numbers, selection.n_clusters) if isinstance(candidates, str) else []
    if around:
        _read(runs, around)
        selection = choose(runs)
    return selection


def _prepare(X: Any, metric: Any, n_rows: int, generator: np.random.Generator) -> Any:
    """Return X, or a sample of it, as the rows of a sweep."""
    if X.shape[0] > n_rows:
        sample = np.sort(generator.choice(X.shape[0], n_rows, replace=False))
        X = X[np.ix_(sample, sample)] if metric == "precomputed" else X[sample]
    return rows_of(X, metric)


def estimate_seconds(candidates: Any, n_rows: int, n_columns: int) -> float:
    """Estimate the time of a selection: measured on an idle ARM core, good to a factor of 2."""
    numbers = _numbers(candidates, n_rows)
    n_rows = min(n_rows, max(SAMPLE_ROWS, ROWS_PER_CLUSTER * numbers[-1]))
    return 0.5 + N_RUNS * 6e-7 * (n_rows + 300) * _work(numbers).sum() + 4e-7 * n_rows * n_columns


def _work(numbers: list[int]) -> np.ndarray:
    """Return the relative cost of each number, the largest first; it starts from no clusters."""
    work = np.array(sorted(numbers, reverse=True)) + 20.0
    work[0] *= 8.0
    return work


def _read(
    runs: list[Run], numbers: list[int], progress: Callable[[int, int], None] | None = None
) -> None:
    """Read all numbers in all runs, the largest first."""
    show = progress or (lambda done, total: None)
    show(0, 100)
    share = _work(numbers).cumsum() / _work(numbers).sum()
    for i, run in enumerate(runs):
        for K, part in zip(sorted(numbers, reverse=True), share, strict=True):
            run.read(K)
            show(round(100 * (i + part) / len(runs)), 100)


def _choose_m(m: float | str, full: Any) -> float:
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


def _pair(candidates: Any, low: int, high: int) -> list[int]:
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
