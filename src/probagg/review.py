"""What a person changed in a run: names of clusters, merged clusters, moved samples."""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from probagg.errors import InputError
from probagg.run.folder import add_to_run

FILE = "review.json"
FORMAT = "probagg.review/1"
MAX_NAME = 80  # characters
_HIDDEN = ("Cc", "Cs")  # control characters, and halves of a character, which no file can hold


class ReviewError(InputError):
    """A review that cannot be meant; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Review:
    """Names, merges and moves, kept apart from the run's own files, which stay as they are.

    `merged[3] = 1` puts cluster 3 into cluster 1, which survives. `moved` goes from a sample (its
    path or row, as text) to the cluster a person chose for it; a move to a cluster that is merged
    follows it to the survivor.

    >>> review = Review(names={1: "cats"}, merged={3: 1}, moved={"b.jpg": 2})
    >>> review.groups(4)
    array([0, 1, 2, 1])
    >>> review.relabel(["a.jpg", "b.jpg"], [3, 3])
    array([1, 2])
    >>> review.name_of(1), review.name_of(2)
    ('cats', 'cluster 2')
    """

    names: dict[int, str] = field(default_factory=dict)
    merged: dict[int, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.merged or self.moved)

    @classmethod
    def read(cls, run: str | PathLike[str]) -> Self:
        """The review in a run folder; an empty one where nobody has changed anything."""
        path = Path(run) / FILE
        if not path.exists():
            return cls()
        K = n_clusters(run)
        try:
            return cls.from_json(json.loads(path.read_bytes().decode("utf-8", "surrogatepass")), K)
        except (ValueError, RecursionError) as error:
            raise ReviewError(
                f"{path} is no review of this run: {error} Mend it, or take it away to start anew."
            ) from error

    def write(self, run: str | PathLike[str]) -> None:
        """Write `review.json` into a run folder, whole or not at all."""
        add_to_run(run, FILE, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file; equal reviews give equal bytes."""
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"
        return text.encode("utf-8", "surrogatepass")  # a file name need not be valid text

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON, sorted."""
        return {
            "format": FORMAT,
            "names": {str(k): self.names[k] for k in sorted(self.names)},
            "merged": {str(k): self.merged[k] for k in sorted(self.merged)},
            "moved": {name: self.moved[name] for name in sorted(self.moved)},
        }

    @classmethod
    def from_json(cls, value: Any, n_clusters: int) -> Self:
        """A checked review from what JSON holds; every cluster must be one of the run's."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ReviewError(f'An object with "format": "{FORMAT}" is needed.')
        parts = {name: value.get(name, {}) for name in ("names", "merged", "moved")}
        for name, part in parts.items():
            if not isinstance(part, dict):
                raise ReviewError(f'"{name}" must be an object, not {_shown(part)}.')
        number = functools.partial(_checked, n_clusters=n_clusters)
        names = {number(k): clean_name(name) for k, name in parts["names"].items()}
        review = cls(
            names={k: name for k, name in names.items() if name},
            merged={number(k): number(target) for k, target in parts["merged"].items()},
            moved={name: number(target) for name, target in parts["moved"].items()},
        )
        review.groups(n_clusters)  # a cycle is refused here and not where somebody uses it
        return review

    def groups(self, n_clusters: int) -> np.ndarray:
        """The surviving cluster of each cluster, (K,)."""
        groups = np.arange(n_clusters)
        unknown = [k for pair in self.merged.items() for k in pair if not 0 <= k < n_clusters]
        if unknown:
            raise ReviewError(
                f"Cluster {unknown[0]} is merged, but there are {n_clusters} clusters. Use the "
                "review with the run that it was made for."
            )
        for k in self.merged:
            seen = [k]
            while seen[-1] in self.merged:
                target = self.merged[seen[-1]]
                if target in seen:
                    circle = " into ".join(map(str, [*seen, target]))
                    raise ReviewError(f"Merges go in a circle: {circle}. Take one of them back.")
                seen.append(target)
            groups[k] = seen[-1]
        return groups

    def name_of(self, k: int) -> str:
        """What a person called cluster `k`, or its number in words."""
        return self.names.get(int(k), f"cluster {int(k)}")

    def apply(self, P: np.ndarray) -> np.ndarray:
        """Probabilities (N, K) after the merges: the survivor's column holds the sum, others 0."""
        merged = np.zeros_like(P)
        np.add.at(merged.T, self.groups(P.shape[1]), P.T)
        return merged

    def relabel(self, samples: Sequence[object], labels: Any) -> np.ndarray:
        """The clusters of samples (their paths or rows) after merges and moves; a move wins."""
        labels = np.asarray(labels, dtype=np.int64)
        known = (self.merged, self.merged.values(), self.moved.values())
        last = max([labels.max(initial=-1), *(k for part in known for k in part)])
        groups = self.groups(int(last) + 1)
        chosen = [
            self.moved.get(str(sample), label)
            for sample, label in zip(samples, labels, strict=True)
        ]
        return groups[np.asarray(chosen, dtype=np.int64)]


def _checked(value: Any, n_clusters: int) -> int:
    """One of the run's clusters, from a number or a key of JSON, which is text."""
    if isinstance(value, int | str) and str(value) in map(str, range(n_clusters)):
        return int(value)
    raise ReviewError(
        f"Cluster {_shown(value)} is none of the run's {n_clusters} clusters, "
        f"0 to {n_clusters - 1}."
    )


def clean_name(name: Any) -> str:
    """A name in one line without what cannot be seen; too long a one is refused."""
    if not isinstance(name, str):
        raise ReviewError(f"A name must be text, not {_shown(name)}.")
    visible = "".join(c for c in " ".join(name.split()) if unicodedata.category(c) not in _HIDDEN)
    if len(visible) > MAX_NAME:
        raise ReviewError(f"A name has {len(visible)} characters; {MAX_NAME} is the most.")
    return visible


def n_clusters(run: str | PathLike[str]) -> int:
    """How many clusters a run has, by its `result.json`."""
    path = Path(run) / "result.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["n_clusters"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReviewError(
            f"{path} does not say how many clusters there are. Give the folder of a finished run."
        ) from error


def _shown(value: Any) -> str:
    """A value in a message, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
