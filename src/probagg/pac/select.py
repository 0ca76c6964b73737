"""Select the number of clusters: the K whose clusters are recovered and separated best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils._param_validation import validate_parameter_constraints

from probagg.aggregation import LINEAR_METRICS, critical_m_from_growth
from probagg.errors import InputError
from probagg.estimators import draw_seed
from probagg.pac.checks import CONSTRAINTS, ROWS, check_distances, check_sparse
from probagg.pac.halves import Measures, measure
from probagg.pac.selection import Selection, choose
from probagg.pac.solver import choose_m, rows_of
from probagg.pac.sweeps import Update

LARGEST_AUTO = 60
SAMPLE_ROWS = 10_000  # used of a larger set
SAMPLE_DISTANCES = 4_000  # rows, for a metric that needs all distances


def select_n_clusters(
    X: Any,
    candidates: str | Iterable[int] = "auto",
    *,
    metric: str | Callable[..., float] = "sqeuclidean",
    m: float | str = "auto",
    balance: float = 1.0,
    n_runs: int = 5,
    random_state: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Choose the number of clusters for PAC, without labels.

    In each run the rows are split at random into halves, and PAC clusters both with every
    candidate K. For each cluster of one half, two numbers are measured on the rows of the other:
    its recovery r (the Jaccard index with the most similar cluster of the other half) and its
    separation g (how empty the gap is to the cluster it is least separated from: 1 is empty, 0 is
    no gap, and g is negative where rows are densest in between). The K with the largest

        score(K) = sum_k (r_k g_k - 0.1),

    a mean over halves and runs, is chosen. One cluster for all rows would score 0: where no
    candidate scores more, the data has no clear structure, and `reason` says so.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
        The rows, or all distances for `metric="precomputed"`. Of more than 10,000 rows a random
        sample of 10,000 is used (of 4,000 for metrics that need all distances).
    candidates : "auto", tuple (low, high) or iterable of int, default="auto"
        The numbers to compare. A tuple of two is a range with both ends; a list, range or set holds
        exactly the candidates, except that a list of two is an error, as it could mean either.
        "auto" is 2 to 60, or to sqrt(2 n_samples) where that is less: every number up to 20, steps
        of a tenth above, and then every number between the neighbours of the best.
    metric, m, balance
        As in :class:`probagg.PAC`.
    n_runs : int, default=5
        How many pairs of halves to draw; they are the same for every candidate.
    random_state : int, RandomState instance or None, default=None
        Determines the halves and the starts.
    progress : callable or None, default=None
        Called as `progress(done, total)` after each candidate of each run; "auto" starts again at 1
        for the numbers around the best.

    Returns
    -------
    Selection
        `n_clusters`, `reason` (in words), `clear` (False where the data has no clear structure),
        `table` (one row per candidate), `to_csv()`, `plot_svg()`.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from probagg import select_n_clusters
    >>> X, _ = make_blobs(600, 4, centers=6, random_state=3)
    >>> select_n_clusters(X, (2, 10), n_runs=2, random_state=0).n_clusters
    6
    """
    validate_parameter_constraints(
        CONSTRAINTS | {"n_runs": CONSTRAINTS["n_init"]},
        {"metric": metric, "m": m, "balance": balance, "n_runs": n_runs},
        caller_name="select_n_clusters",
    )
    generator = np.random.default_rng(draw_seed(random_state))
    full = _prepare(X, metric, generator)
    numbers = _numbers(candidates, full.X.shape[0])
    update = Update(_choose_m(m, full), "p", balance)
    seeds = generator.integers(2**63, size=n_runs).tolist()
    runs = _measure(full, update, numbers, seeds, progress)
    around = _skipped(numbers, choose(runs).n_clusters) if isinstance(candidates, str) else []
    if around:
        more = _measure(full, update, around, seeds, progress)
        runs = [
            sorted(a + b, key=lambda measures: measures.n_clusters)
            for a, b in zip(runs, more, strict=True)
        ]
    return choose(runs)


def _prepare(X: Any, metric: Any, generator: np.random.Generator) -> Any:
    """Return X, or a sample of it, validated and as the rows of a sweep."""
    X = check_sparse(check_array(X, input_name="X", **ROWS), metric)
    X = check_distances(X) if metric == "precomputed" else X
    size = SAMPLE_ROWS if metric in LINEAR_METRICS else SAMPLE_DISTANCES
    if X.shape[0] > size:
        sample = np.sort(generator.choice(X.shape[0], size, replace=False))
        X = X[np.ix_(sample, sample)] if metric == "precomputed" else X[sample]
    return rows_of(X, metric)


def _measure(
    full: Any,
    update: Update,
    numbers: list[int],
    seeds: list[int],
    progress: Callable[[int, int], None] | None,
) -> list[list[Measures]]:
    """Return one list per seed, candidates in rising order. A seed always gives the same halves."""
    runs: list[list[Measures]] = []
    for run, seed in enumerate(seeds):
        runs.append([])
        for measures in measure(full, update, numbers, np.random.default_rng(seed)):
            runs[-1].insert(0, measures)
            if progress is not None:
                progress(run * len(numbers) + len(runs[-1]), len(seeds) * len(numbers))
    return runs


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
    largest = n_rows // 4  # two rows per cluster in each half
    if largest < 2:
        raise InputError(
            f"X has {n_rows} rows, and halves of it are clustered: at least 8 are needed. Pass "
            "more rows, or choose the number of clusters yourself."
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
            f"2 to {largest}: clusters are compared with each other, in halves of the data with "
            "two rows per cluster. Choose candidates within that range."
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
    """Return numbers from 2 to `top`: every number up to 20, then in steps of a tenth."""
    numbers = [2]
    while numbers[-1] < top:
        numbers.append(min(top, numbers[-1] + max(1, numbers[-1] // 10)))
    return numbers


def _skipped(numbers: list[int], best: int) -> list[int]:
    """Return the numbers between the neighbours of the best that are not candidates yet."""
    at = numbers.index(best)
    low, high = numbers[max(0, at - 1)], numbers[min(at + 1, len(numbers) - 1)]
    return [K for K in range(low, high) if K not in numbers]
