"""PAC, OPAHead and Smoothing as torch modules: features (n, D) to probabilities (n, K).

All compute in float64, as in NumPy. A score is a difference of large sums, and at m = 1.03 a
relative error of 1 % in it is 40 % in a probability; the cost is negligible next to a backbone. A
head is rebuilt as `Head(**head.settings)` followed by `load_state_dict`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from probagg.aggregation import dual, embed, lift, mass_factor
from probagg.errors import InputError
from probagg.opa.head import OPAHead
from probagg.pac.clusters import LinearClusters
from probagg.pac.pac import PAC
from probagg.smoothing import Smoothing, mean_over, to_power


class PACHead(nn.Module):
    """`PAC.predict_proba`: scores against K moments, then Eq. 8."""

    kind: ClassVar = "pac"
    center: Tensor  # (D,), and
    scale: Tensor  # (): the coordinates
    side: Tensor  # (K, D + 2): the moments' side of the bilinear form
    floor: Tensor  # (K,): smaller sums are rounding errors
    factor: Tensor  # (K,): n_k^(balance - 1)

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
    offset: ClassVar = 0.0  # directions have none
    rows: Tensor  # (S, D) float16
    P: Tensor  # (S, K) float32
    factor: Tensor  # (K,) float64

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


class OPANetwork(nn.Module):
    """`OPAHead.predict_proba`: rows standardised in float64, then its network in float32."""

    kind: ClassVar = "opa"
    mean: Tensor  # (D,)
    spread: Tensor  # ()

    def __init__(self, widths: list[int], metric: str) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {"widths": list(widths), "metric": metric}
        _add_buffers(self, mean=(widths[0],), spread=())
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.utils.skip_init(nn.Linear, inputs, outputs), nn.ReLU()]
        self.network = nn.Sequential(*layers[:-1])

    @classmethod
    def of(cls, head: OPAHead) -> Self:
        """Return the network of a fitted OPAHead."""
        check_is_fitted(head, "network_")
        widths = [int(n) for n in (head.n_features_in_, *head.hidden, head.n_clusters)]
        module = cls(widths, head.metric)
        module.mean.copy_(torch.as_tensor(head._standard.mean))
        module.spread.fill_(np.asarray(head._standard.spread).item() or 1.0)
        module.network.load_state_dict(head.network_.state_dict())
        return module

    def forward(self, X: Tensor) -> Tensor:
        """Return P (n, K)."""
        rows = (embed(X.to(self.mean.dtype), self.settings["metric"]) - self.mean) / self.spread
        return self.network(rows.float()).softmax(1)

    def examples(self, n: int, generator: torch.Generator) -> Tensor:
        """Return random rows in the range of the training rows, float32."""
        noise = torch.randn(n, len(self.mean), generator=generator)
        return (self.mean + self.spread * noise).float()

    @property
    def offset(self) -> float:
        """Largest distance of a column's mean from zero, in units of the common spread."""
        far = self.mean.abs().max() / self.spread
        return float(far) if self.settings["metric"] == "sqeuclidean" else 0.0


def _add_buffers(
    module: nn.Module, dtype: torch.dtype = torch.float64, **shapes: tuple[int, ...]
) -> None:
    for name, shape in shapes.items():
        module.register_buffer(name, torch.zeros(shape, dtype=dtype))


Head = PACHead | OPANetwork | SmoothedHead
HEADS: dict[str, type[Head]] = {head.kind: head for head in (PACHead, OPANetwork, SmoothedHead)}


def head_of(model: PAC | OPAHead | Smoothing) -> Head:
    """Return the head of a fitted model."""
    if isinstance(model, Smoothing):
        return SmoothedHead.of(model)
    return PACHead.of(model) if isinstance(model, PAC) else OPANetwork.of(model)
