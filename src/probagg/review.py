"""What a person changed in a run: names of clusters, merged clusters, moved samples."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from probagg.assignments import Assignments
from probagg.errors import InputError

FORMAT = "probagg.review/1"
MAX_NAME = 80  # characters
_HIDDEN = ("Cc", "Cs")  # control characters, and lone surrogates, which no file can hold


class ReviewError(InputError):
    """A review that does not fit its run; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Review:
    """Names, merges and moves, which are kept apart from the run's own files.

    `merged[3] = 1` merges cluster 3 into cluster 1, the survivor. `moved` maps a sample (its path
    or row, as text) to the cluster that a person chose for it; a move to a cluster that is merged
    follows it to the survivor.

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

    def __bool__(self) -> bool:
        return bool(self.names or self.merged or self.moved)

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
        }

    @classmethod
    def from_json(cls, value: Any, n_clusters: int) -> Self:
        """Return a checked review from parsed JSON; every cluster must be one of the run's."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ReviewError(f'An object with "format": "{FORMAT}" is needed.')
        parts = {name: value.get(name, {}) for name in ("names", "merged", "moved")}
        for name, part in parts.items():
            if not isinstance(part, dict):
                raise ReviewError(f'"{name}" must be an object, not {_shown(part)}.')
        number = _cluster_parser(n_clusters)
        names = {number(k): clean_name(name) for k, name in parts["names"].items()}
        review = cls(
            names={k: name for k, name in names.items() if name},
            merged={number(k): number(target) for k, target in parts["merged"].items()},
            moved={name: number(target) for name, target in parts["moved"].items()},
        )
        review.groups(n_clusters)  # refuses a cycle now, not where the review is used
        return review

    def groups(self, n_clusters: int) -> np.ndarray:
        """Return the surviving cluster of each cluster, (K,)."""
        unknown = [k for pair in self.merged.items() for k in pair if not 0 <= k < n_clusters]
        if unknown:
            raise ReviewError(
                f"Cluster {unknown[0]} is merged, but there are {n_clusters} clusters. Use the "
                "review with the run that it was made for."
            )
        groups, done = np.arange(n_clusters), set[int]()
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

    def name_of(self, k: int) -> str:
        """Return the name that a person gave to cluster `k`, or "cluster k"."""
        return self.names.get(int(k), f"cluster {int(k)}")

    def apply(self, assignments: Assignments, names: Sequence[str] | None = None) -> Assignments:
        """Return the table after the review: clusters merged, then samples moved; with names.

        `names` are the samples' names in the reviewed run, if not those in the table. Pass an empty
        list for samples of another source, so that no move applies.
        """
        clusters = (self.merged, self.merged.values(), self.moved.values())
        used = (assignments.cluster.max(initial=-1), assignments.second_cluster.max(initial=-1))
        groups = self.groups(1 + int(max([*used, *(k for part in clusters for k in part)])))
        merged = assignments.merge(groups)
        chosen = merged.cluster.copy()
        if self.moved:
            for row, name in enumerate(assignments.names if names is None else names):
                if name in self.moved:
                    chosen[row] = groups[self.moved[name]]
        return replace(merged.move(chosen), cluster_names=self.names)


def _cluster_parser(n_clusters: int) -> Callable[[Any], int]:
    """Return a function from a number, or a key of JSON, which is text, to one of the clusters."""
    known = {key: k for k in range(n_clusters) for key in (k, str(k))}

    def parse(value: Any) -> int:
        if type(value) not in (int, str) or value not in known:  # True == 1 and 1.0 == 1
            raise ReviewError(
                f"Cluster {_shown(value)} is not one of the run's {n_clusters} clusters, "
                f"0 to {n_clusters - 1}."
            )
        return known[value]

    return parse


def clean_name(name: Any) -> str:
    """Return a name as one line without invisible characters; one that is too long is refused."""
    if not isinstance(name, str):
        raise ReviewError(f"A name must be text, not {_shown(name)}.")
    visible = "".join(c for c in " ".join(name.split()) if unicodedata.category(c) not in _HIDDEN)
    if len(visible) > MAX_NAME:
        raise ReviewError(f"A name has {len(visible)} characters; at most {MAX_NAME} are allowed.")
    return visible


def _shown(value: Any) -> str:
    """Return a value for a message, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
