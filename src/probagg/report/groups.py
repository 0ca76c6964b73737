"""What is shown of each cluster: its typical, borderline and unusual samples, and facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from probagg.report.contents import Contents, Pair, Samples

PAIRS = 20  # overlapping pairs on the page; more are in overlaps.csv


@dataclass(frozen=True)
class Counts:
    """How many samples of each kind a cluster shows."""

    typical: int
    borderline: int
    unusual: int

    @property
    def total(self) -> int:
        """Of all kinds."""
        return self.typical + self.borderline + self.unusual


@dataclass(frozen=True)
class Cluster:
    """One cluster as the page shows it; samples are rows of assignments.csv."""

    number: int
    name: str
    is_named: bool
    merged: list[int]  # clusters that a person put into this one
    size: int
    share: float
    mean_probability: float
    n_borderline: int
    n_outliers: int
    n_moved: int
    typical: list[int]
    borderline: list[int]
    unusual: list[int]
    neighbours: list[Pair]
    majority: str | None  # the class that most samples have
    purity: float | None  # the share that has it
    high: list[str]  # columns that are high here, of a matrix
    low: list[str]

    @property
    def rows(self) -> list[int]:
        """Every sample shown."""
        return [*self.typical, *self.borderline, *self.unusual]


def describe_clusters(contents: Contents, counts: Counts) -> list[Cluster]:
    """Each cluster that is left after the review, in the order of their numbers."""
    samples, groups = contents.samples, contents.review.groups(contents.n_clusters)
    order = np.argsort(samples.cluster, kind="stable")
    ends = np.searchsorted(samples.cluster[order], np.arange(contents.n_clusters + 1))
    high, low = _contrasts(contents)
    return [
        _describe(
            contents,
            k,
            order[ends[k] : ends[k + 1]],
            counts,
            merged=[j for j in np.flatnonzero(groups == k).tolist() if j != k],
            high=high.get(k, []),
            low=low.get(k, []),
        )
        for k in contents.clusters
    ]


def _describe(
    contents: Contents,
    k: int,
    members: np.ndarray,
    counts: Counts,
    *,
    merged: list[int],
    high: list[str],
    low: list[str],
) -> Cluster:
    samples = contents.samples
    typical, borderline, unusual = select(samples, members, counts)
    p = samples.probability[members]
    majority, purity = _majority(contents.classes or [None] * len(samples), members)
    return Cluster(
        number=k,
        name=contents.review.name_of(k),
        is_named=k in contents.review.names,
        merged=merged,
        size=len(members),
        share=len(members) / len(samples),
        mean_probability=float(np.nanmean(p)) if np.isfinite(p).any() else float("nan"),
        n_borderline=int((samples.flag[members] == "borderline").sum()),
        n_outliers=int((samples.flag[members] == "outlier").sum()),
        n_moved=int(samples.moved[members].sum()),
        typical=typical,
        borderline=borderline,
        unusual=unusual,
        neighbours=[p for p in contents.pairs[:PAIRS] if k in (p.first, p.second) and p.samples][
            :3
        ],
        majority=majority,
        purity=purity,
        high=high,
        low=low,
    )


def select(
    samples: Samples, members: np.ndarray, counts: Counts
) -> tuple[list[int], list[int], list[int]]:
    """The typical, borderline and unusual of a cluster's members; nothing is shown twice.

    Typical: the most probable, then the nearest. Borderline and unusual: first what has the flag,
    then the smallest margins and the largest distances of what is left.
    """
    distance = np.nan_to_num(samples.distance[members], nan=np.inf)
    p = np.nan_to_num(samples.probability[members], nan=-1.0)
    flag = samples.flag[members]
    by_p = members[np.lexsort((distance, -p))]
    clear = by_p[samples.flag[by_p] == ""]
    typical = (clear if len(clear) else by_p)[: counts.typical]
    margin = np.nan_to_num(samples.margin[members], nan=-1.0)
    by_margin = members[np.lexsort((margin, flag != "borderline"))]
    borderline = _first(by_margin, counts.borderline, typical, avoid=members[flag == "outlier"])
    far = np.nan_to_num(samples.distance[members], nan=-np.inf)
    by_distance = members[np.lexsort((-far, flag != "outlier"))]
    taken = np.concatenate([typical, borderline])
    unusual = _first(by_distance, counts.unusual, taken, avoid=members[flag == "borderline"])
    return typical.tolist(), borderline.tolist(), unusual.tolist()


def _first(ranked: np.ndarray, n: int, taken: np.ndarray, avoid: np.ndarray) -> np.ndarray:
    return ranked[~np.isin(ranked, taken) & ~np.isin(ranked, avoid)][:n]


def _majority(classes: list[str | None], members: np.ndarray) -> tuple[str | None, float | None]:
    """The class that most of the samples have whose class is known, and their share of these."""
    counts = Counter(name for row in members if (name := classes[row]) is not None)
    if not counts:
        return None, None
    name, count = counts.most_common(1)[0]
    return name, count / counts.total()


def _contrasts(contents: Contents) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """The columns in which each cluster's mean is highest and lowest against the others'."""
    profiles = contents.profiles
    if profiles is None or len(profiles.clusters) < 2:
        return {}, {}
    spread = np.maximum(profiles.mean.std(axis=0), 1e-12)
    Z = (profiles.mean - profiles.mean.mean(axis=0)) / spread
    high, low = {}, {}
    for k, z in zip(profiles.clusters, Z, strict=True):
        order = np.argsort(-z, kind="stable")
        high[k] = [profiles.columns[j] for j in order[:3] if z[j] > 0.5]
        low[k] = [profiles.columns[j] for j in order[::-1][:3] if z[j] < -0.5]
    return high, low


def between(samples: Samples, pair: Pair, n: int) -> list[int]:
    """Samples between two clusters, the least decided first."""
    a, b = pair.first, pair.second
    ways = ((samples.cluster == a) & (samples.second == b)) | (
        (samples.cluster == b) & (samples.second == a)
    )
    rows = np.flatnonzero(ways & (samples.flag != "outlier") & ~samples.moved)
    return rows[np.argsort(samples.margin[rows], kind="stable")][:n].tolist()
