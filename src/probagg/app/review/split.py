"""A cluster divided into parts, with the rule that puts a new sample into one of them."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from probagg.app.review.values import ReviewError, part_of, shown
from probagg.arrays import unit_rows

MAX_PARTS = 5


@dataclass(frozen=True)
class Split:
    """The parts of a cluster, found by PAC on the features of its members.

    A sample belongs to the part k with the smallest PAC score (Eq. 8) of its unit feature vector x,
    weight_k (|x - mean_k|^2 + spread_k): the parts share the cluster's region, and a sample's
    probability of the cluster is that of its part. `members` are the parts, by this rule, of the
    run's samples that can be in the cluster.
    """

    cluster: int
    parts: tuple[int, ...]  # numbers of new clusters
    members: dict[str, int]  # name of a sample -> one of the parts
    mean: bytes  # float32 (parts, D), little-endian
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
            raise ReviewError(f"A split must be an object, not {shown(value)}.")
        cluster: Any = value.get("cluster")
        parts = part_of(value, "parts", list)
        if not all(type(k) is int for k in (cluster, *parts)):
            raise ReviewError(f"The clusters of a split must be numbers, not {shown(parts)}.")
        if not 2 <= len(parts) <= MAX_PARTS:
            raise ReviewError(f"A split has 2 to {MAX_PARTS} parts, not {len(parts)}.")
        members = part_of(value, "members", dict)
        for part in members.values():
            if type(part) is not int or part not in parts:
                raise ReviewError(f"A member of a split is in {shown(part)}, not in {parts}.")
        weight, spread = (_numbers(value, name, len(parts)) for name in ("weight", "spread"))
        if min(weight) <= 0.0:
            raise ReviewError("A weight of a split is not positive.")
        return cls(cluster, tuple(parts), members, _means(value, len(parts)), weight, spread)


def _numbers(value: dict[str, Any], name: str, n: int) -> tuple[float, ...]:
    found = part_of(value, name, list)
    good = [type(x) in (int, float) and math.isfinite(x) for x in found]
    if len(found) != n or not all(good):
        raise ReviewError(f'"{name}" of a split must be {n} numbers, not {shown(found)}.')
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
