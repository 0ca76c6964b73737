"""The result of `select_n_clusters`: the chosen K, the reason, a table and a picture."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import asdict, dataclass, fields

import numpy as np

from probagg.pac.halves import Measures
from probagg.svg import curve, stack

PENALTY = 0.1  # per cluster; pieces of data without clusters score 0.01 or less (docs/choosing.md)
CLEAR = 0.5  # mean of separation times recovery from which the reason says "clearly"


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a K, means over the runs, and whether it was chosen."""

    n_clusters: int
    score: float  # the largest is chosen
    score_sd: float  # between runs
    separation: float  # mean over clusters, at most 1
    recovery: float  # mean over clusters, 0 to 1
    stability: float  # ARI of the partitions from two halves of the data; 0 is chance
    stability_sd: float
    objective: float  # Eq. 1 divided by the number of pairs, for half of the data
    seconds: float  # per run
    chosen: bool


@dataclass(frozen=True)
class Selection:
    """The chosen K, the reason in words, whether it is clear, and a table of all candidates."""

    n_clusters: int
    reason: str
    clear: bool
    table: list[Candidate]

    def to_csv(self) -> str:
        """Return the table as CSV with a header; `chosen` is 1 in one row and 0 in the others."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(field.name for field in fields(Candidate))
        for row in self.table:
            values = asdict(row).values()
            writer.writerow(f"{v:.6g}" if isinstance(v, float) else int(v) for v in values)
        return text.getvalue()

    def plot_svg(self) -> str:
        """Return score and stability by K as a small picture, in the colour of the text around."""
        K, curves = [row.n_clusters for row in self.table], {}
        for name in ("score", "stability"):
            values = [getattr(row, name) for row in self.table]
            spread = [getattr(row, f"{name}_sd") for row in self.table]
            curves[name] = curve(
                K, values, label=name, unit="clusters", spread=spread, mark=self.n_clusters
            )
        return stack(f"{self.n_clusters} clusters are chosen", curves)


def choose(runs: list[list[Measures]]) -> Selection:
    """Return the selection from the measures of each run, candidates in rising order."""
    K = [measures.n_clusters for measures in runs[0]]

    def measured(name: str) -> np.ndarray:
        return np.array([[getattr(measures, name) for measures in run] for run in runs])

    scores = measured("value") - PENALTY * np.array(K)
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
    """Return in words why this K was chosen, how clearly, and which K is next."""
    facts = (
        f"separation {best.separation:.2f}, recovery {best.recovery:.2f} (1 is perfect), and "
        f"partitions of two halves of the data agree with an ARI of {best.stability:.2f}"
    )
    K, n_runs = best.n_clusters, winners.total()
    if not clear:
        return (
            f"No clear structure: no number of clusters from {table[0].n_clusters} to "
            f"{table[-1].n_clusters} gives clusters that are recovered and separated; all rows in "
            f"one cluster describe the data as well. The best is K={K}: {facts}. With fewer than "
            "about 20 rows per cluster, gaps cannot be detected: if you know K, pass it."
        )
    degree = "clearly" if (best.score / K + PENALTY) >= CLEAR else "partly"
    text = f"K={K}: its clusters are {degree} recovered and separated ({facts})."
    rivals = sorted((row for row in table if row is not best), key=lambda row: -row.score)
    if not rivals:
        return text + " It was the only candidate."
    if winners[K] == n_runs:
        text += " It won every run"
    else:
        others = ", ".join(str(k) for k in sorted(winners) if k != K)
        text += f" It was close: it won {winners[K]} of {n_runs} runs, the others chose {others}"
    rival = rivals[0]
    text += f"; next is K={rival.n_clusters} (score {rival.score:.2f} against {best.score:.2f})."
    more = " It is the largest candidate: with larger ones, more clusters may be found."
    return text + (more if best is table[-1] else "")
