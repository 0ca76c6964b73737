"""Several backbones as one: their features, each of length 1, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from probagg.app.embed.backbone import Backbone
from probagg.storage import fingerprint


@dataclass(frozen=True, eq=False)
class JointBackbone:
    """Backbones whose features are joined; squared distances are the sums of theirs.

    A cosine of joined features is thus the mean of the cosines of the parts.
    """

    parts: tuple[Backbone, ...]

    @property
    def name(self) -> str:
        """The names of the parts, with commas."""
        return ",".join(part.name for part in self.parts)

    @property
    def identity(self) -> str:
        """A digest of the identities of the parts."""
        return fingerprint([part.identity for part in self.parts])

    @property
    def n_features(self) -> int:
        """The number of features of all parts."""
        return sum(part.n_features for part in self.parts)

    def spec(self) -> dict[str, str]:
        """Return the description that `reopen_backbone` takes."""
        return {"backbone": self.name, "identity": self.identity}


def joined(features: list[np.ndarray]) -> np.ndarray:
    """Return rows of several sets of features, each of length 1 (or 0), side by side.

    >>> joined([np.array([[3.0, 4.0]]), np.array([[0.0]]), np.array([[5.0]])]).tolist()
    [[0.6, 0.8, 0.0, 1.0]]
    """
    lengths = [np.linalg.norm(X, axis=1, keepdims=True) for X in features]
    units = [X / np.where(n > 0.0, n, 1.0) for X, n in zip(features, lengths, strict=True)]
    return np.concatenate(units, axis=1)


def common(rows: list[np.ndarray]) -> np.ndarray:
    """Return the rows that are in all of several sorted arrays."""
    return reduce(np.intersect1d, rows)
