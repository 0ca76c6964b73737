"""Merges and splits of a review as torch modules: probabilities of the clusters that remain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from probagg.app.review import Split
from probagg.errors import InputError


class Division(nn.Module):
    """`Split.choose`: features (n, D) to the part of each sample, one-hot (n, parts).

    It is rebuilt as `Division(**division.settings)` followed by `load_state_dict`.
    """

    mean: Tensor  # (parts, D)
    weight: Tensor  # (parts,)
    spread: Tensor  # (parts,)

    def __init__(self, cluster: int, parts: Sequence[int], n_features: int) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {
            "cluster": int(cluster),
            "parts": [int(k) for k in parts],
            "n_features": int(n_features),
        }
        J = len(parts)
        for name, shape in (("mean", (J, n_features)), ("weight", (J,)), ("spread", (J,))):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    @classmethod
    def of(cls, split: Split) -> Self:
        """Return the module of a split."""
        division = cls(split.cluster, split.parts, split.means.shape[1])
        division.mean.copy_(torch.tensor(split.means))
        division.weight.copy_(torch.tensor(split.weight))
        division.spread.copy_(torch.tensor(split.spread))
        return division

    def forward(self, X: Tensor) -> Tensor:
        """Return 1 for the part of each sample and 0 for the others, float32."""
        rows = X.to(self.mean.dtype)
        rows = rows / (rows * rows).sum(1, keepdim=True).sqrt().clamp_min(1e-300)
        squares = (rows * rows).sum(1, keepdim=True) - 2.0 * rows @ self.mean.T
        scores = self.weight * (squares + (self.mean * self.mean).sum(1) + self.spread)
        places = torch.arange(len(self.weight))
        return (scores.argmin(1, keepdim=True) == places).float()


class Reviewed(nn.Module):
    """Probabilities (n, K) of a run's clusters to those after merges and splits, by number.

    `clusters` are the numbers of those that a sample can be in. A split gives the probability of
    its cluster to the part that the sample is in.
    """

    def __init__(self, n_clusters: int, groups: np.ndarray, splits: Sequence[Division]) -> None:
        super().__init__()
        self.splits = nn.ModuleList(splits)
        parts = [split.settings["parts"] for split in splits]
        divided = [split.settings["cluster"] for split in splits]
        reached = np.unique(groups[[*range(n_clusters), *(k for part in parts for k in part)]])
        self.clusters: list[int] = [k for k in reached.tolist() if k not in divided]
        self._divided: list[int] = divided
        columns = np.arange(len(groups))
        self._add_matrix("merge", groups[:n_clusters, None] == columns)
        for place, (cluster, part) in enumerate(zip(divided, parts, strict=True)):
            given, taken = groups[part][:, None] == columns, columns == cluster
            self._add_matrix(f"give_{place}", given.astype(int) - taken)

    def _add_matrix(self, name: str, matrix: np.ndarray) -> None:
        values = torch.tensor(matrix, dtype=torch.float32)
        self.register_buffer(name, values, persistent=False)

    def forward(self, P: Tensor, features: Tensor) -> Tensor:
        """Return the probability of each sample in each cluster, float32."""
        found = P @ self.get_buffer("merge")
        for place, split in enumerate(self.splits):
            k = self._divided[place]
            parts = found[:, k : k + 1] * split(features)
            found = found + parts @ self.get_buffer(f"give_{place}")
        return found


def checked_groups(groups: Any, n_clusters: int) -> np.ndarray:
    """Return the cluster each is merged into, itself by default, or raise an error."""
    found = np.arange(n_clusters) if groups is None else np.asarray(groups)
    if (
        found.ndim != 1
        or len(found) < n_clusters
        or found.dtype.kind not in "iu"
        or not np.isin(found, np.arange(len(found))).all()
        or (found[found] != found).any()
    ):
        raise InputError(
            f"groups is {groups}, but {n_clusters} integers are needed: for each cluster the one "
            "it is merged into, or itself. A cluster that others are merged into must remain."
        )
    return found
