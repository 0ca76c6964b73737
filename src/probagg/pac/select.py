"""How many clusters: the K whose clusters come back and stand apart."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils._param_validation import validate_parameter_constraints

from probagg.aggregation import LINEAR_METRICS, critical_m_from_growth
from probagg.errors import InputError
from probagg.estimators import draw_seed
from probagg.pac.checks import CONSTRAINTS, ROWS, check_distances, check_sparse
from probagg.pac.curve import Curve, draw
from probagg.pac.halves import Judgement, judge
from probagg.pac.solver import choose_m, rows_of
from probagg.pac.sweeps import Update

LARGEST_AUTO = 60
SAMPLE_ROWS = 10_000  # of a larger set
SAMPLE_DISTANCES = 4_000  # rows of a set whose metric needs every distance
PRICE = 0.1  # of a cluster: pieces of a cloud without clusters reach 0.01 (docs/choosing.md)
CLEAR = 0.5  # of 1: separation times recovery, for "clearly" in words


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a K, means over the runs, and whether it was chosen."""

    n_clusters: int
    score: float  # what is compared
    score_sd: float  # between runs
    separation: float  # mean over clusters, at most 1
    recovery: float  # mean over clusters, 0 to 1
    stability: float  # ARI of the partitions that two halves of the data give; 0 is chance
    stability_sd: float
    objective: float  # Eq. 1 over the number of pairs, of a half
    seconds: float  # a run
    chosen: bool


@dataclass(frozen=True)
class Selection:
    """The K that was chosen, why, and how the others did."""

    n_clusters: int
    reason: str
    clear: bool
    table: list[Candidate]

    def to_csv(self) -> str:
        """The table with one header line; `chosen` is 1 in one row and 0 in the others."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(field.name for field in fields(Candidate))
        for row in self.table:
            values = asdict(row).values()
            writer.writerow(f"{v:.6g}" if isinstance(v, float) else int(v) for v in values)
        return text.getvalue()

    def plot_svg(self) -> str:
        """Score and stability against K as a small picture, in the colour of the text around it."""
        K = [row.n_clusters for row in self.table]
        score = Curve("score", [r.score for r in self.table], [r.score_sd for r in self.table])
        stability = Curve(
            "stability", [r.stability for r in self.table], [r.stability_sd for r in self.table]
        )
        return draw("clusters", K, [score, stability], self.n_clusters)


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
    candidate K. A cluster of one half counts by two numbers, measured in the rows of the other:
    its recovery r (the Jaccard index with the most similar cluster of the other half) and its
    separation g (how empty the gap is to the cluster it is least apart from; 1 empty, 0 no gap,
    negative where rows are densest in between). The choice is the K with the largest

        score(K) = sum_k (r_k g_k - 0.1),

    a mean over halves and runs. One cluster for all rows would score 0: where no candidate scores
    more, the data has no clear structure, and `reason` says so.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
        The rows, or all distances for `metric="precomputed"`. Of more than 10,000 rows a random
        10,000 are used (4,000 for metrics that need all distances).
    candidates : "auto", pair (low, high) or other iterable of int, default="auto"
        The numbers to compare; a tuple of two is a range with both ends. "auto" is 2 to 60, or to
        sqrt(2 n_samples) where that is less: every number to 20, steps of a tenth above, and then
        every number between the neighbours of the best.
    metric, m, balance
        As in :class:`probagg.PAC`; `m="auto"` is 1.03 or, where that is less, half-way to critical.
    n_runs : int, default=5
        Pairs of halves, the same for every candidate.
    random_state : int, RandomState instance or None, default=None
        Fixes the choice.
    progress : callable, optional
        Told (done, total) after each candidate of each run, from 1 again where "auto" looks closer.

    Returns
    -------
    Selection
        `n_clusters`, `reason` (a sentence or two), `clear` (whether there is structure at all),
        `table` (a row for each candidate), `to_csv()`, `plot_svg()`.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from probagg.pac.select import select_n_clusters
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
    runs = _judge(full, update, numbers, seeds, progress)
    around = _skipped(numbers, conclude(runs).n_clusters) if isinstance(candidates, str) else []
    if around:
        more = _judge(full, update, around, seeds, progress)
        runs = [
            sorted(a + b, key=lambda judged: judged.n_clusters)
            for a, b in zip(runs, more, strict=True)
        ]
    return conclude(runs)


def _prepare(X: Any, metric: Any, generator: np.random.Generator) -> Any:
    """X checked as PAC checks it, cut to a sample, and made ready for sweeps."""
    X = check_sparse(check_array(X, input_name="X", **ROWS), metric)
    X = check_distances(X) if metric == "precomputed" else X
    size = SAMPLE_ROWS if metric in LINEAR_METRICS else SAMPLE_DISTANCES
    if X.shape[0] > size:
        sample = np.sort(generator.choice(X.shape[0], size, replace=False))
        X = X[np.ix_(sample, sample)] if metric == "precomputed" else X[sample]
    return rows_of(X, metric)


def _judge(
    full: Any,
    update: Update,
    numbers: list[int],
    seeds: list[int],
    progress: Callable[[int, int], None] | None,
) -> list[list[Judgement]]:
    """A list for each run, candidates in rising order. A seed always gives the same halves."""
    runs: list[list[Judgement]] = []
    for run, seed in enumerate(seeds):
        runs.append([])
        for judgement in judge(full, update, numbers, np.random.default_rng(seed)):
            runs[-1].insert(0, judgement)
            if progress is not None:
                progress(run * len(numbers) + len(runs[-1]), len(seeds) * len(numbers))
    return runs


def _choose_m(m: float | str, full: Any) -> float:
    critical_m = critical_m_from_growth(full.growth(), "p")
    if critical_m == 1.0:
        raise InputError("All rows are alike: there is nothing to cluster. Check the data.")
    m = choose_m(m, critical_m)
    if m >= critical_m:
        raise InputError(
            f"m={m:.4g} is at or above the critical value {critical_m:.4g} of this data: no "
            "cluster can form there, for any K. Lower m or pass m='auto'."
        )
    return m


def _numbers(candidates: str | Iterable[int], n_rows: int) -> list[int]:
    """The candidates in rising order, each once."""
    most = n_rows // 4  # two rows a cluster in each half
    if most < 2:
        raise InputError(
            f"X has {n_rows} rows, and halves of it are clustered: at least 8 are needed. Pass "
            "more rows, or choose the number of clusters yourself."
        )
    if isinstance(candidates, str):
        if candidates != "auto":
            raise InputError(
                f"candidates={candidates!r} is given; 'auto', a pair (low, high) or a list of "
                "whole numbers is needed."
            )
        return _ladder(max(2, min(LARGEST_AUTO, int((2 * n_rows) ** 0.5), most)))
    numbers = list(candidates)
    if not numbers or not all(isinstance(K, Integral) for K in numbers):
        raise InputError(
            f"candidates={candidates!r} is given; 'auto', a pair (low, high) or a list of whole "
            "numbers is needed."
        )
    if isinstance(candidates, tuple) and len(numbers) == 2:
        if numbers[0] > numbers[1]:
            raise InputError(f"candidates={candidates} has its low end above its high end. Swap.")
        numbers = list(range(numbers[0], numbers[1] + 1))
    if min(numbers) < 2 or max(numbers) > most:
        raise InputError(
            f"candidates from {min(numbers)} to {max(numbers)} are given, but {n_rows} rows allow "
            f"2 to {most}: clusters are compared with each other, in halves of the data with two "
            "rows a cluster. Ask within that range."
        )
    return sorted({int(K) for K in numbers})


def _ladder(top: int) -> list[int]:
    """2 to top: every number to 20, then steps of a tenth; top itself is there."""
    numbers = [2]
    while numbers[-1] < top:
        numbers.append(min(top, numbers[-1] + max(1, numbers[-1] // 10)))
    return numbers


def _skipped(numbers: list[int], best: int) -> list[int]:
    """What lies between the neighbours of the best and is no candidate yet."""
    at = numbers.index(best)
    low, high = numbers[max(0, at - 1)], numbers[min(at + 1, len(numbers) - 1)]
    return [K for K in range(low, high) if K not in numbers]


def conclude(runs: list[list[Judgement]]) -> Selection:
    """The choice from what was measured in each run, candidates in rising order."""
    K = [judgement.n_clusters for judgement in runs[0]]

    def measured(name: str) -> np.ndarray:
        return np.array([[getattr(judgement, name) for judgement in run] for run in runs])

    scores = measured("value") - PRICE * np.array(K)
    best = int(scores.mean(0).argmax())
    means = {
        name: measured(name).mean(0)
        for name in ("separation", "recovery", "stability", "objective", "seconds")
    }
    table = [
        Candidate(
            n_clusters=K[i],
            score=float(scores[:, i].mean()),
            score_sd=float(scores[:, i].std()),
            stability_sd=float(measured("stability")[:, i].std()),
            chosen=i == best,
            **{name: float(values[i]) for name, values in means.items()},
        )
        for i in range(len(K))
    ]
    winners = Counter(K[i] for i in scores.argmax(1))
    clear = table[best].score > 0.0
    return Selection(K[best], _reason(table, table[best], winners, clear), clear, table)


def _reason(table: list[Candidate], best: Candidate, winners: Counter[int], clear: bool) -> str:
    """Why this K, how clear it was, and what came next, in words."""
    facts = (
        f"separation {best.separation:.2f}, recovery {best.recovery:.2f} (1 is perfect), and "
        f"partitions of two halves of the data agree with an ARI of {best.stability:.2f}"
    )
    K, n_runs = best.n_clusters, winners.total()
    if not clear:
        return (
            f"No clear structure: no number of clusters from {table[0].n_clusters} to "
            f"{table[-1].n_clusters} gives clusters that come back and stand apart, and all rows "
            f"in one cluster describe the data as well. Least bad is K={K}: {facts}. With fewer "
            "than about 20 rows a cluster gaps cannot be seen: if you know K, give it."
        )
    degree = "clearly" if (best.score / K + PRICE) >= CLEAR else "partly"
    text = f"K={K}: its clusters come back and stand apart {degree} ({facts})."
    rivals = sorted((row for row in table if row is not best), key=lambda row: -row.score)
    if not rivals:
        return text + " It was the only candidate."
    if winners[K] == n_runs:
        text += " It won every run"
    else:
        others = ", ".join(str(k) for k in sorted(winners) if k != K)
        text += f" It was close: it won {winners[K]} of {n_runs} runs, others went to {others}"
    rival = rivals[0]
    text += f"; next is K={rival.n_clusters} (score {rival.score:.2f} against {best.score:.2f})."
    more = " It is the largest candidate: with larger ones, more clusters may be found."
    return text + (more if best is table[-1] else "")
