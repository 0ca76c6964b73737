"""Review: all that a person changed in a run, and the table after it.

A review names clusters, merges and splits them, moves samples and discards them. It is kept as
review.json beside the run's own files, which it never changes.
"""

from __future__ import annotations

import base64
import json
import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from probagg.app.assignments import Assignments
from probagg.arrays import unit_rows
from probagg.errors import InputError

FORMAT = "probagg.review/2"
MAX_CREATED = 1000  # clusters that a review can add to a run's
MAX_PARTS = 5  # parts of a split cluster
MAX_NAME = 80  # characters of a cluster's name
_HIDDEN = ("Cc", "Cs")  # control characters, and lone surrogates, which no file can hold


class ReviewError(InputError):
    """A review that does not fit its run; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Review:
    """Names, merges, splits, moves and discarded samples, kept apart from the run's own files.

    `merged[3] = 1` merges cluster 3 into cluster 1, the survivor. A split replaces a cluster by its
    parts, which have new numbers and may be split again; `created` are other new clusters, made of
    moved samples. `moved` maps a sample (its path or row, as text) to the cluster that a person
    chose for it. A move to a cluster that is merged or split later follows it. `discarded` samples
    are in no cluster.

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
    splits: tuple[Split, ...] = ()
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
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ReviewError(f'An object with "format": "{FORMAT}" is needed.')
        parts = {name: _part_of(value, name, dict) for name in ("names", "merged", "moved")}
        created = _part_of(value, "created", list)
        splits = tuple(map(Split.from_json, _part_of(value, "splits", list)))
        discarded = _part_of(value, "discarded", list)
        if not all(isinstance(name, str) for name in discarded):
            raise ReviewError('"discarded" must be a list of names of samples.')
        new = [*created, *(k for split in splits for k in split.parts)]
        _check_new(new, n_clusters)
        number = _cluster_parser(n_clusters, new)
        names = {number(k): _clean_name(name) for k, name in parts["names"].items()}
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

    @property
    def _added(self) -> list[int]:
        """The numbers of the clusters that the review adds to the run's."""
        return [*self.created, *(k for split in self.splits for k in split.parts)]

    def n_numbers(self, n_clusters: int) -> int:
        """Return the number after that of the last cluster, of a run of `n_clusters`."""
        return max([n_clusters, *(k + 1 for k in self._added)])

    def clusters(self, n_clusters: int) -> list[int]:
        """Return the clusters that remain after merges and splits."""
        split = {split.cluster for split in self.splits}
        return sorted({*range(n_clusters), *self._added} - self.merged.keys() - split)

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

    def with_samples(self, names: Sequence[str], X: Any) -> Review:
        """Return the review of a run to which samples were added: splits know their parts."""
        splits = (
            replace(s, members=s.members | dict(zip(names, s.choose(X).tolist(), strict=True)))
            for s in self.splits
        )
        return replace(self, splits=tuple(splits))

    def with_clusters(self, groups: Sequence[Sequence[str]], n_clusters: int) -> Review:
        """Return the review with a new cluster for each group of samples, named "new 1", ..."""
        first = self.n_numbers(n_clusters)
        numbers = range(first, first + len(groups))
        return replace(
            self,
            names=self.names | {k: f"new {place}" for place, k in enumerate(numbers, start=1)},
            moved=self.moved
            | {name: k for k, group in zip(numbers, groups, strict=True) for name in group},
            created=(*self.created, *numbers),
        )

    def renamed_samples(self, prefix: str) -> Review:
        """Return the review with a prefix before the name of every sample."""
        return replace(
            self,
            moved={prefix + name: k for name, k in self.moved.items()},
            discarded=frozenset(prefix + name for name in self.discarded),
            splits=tuple(
                replace(s, members={prefix + name: k for name, k in s.members.items()})
                for s in self.splits
            ),
        )

    def name_of(self, k: int) -> str:
        """Return the name that a person gave to cluster `k`, or "cluster k"."""
        return self.names.get(int(k), f"cluster {int(k)}" if k >= 0 else "discarded")

    def apply(
        self, assignments: Assignments, names: Sequence[str] | None = None, X: Any = None
    ) -> Assignments:
        """Return the table after the review, with names of clusters.

        Clusters are merged and split, then samples moved, then samples discarded. `names` are the
        samples' names in the reviewed run, if not those in the table; none for those of another
        source. New samples are in parts of split clusters by their features X (n, D).
        """
        names = assignments.names if names is None else names
        # How many clusters the table and the review know at least.
        used = [assignments.cluster.max(initial=-1), assignments.second_cluster.max(initial=-1)]
        if assignments.further is not None:
            used.append(assignments.further.cluster.max(initial=-1))
        used += [*self.merged, *self.merged.values(), *self.moved.values()]
        used += [split.cluster for split in self.splits]
        groups, n = self.groups(1 + int(max(used))), len(assignments)
        parts = [s.parts_of(names, n) if X is None else s.choose(X) for s in self.splits]
        first = self._follow(assignments.cluster, groups, parts)
        second = self._follow(assignments.second_cluster, groups, parts)
        further = None
        if assignments.further is not None and self.merged:
            row = assignments.further.row
            rows_of = [part[row] for part in parts]
            further = self._follow(assignments.further.cluster, groups, rows_of)
        table = assignments.relabel(first, second, further)
        if self.moved:
            chosen = np.full(n, -1)
            chosen[: len(names)] = [self.moved.get(name, -1) for name in names]
            chosen = self._follow(chosen, groups, parts)
            own = table.cluster
            table = table.move(np.where((chosen >= 0) & (own >= 0), chosen, own))
        if self.discarded:
            rows = np.zeros(n, bool)
            rows[: len(names)] = [name in self.discarded for name in names]
            table = table.discard(rows)
        return replace(table, cluster_names=self.names)


@dataclass(frozen=True)
class Split:
    """The parts of a cluster, found by PAC on the features of its members.

    A sample belongs to the part k with the smallest PAC score (Eq. 8) of its unit feature vector x,
    weight_k (|x - mean_k|^2 + spread_k): the parts share the cluster's region, and a sample's
    probability of the cluster is that of its part. `members` are the parts, by this rule, of the
    run's samples that can be in the cluster. `mean` has the bytes of `means`.
    """

    cluster: int
    parts: tuple[int, ...]
    members: dict[str, int]
    mean: bytes
    weight: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def means(self) -> np.ndarray:
        """The mean of the unit feature vectors of each part, (parts, D) float32."""
        return np.frombuffer(self.mean, "<f4").reshape(len(self.parts), -1)

    def choose(self, X: np.ndarray) -> np.ndarray:
        """Return the part of each row of X (n, D), as the number of its cluster."""
        means = self.means.astype(np.float64)
        if X.shape[1] != means.shape[1]:
            raise ReviewError(
                f"The split of cluster {self.cluster} was made on {means.shape[1]} features, but "
                f"the samples have {X.shape[1]}. Use the review with the run that it was made for."
            )
        rows = unit_rows(np.asarray(X, np.float64))
        squares = (rows * rows).sum(1)[:, None] - 2.0 * rows @ means.T + (means * means).sum(1)
        scores = np.array(self.weight) * (squares + np.array(self.spread))
        return np.array(self.parts)[scores.argmin(1)]

    def parts_of(self, names: Sequence[str], n: int) -> np.ndarray:
        """Return the parts (n,) of samples of the run by name; the first part where unknown."""
        found = np.full(n, self.parts[0])
        found[: len(names)] = [self.members.get(name, self.parts[0]) for name in names]
        return found

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON, sorted."""
        return {
            "cluster": self.cluster,
            "parts": list(self.parts),
            "weight": list(self.weight),
            "spread": list(self.spread),
            "mean": base64.b64encode(self.mean).decode(),
            "members": {name: self.members[name] for name in sorted(self.members)},
        }

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return a split from parsed JSON; whether its clusters exist is not checked here."""
        if not isinstance(value, dict):
            raise ReviewError(f"A split must be an object, not {_shown(value)}.")
        cluster: Any = value.get("cluster")
        parts = _part_of(value, "parts", list)
        if not all(type(k) is int for k in (cluster, *parts)):
            raise ReviewError(f"The clusters of a split must be numbers, not {_shown(parts)}.")
        if not 2 <= len(parts) <= MAX_PARTS:
            raise ReviewError(f"A split has 2 to {MAX_PARTS} parts, not {len(parts)}.")
        members = _part_of(value, "members", dict)
        for part in members.values():
            if type(part) is not int or part not in parts:
                raise ReviewError(f"A member of a split is in {_shown(part)}, not in {parts}.")
        weight, spread = (_numbers(value, name, len(parts)) for name in ("weight", "spread"))
        if min(weight) <= 0.0:
            raise ReviewError("A weight of a split is not positive.")
        return cls(cluster, tuple(parts), members, _means(value, len(parts)), weight, spread)


def _check_new(new: list[Any], n_clusters: int) -> None:
    """Refuse numbers of new clusters that are taken, or far from the run's."""
    last = n_clusters + MAX_CREATED - 1
    for k in new:
        if type(k) is not int or not n_clusters <= k <= last:
            raise ReviewError(
                f"A new cluster has the number {_shown(k)}, but {n_clusters} to {last} are allowed."
            )
    if len(set(new)) < len(new):
        raise ReviewError("Two new clusters have the same number.")


def _cluster_parser(n_clusters: int, created: Sequence[int]) -> Callable[[Any], int]:
    """Return a function from a number, or a key of JSON, which is text, to one of the clusters."""
    known = {key: k for k in (*range(n_clusters), *created) for key in (k, str(k))}
    more = f" or of the {len(created)} that the review added" if created else ""

    def parse(value: Any) -> int:
        if type(value) not in (int, str) or value not in known:  # True == 1 and 1.0 == 1
            raise ReviewError(
                f"Cluster {_shown(value)} is not one of the run's {n_clusters} clusters, "
                f"0 to {n_clusters - 1}{more}."
            )
        return known[value]

    return parse


def _clean_name(name: Any) -> str:
    """Return a name as one line without invisible characters; one that is too long is refused."""
    if not isinstance(name, str):
        raise ReviewError(f"A name must be text, not {_shown(name)}.")
    visible = "".join(c for c in " ".join(name.split()) if unicodedata.category(c) not in _HIDDEN)
    if len(visible) > MAX_NAME:
        raise ReviewError(f"A name has {len(visible)} characters; at most {MAX_NAME} are allowed.")
    return visible


def _part_of(value: dict[str, Any], name: str, kind: type) -> Any:
    """Return a part of an object of JSON, empty where it is missing; another type is refused."""
    found = value.get(name, kind())
    if not isinstance(found, kind):
        noun = "an object" if kind is dict else "a list"
        raise ReviewError(f'"{name}" must be {noun}, not {_shown(found)}.')
    return found


def _shown(value: Any) -> str:
    """Return a value for a message, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _numbers(value: dict[str, Any], name: str, n: int) -> tuple[float, ...]:
    found = _part_of(value, name, list)
    good = [type(x) in (int, float) and math.isfinite(x) for x in found]
    if len(found) != n or not all(good):
        raise ReviewError(f'"{name}" of a split must be {n} numbers, not {_shown(found)}.')
    return tuple(map(float, found))


def _means(value: dict[str, Any], n: int) -> bytes:
    try:
        data = base64.b64decode(value.get("mean"), validate=True)  # type: ignore[arg-type]
        means = np.frombuffer(data, "<f4").reshape(n, -1)
    except (TypeError, ValueError) as error:
        raise ReviewError(f'"mean" of a split cannot be read ({error}).') from error
    if not means.size or not (np.abs(means) <= 2.0).all():  # means of unit vectors
        raise ReviewError('"mean" of a split has no numbers, or numbers out of range.')
    return data
