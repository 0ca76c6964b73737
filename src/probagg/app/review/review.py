"""Review: all that a person changed in a run, and the table after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.review.split import Split
from probagg.app.review.values import ReviewError, clean_name, cluster_parser, part_of, shown

FORMAT = "probagg.review/2"
_FORMATS = ("probagg.review/1", FORMAT)  # 1 has names, merged and moved
MAX_CREATED = 1000  # clusters that a review can add to a run's


@dataclass(frozen=True)
class Review:
    """Names, merges, splits, moves and discarded samples, kept apart from the run's own files.

    `merged[3] = 1` merges cluster 3 into cluster 1, the survivor. A split replaces a cluster by its
    parts, which have new numbers; `created` are other new clusters, made of moved samples. `moved`
    maps a sample (its path or row, as text) to the cluster that a person chose for it. A move to a
    cluster that is merged or split later follows it. `discarded` samples are in no cluster.

    >>> review = Review(names={1: "cats"}, merged={3: 1}, moved={"b.jpg": 2})
    >>> review.groups(4)
    array([0, 1, 2, 1])
    >>> P = np.array([[0.1, 0.2, 0.1, 0.6], [0.1, 0.0, 0.2, 0.7]])
    >>> review.apply(Assignments.of(P, P, None, ["a.jpg", "b.jpg"])).cluster
    array([1, 2])
    >>> review.name_of(1), review.name_of(2)
    ('cats', 'cluster 2')
    """

    names: dict[int, str] = field(default_factory=dict)
    merged: dict[int, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    created: tuple[int, ...] = ()
    splits: tuple[Split, ...] = ()  # a part may be split again, by a later split
    discarded: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self != Review()

    def to_bytes(self) -> bytes:
        """Return the content of review.json; equal reviews give equal bytes."""
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"
        return text.encode("utf-8", "surrogatepass")  # a file name need not be valid text

    @classmethod
    def from_bytes(cls, data: bytes, n_clusters: int) -> Self:
        """Return the checked review in the content of review.json."""
        try:
            value = json.loads(data.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise ReviewError(f"{error}.") from error
        return cls.from_json(value, n_clusters)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON, sorted."""
        return {
            "format": FORMAT,
            "names": {str(k): self.names[k] for k in sorted(self.names)},
            "merged": {str(k): self.merged[k] for k in sorted(self.merged)},
            "moved": {name: self.moved[name] for name in sorted(self.moved)},
            "created": list(self.created),
            "splits": [split.to_json() for split in self.splits],
            "discarded": sorted(self.discarded),
        }

    @classmethod
    def from_json(cls, value: Any, n_clusters: int) -> Self:
        """Return a checked review from parsed JSON; every cluster must exist."""
        if not isinstance(value, dict) or value.get("format") not in _FORMATS:
            raise ReviewError(f'An object with "format": "{FORMAT}" is needed.')
        parts = {name: part_of(value, name, dict) for name in ("names", "merged", "moved")}
        created = part_of(value, "created", list)
        splits = tuple(map(Split.from_json, part_of(value, "splits", list)))
        discarded = part_of(value, "discarded", list)
        if not all(isinstance(name, str) for name in discarded):
            raise ReviewError('"discarded" must be a list of names of samples.')
        new = [*created, *(k for split in splits for k in split.parts)]
        _check_new(new, n_clusters)
        number = cluster_parser(n_clusters, new)
        names = {number(k): clean_name(name) for k, name in parts["names"].items()}
        review = cls(
            names={k: name for k, name in names.items() if name},
            merged={number(k): number(target) for k, target in parts["merged"].items()},
            moved={name: number(target) for name, target in parts["moved"].items()},
            created=tuple(created),
            splits=splits,
            discarded=frozenset(discarded),
        )
        for split in splits:
            number(split.cluster)
        review._check(n_clusters)
        return review

    def _check(self, n_clusters: int) -> None:
        """Refuse merges and splits that lead back to where they start."""
        groups, done = self.groups(n_clusters), set[int]()
        for split in self.splits:
            if split.cluster in done or split.cluster in self.merged:
                raise ReviewError(f"Cluster {split.cluster} is split, and split or merged before.")
            done.add(split.cluster)
            if done & set(groups[list(split.parts)].tolist()):
                raise ReviewError(
                    f"A part of cluster {split.cluster} is merged into a cluster that was split "
                    "before. Undo this merge."
                )

    def n_numbers(self, n_clusters: int) -> int:
        """Return the number after that of the last cluster, of a run of `n_clusters`."""
        new = [*self.created, *(k for split in self.splits for k in split.parts)]
        return max([n_clusters, *(k + 1 for k in new)])

    def clusters(self, n_clusters: int) -> list[int]:
        """Return the clusters that remain after merges and splits."""
        split = {split.cluster for split in self.splits}
        new = [*self.created, *(k for split in self.splits for k in split.parts)]
        found = {*range(n_clusters), *new} - self.merged.keys() - split
        return sorted(found)

    def groups(self, n_clusters: int) -> np.ndarray:
        """Return the cluster that each is merged into, or itself: of the run, then the new ones."""
        n = self.n_numbers(n_clusters)
        unknown = [k for pair in self.merged.items() for k in pair if not 0 <= k < n]
        if unknown:
            raise ReviewError(
                f"Cluster {unknown[0]} is merged, but there are {n} clusters. Use the "
                "review with the run that it was made for."
            )
        groups, done = np.arange(n), set[int]()
        for k in self.merged:
            path: dict[int, None] = {}  # an ordered set
            while k in self.merged and k not in done:
                if k in path:
                    cycle = " into ".join(map(str, [*path, k]))
                    raise ReviewError(f"Merges form a cycle: {cycle}. Undo one of them.")
                path[k] = None
                k = self.merged[k]
            groups[list(path)] = groups[k]
            done.update(path)
        return groups

    def regions(self, n_clusters: int, X: Any) -> np.ndarray:
        """Return the cluster, after merges and splits, of rows X in each of the run's: (n, K)."""
        own = np.broadcast_to(np.arange(n_clusters), (X.shape[0], n_clusters))
        parts = [split.choose(X)[:, None] for split in self.splits]
        return self._follow(own, self.groups(n_clusters), parts)

    def _follow(
        self, clusters: np.ndarray, groups: np.ndarray, parts: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return the clusters after merges and splits; -1, no cluster, stays.

        `parts` has, for each split, the part that each sample would be in.
        """
        found = np.where(clusters >= 0, groups[clusters], -1)
        for split, part in zip(self.splits, parts, strict=True):
            found = np.where(found == split.cluster, groups[part], found)
        return found

    def name_of(self, k: int) -> str:
        """Return the name that a person gave to cluster `k`, or "cluster k"."""
        return self.names.get(int(k), f"cluster {int(k)}" if k >= 0 else "discarded")

    def apply(self, assignments: Assignments, names: Sequence[str] | None = None) -> Assignments:
        """Return the table after the review, with names of clusters.

        Clusters are merged and split, then samples moved, then samples discarded. `names` are the
        samples' names in the reviewed run, if not those in the table. Pass an empty list for
        samples of another source, whose clusters are in the right part already (`regions`).
        """
        names = assignments.names if names is None else names
        groups, n = self.groups(self._n_used(assignments)), len(assignments)
        parts = [split.parts_of(names, n) for split in self.splits]
        first = self._follow(assignments.cluster, groups, parts)
        second = self._follow(assignments.second_cluster, groups, parts)
        table = assignments.relabel(first, second)
        if self.moved:
            chosen = np.full(n, -1)
            chosen[: len(names)] = [self.moved.get(name, -1) for name in names]
            chosen = self._follow(chosen, groups, parts)
            table = table.move(np.where((chosen >= 0) & (first >= 0), chosen, first))
        if self.discarded:
            rows = np.zeros(n, bool)
            rows[: len(names)] = [name in self.discarded for name in names]
            table = table.discard(rows)
        return replace(table, cluster_names=self.names)

    def _n_used(self, assignments: Assignments) -> int:
        """Return how many clusters the table and the review know at least."""
        clusters = (self.merged, self.merged.values(), self.moved.values())
        used = [assignments.cluster.max(initial=-1), assignments.second_cluster.max(initial=-1)]
        used += [split.cluster for split in self.splits]
        return 1 + int(max([*used, *(k for part in clusters for k in part)]))


def _check_new(new: list[Any], n_clusters: int) -> None:
    """Refuse numbers of new clusters that are taken, or far from the run's."""
    last = n_clusters + MAX_CREATED - 1
    for k in new:
        if type(k) is not int or not n_clusters <= k <= last:
            raise ReviewError(
                f"A new cluster has the number {shown(k)}, but {n_clusters} to {last} are allowed."
            )
    if len(set(new)) < len(new):
        raise ReviewError("Two new clusters have the same number.")
