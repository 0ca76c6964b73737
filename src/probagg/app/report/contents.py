"""What the pages show of a run, as plain data."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.review import Review
from probagg.arrays import chunks, unit_rows

Row = dict[str, str]
# A cluster is loose if its separation is below this share of the median, or below the floor.
LOOSE, LEAST_SEPARATION = 0.8, 0.1


class Pair(NamedTuple):
    """Two clusters that share samples.

    `probability` is the mean that samples of either cluster give to the other, `samples` the number
    of those that are borderline between the two.
    """

    first: int
    second: int
    probability: float
    samples: int


class Change(NamedTuple):
    """A sample that was in another cluster of the run from which this one was made."""

    row: int
    before: int
    after: int


class Branch(NamedTuple):
    """Clusters that are similar: as parts, each a cluster or a branch, all of them, their size."""

    parts: tuple[Any, ...]
    clusters: list[int]
    size: int


@dataclass(frozen=True)
class Profiles:
    """Statistics of the columns of a matrix in each cluster, (clusters, columns) each.

    A kind is "number", "date" (days since 1970) or "share" (of rows, which has no quartiles).
    """

    clusters: list[int]
    columns: list[str]
    kinds: list[str]
    mean: np.ndarray
    q25: np.ndarray
    median: np.ndarray
    q75: np.ndarray

    def merge(self, groups: np.ndarray, sizes: np.ndarray, remaining: list[int]) -> Profiles:
        """Return the profiles after merges: means over the parts of a cluster, by their sizes.

        Only of remaining clusters: profiles of the parts of a split one are not known.
        """
        survivors = groups[self.clusters]
        kept = [k for k in np.unique(survivors).tolist() if k in remaining]
        weights = np.maximum(sizes[self.clusters], 1)
        parts = [(survivors == k, weights[survivors == k]) for k in kept]
        merged = (
            np.array([np.average(values[rows], axis=0, weights=w) for rows, w in parts])
            for values in (self.mean, self.q25, self.median, self.q75)
        )
        return Profiles(kept, self.columns, self.kinds, *merged)


@dataclass(frozen=True)
class Contents:
    """Everything the pages are made of: the run as it was made, and the review of it.

    Optional parts are None or empty. Properties give what is shown, after the review. Nothing is
    read from the folder `run`. `classes` are of each sample, None where unknown. `places` are rows
    (n,) and their positions on the map (n, 2). `representatives` (N,) are the row that stands for
    each, itself where it has no near-duplicates, `suggestions` names for clusters, and `features`
    (N, D) those of images. `changes` are those since the run from which this one was made. `merges`
    are pairs of clusters, the most similar first; each makes a cluster with the next number.
    """

    run: Path
    config: dict[str, Any]
    config_text: str
    env: dict[str, Any]
    result: dict[str, Any]
    review: Review
    n_clusters: int
    assigned: Assignments
    classes: list[str | None] | None
    overlaps: list[Pair]
    all_profiles: Profiles | None
    candidates: list[Row]  # k_selection.csv
    skipped: list[Row]
    preparation: list[str] = field(default_factory=list)  # a line per kind of column
    cells: dict[int, list[tuple[str, str]]] = field(default_factory=dict)  # of some rows of a table
    places: tuple[np.ndarray, np.ndarray] | None = None
    representatives: np.ndarray | None = None
    suggestions: dict[int, list[str]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    features: np.ndarray | None = None
    merges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def has_images(self) -> bool:
        """Whether samples are images and not rows of a matrix."""
        return self.config.get("kind", "images") == "images"

    @cached_property
    def groups(self) -> np.ndarray:
        """The cluster that each is merged into, or itself: of the run, then the new ones."""
        return self.review.groups(self.n_clusters)

    @cached_property
    def clusters(self) -> list[int]:
        """The clusters that remain after merges and splits."""
        return self.review.clusters(self.n_clusters)

    @cached_property
    def samples(self) -> Assignments:
        """The table after the review."""
        return self.review.apply(self.assigned)

    @cached_property
    def moved(self) -> np.ndarray:
        """Which samples a person moved to another cluster, (N,) bool."""
        unmoved = replace(self.review, moved={}).apply(self.assigned)
        return self.samples.cluster != unmoved.cluster

    @cached_property
    def kept(self) -> np.ndarray:
        """Which samples a person did not discard, (N,) bool."""
        return self.samples.cluster >= 0

    @cached_property
    def folded(self) -> np.ndarray:
        """Which samples are not shown, as near-duplicates of one in the same cluster, (N,) bool."""
        if self.representatives is None:
            return np.zeros(len(self.samples), bool)
        cluster, first = self.samples.cluster, self.representatives
        return (first != np.arange(len(first))) & (cluster == cluster[first])

    @cached_property
    def copies(self) -> dict[int, int]:
        """How many near-duplicates of a sample are folded into it, where there are any."""
        if self.representatives is None:
            return {}
        return dict(Counter(self.representatives[self.folded].tolist()))

    @cached_property
    def sizes(self) -> dict[int, int]:
        """The number of samples in each cluster."""
        counts = np.bincount(self.samples.cluster[self.kept], minlength=len(self.groups))
        return {k: int(counts[k]) for k in self.clusters}

    @cached_property
    def tree(self) -> Branch | None:
        """The clusters, two similar ones in a branch; None where there are too few or no merges."""
        parts = [self._leaf(k) for k in range(self.n_clusters)]
        for a, b in self.merges:
            parts.append(self._branch((parts[a], parts[b])))
        return parts[-1] if len(self.clusters) > 2 and isinstance(parts[-1], Branch) else None

    def _leaf(self, k: int) -> int | Branch | None:
        """Return a cluster, the parts that it was split into, or None where it was merged."""
        if k in self.sizes:
            return k
        split = next((s.parts for s in self.review.splits if s.cluster == k), ())
        return self._branch(tuple(map(self._leaf, split)))

    def _branch(self, parts: tuple[Any, ...]) -> Any:
        parts = tuple(part for part in parts if part is not None)
        if len(parts) < 2:
            return parts[0] if parts else None
        held = [k for p in parts for k in (p.clusters if isinstance(p, Branch) else [p])]
        return Branch(parts, held, sum(self.sizes[k] for k in held))

    @cached_property
    def separation(self) -> dict[int, float]:
        """How much nearer the samples of a cluster lie to its centre than to the next, up to 1.

        It is the mean of (b - a) / max(a, b), with cosine distances a and b of the features to the
        two centres. Nothing is known without features, or of one cluster.
        """
        rows = np.flatnonzero(self.kept)
        found, places = np.unique(self.samples.cluster[rows], return_inverse=True)
        if self.features is None or len(found) < 2:
            return {}
        parts = list(chunks(len(rows), 2**14))
        centers = np.zeros((len(found), self.features.shape[1]))
        for part in parts:
            np.add.at(centers, places[part], unit_rows(self.features[rows[part]]))
        centers, total = unit_rows(centers), np.zeros(len(found))
        for part in parts:
            distance = 1.0 - unit_rows(self.features[rows[part]]) @ centers.T
            own = np.take_along_axis(distance, places[part, None], axis=1)[:, 0]
            np.put_along_axis(distance, places[part, None], np.inf, axis=1)
            other = distance.min(axis=1)
            np.add.at(total, places[part], (other - own) / np.maximum(own, other).clip(1e-12))
        return dict(zip(found.tolist(), (total / np.bincount(places)).tolist(), strict=True))

    @cached_property
    def loose(self) -> list[int]:
        """The clusters whose samples are less alike than those of others, the worst first."""
        values = self.separation
        limit = max(LOOSE * float(np.median([*values.values()])), LEAST_SEPARATION) if values else 0
        return sorted((k for k, v in values.items() if v < limit), key=values.__getitem__)

    @cached_property
    def pairs(self) -> list[Pair]:
        """Pairs of overlapping clusters, each once, the worst first.

        The mean is over the samples of both clusters (`probagg.app.assignments.overlaps`), so sums
        of merged clusters add up. Overlaps of the parts of a split cluster are not known.
        """
        sizes, groups, remaining = self._sizes_before, self.groups, set(self.clusters)
        given: defaultdict[tuple[int, int], float] = defaultdict(float)
        samples: defaultdict[tuple[int, int], int] = defaultdict(int)
        for pair in self.overlaps:
            parts = [pair.first, pair.second]
            first, second = sorted(groups[parts].tolist())
            if first != second and {first, second} <= remaining:
                given[first, second] += pair.probability * sizes[parts].sum()
                samples[first, second] += pair.samples
        merged = np.bincount(groups, weights=sizes, minlength=len(groups))
        pairs = [
            Pair(a, b, float(total / max(merged[a] + merged[b], 1)), samples[a, b])
            for (a, b), total in given.items()
        ]
        return sorted(pairs, key=lambda pair: -pair.probability)

    @cached_property
    def profiles(self) -> Profiles | None:
        """Profiles of the clusters of a matrix."""
        return self.all_profiles and self.all_profiles.merge(
            self.groups, self._sizes_before, self.clusters
        )

    @property
    def _sizes_before(self) -> np.ndarray:
        return np.bincount(self.assigned.cluster, minlength=len(self.groups))

    @cached_property
    def flows(self) -> list[tuple[int, int, list[int]]]:
        """The samples that went from one cluster to another, for each pair, the most first."""
        found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for row, before, after in self.changes:
            found[before, after].append(row)
        return sorted(((a, b, rows) for (a, b), rows in found.items()), key=lambda f: -len(f[2]))

    def title_of(self, row: int) -> str:
        """Return the path or id of a sample, or "row" and its number."""
        name = self.samples.names[row]
        return f"row {name}" if self.samples.heading == "row" else name
