"""The clusters of a run as torch modules: PAC, Smoothing, and what a review made of them.

A head maps features (n, D) to probabilities (n, K); `Reviewed` maps these to the clusters that
remain after merges and splits. All compute in float64, as in NumPy: a score is a difference of
large sums, and at m = 1.03 a relative error of 1 % in it is 40 % in a probability; the cost is
negligible next to a backbone. A module is rebuilt as `Kind(**module.settings)` followed by
`load_state_dict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from probagg.aggregation import dual, embed, lift, mass_factor
from probagg.app.review import Split
from probagg.errors import InputError
from probagg.neighbours.smoothing import Smoothing, mean_over, to_power
from probagg.pac.clusters import LinearClusters
from probagg.pac.pac import PAC

# The cluster that each is merged into, or itself; None: no cluster is merged.
Groups = np.ndarray | Sequence[int] | None


class PACHead(nn.Module):
    """`PAC.predict_proba`: scores against K moments, then Eq. 8.

    Rows are moved by `center` (D,) and divided by `scale` (). `side` (K, D + 2) is the moments'
    side of the bilinear form, sums below `floor` (K,) are rounding errors, `factor` (K,) is
    n_k^(balance - 1).
    """

    kind: ClassVar = "pac"
    center: Tensor
    scale: Tensor
    side: Tensor
    floor: Tensor
    factor: Tensor

    def __init__(self, n_features: int, n_clusters: int, metric: str, m: float) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {
            "n_features": n_features,
            "n_clusters": n_clusters,
            "metric": metric,
            "m": m,
        }
        _add_buffers(
            self,
            center=(n_features,),
            scale=(),
            side=(n_clusters, n_features + 2),
            floor=(n_clusters,),
            factor=(n_clusters,),
        )

    @classmethod
    def of(cls, pac: PAC) -> Self:
        """Return the head of a fitted PAC."""
        check_is_fitted(pac)
        clusters = pac._clusters
        if not isinstance(clusters, LinearClusters):
            raise InputError(
                f"These clusters were found with metric={pac.metric!r}, which compares a row with "
                "all training rows and has no small model. Cluster again with 'sqeuclidean' or "
                "'cosine' to export it."
            )
        coordinates = clusters.coordinates
        n_features = coordinates.center.size
        head = cls(n_features, clusters.n_clusters, coordinates.metric, float(pac.m_))
        head.center.copy_(torch.as_tensor(coordinates.center))
        head.scale.fill_(coordinates.scale)
        head.side.copy_(torch.as_tensor(dual(clusters.sums)))
        head.floor.copy_(torch.as_tensor(clusters.floor[:, 0]))
        head.factor.copy_(torch.as_tensor(mass_factor(clusters.mass, pac.balance_)))
        return head

    def forward(self, X: Tensor) -> Tensor:
        """Return P (n, K)."""
        rows = (embed(X.to(self.center.dtype), self.settings["metric"]) - self.center) / self.scale
        S = torch.maximum(lift(rows) @ self.side.T, self.floor) * self.factor
        # Not `aggregation.assign`, which has another floor for small scores than PAC.
        return torch.softmax((S / S.amin(1, keepdim=True)).log() / (1.0 - self.settings["m"]), 1)

    def examples(self, n: int, generator: torch.Generator) -> Tensor:
        """Return random rows in the range of the training rows, float32."""
        spread = 2.0 * torch.rand(n, len(self.center), generator=generator) - 1.0
        return (self.center + self.scale * spread).float()

    @property
    def offset(self) -> float:
        """Largest distance of a column's centre from zero, in units of the data's scale."""
        far = self.center.abs().max() / self.scale
        return float(far) if self.settings["metric"] == "sqeuclidean" else 0.0


class SmoothedHead(nn.Module):
    """`Smoothing.predict_proba`: the mean of the nearest fitted rows, rescaled and sharpened."""

    kind: ClassVar = "smoothed"
    offset: ClassVar = 0.0
    rows: Tensor
    P: Tensor
    factor: Tensor

    def __init__(
        self, n_rows: int, n_features: int, n_clusters: int, n_nearest: int, power: float
    ) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {
            "n_rows": n_rows,
            "n_features": n_features,
            "n_clusters": n_clusters,
            "n_nearest": n_nearest,
            "power": power,
        }
        _add_buffers(self, torch.float16, rows=(n_rows, n_features))
        _add_buffers(self, torch.float32, P=(n_rows, n_clusters))
        _add_buffers(self, factor=(n_clusters,))

    @classmethod
    def of(cls, smoothing: Smoothing) -> Self:
        """Return the head of a smoothing."""
        n_rows, n_features = smoothing.rows.shape
        K, k = smoothing.n_clusters, smoothing.n_nearest
        head = cls(n_rows, n_features, K, k, smoothing.power)
        for name in ("rows", "P", "factor"):
            head.get_buffer(name).copy_(torch.tensor(getattr(smoothing, name)))
        return head

    def forward(self, X: Tensor) -> Tensor:
        """Return P (n, K)."""
        similarity = embed(X.to(self.factor.dtype), "cosine") @ self.rows.to(self.factor.dtype).T
        near = similarity.topk(self.settings["n_nearest"]).indices
        T = mean_over(near, self.P.to(self.factor.dtype))
        return to_power(T * self.factor, self.settings["power"])

    def examples(self, n: int, generator: torch.Generator) -> Tensor:
        """Return random rows between two fitted rows each, float32."""
        first, second = torch.randint(len(self.rows), (2, n), generator=generator)
        share = torch.rand(n, 1, generator=generator)
        return share * self.rows[first].float() + (1.0 - share) * self.rows[second].float()


def _add_buffers(
    module: nn.Module, dtype: torch.dtype = torch.float64, **shapes: tuple[int, ...]
) -> None:
    for name, shape in shapes.items():
        module.register_buffer(name, torch.zeros(shape, dtype=dtype))


Head = PACHead | SmoothedHead
HEADS: dict[str, type[Head]] = {head.kind: head for head in (PACHead, SmoothedHead)}


def head_of(model: PAC | Smoothing) -> Head:
    """Return the head of a fitted model."""
    return PACHead.of(model) if isinstance(model, PAC) else SmoothedHead.of(model)


class Division(nn.Module):
    """`Split.choose`: features (n, D) to the part of each sample, one-hot (n, parts)."""

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
        _add_buffers(self, mean=(J, n_features), weight=(J,), spread=(J,))

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


def checked_groups(groups: Groups, n_clusters: int) -> np.ndarray:
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
