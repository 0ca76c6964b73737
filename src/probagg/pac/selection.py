"""The result of `select_n_clusters`: the chosen K, the reason, a table and a picture."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, field, fields

import numpy as np
from sklearn.metrics import adjusted_rand_score

from probagg.pac.readings import Run
from probagg.svg import curve, stack

READINGS = ("silhouette", "agreement")
PENALTY = 0.1  # times log K: of numbers that fit alike, the smaller is preferred
CLOSE = 0.1, 0.01  # to the best score: "nearly as well", where neighbours agree up to 0.9, and at 1
STRUCTURE = 0.2  # sum of the largest gains, below which there is no clear structure
SMALLEST_GAIN = 1e-6  # to divide by


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a K, means over the runs, and whether it was chosen."""

    n_clusters: int
    score: float  # the largest is chosen
    silhouette: float
    silhouette_null: float  # of a single Gaussian
    agreement: float  # kappa of nearest neighbours' labels: 0 is chance, 1 is perfect
    agreement_null: float
    stability: float  # ARI of the partitions from two parts of the data; 0 is chance
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


def choose(runs: list[Run]) -> Selection:
    """Return the selection from the readings of all runs."""
    K = sorted(runs[0].readings)

    def mean(name: str, of_null: int = 0) -> np.ndarray:
        values = [[getattr(run.readings[k][of_null], name) for k in K] for run in runs]
        return np.mean(values, axis=0)

    means = {name: mean(name) for name in (*READINGS, "objective", "seconds")}
    means |= {f"{name}_null": mean(name, 1) for name in READINGS}
    means["stability"] = np.array([_stability(runs, k) for k in K])
    gains = [means[name] - means[f"{name}_null"] for name in READINGS]
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


def _stability(runs: list[Run], K: int) -> float:
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
