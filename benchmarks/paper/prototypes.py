"""Pre-training with ProPos's term between clusters, whose clusters are PAC's.

    python -m benchmarks training --stages pretrain,cluster --weights FOLDER \\
        --set pretext.task=byol --way plain --way prototypes prototypes=0.1 ...

The weight of the term follows `prototypes=`. PAC needs features, so the stage goes on from weights.

Huang et al. (2022) add to BYOL a contrast of cluster means: in each batch the mean of a cluster by
the online network shall be near that by the target network, and away from other clusters' means.
They take k-means' clusters of every epoch; here they are PAC's of the target's projections,
smoothed over their kNN graph, and PAC goes on from the clusters of the refresh before.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.feed import infer
from probagg.dpac.pretext import BootstrapLatent
from probagg.dpac.stages import PretrainStage, Setup
from probagg.dpac.start import smoothed_clusters
from probagg.dpac.step import Batch
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph
from probagg.opa.targets import as_float
from probagg.pac.solver import Parameters, solve

TEMPERATURE = 0.5
REFRESH_EPOCHS = 3


class TargetProjections(nn.Module):
    """The target network of BYOL as `infer` takes a model: unit-length projections, no classes."""

    def __init__(self, pretext: BootstrapLatent) -> None:
        super().__init__()
        self.backbone, self.projector = pretext.target_backbone, pretext.target_projector

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        z = F.normalize(as_float(self.projector(self.backbone(images))), dim=1)
        return z, z[:, :1]


class PrototypeStage(PretrainStage):
    """BYOL, and the term between clusters times `weight`."""

    def __init__(self, setup: Setup, weight: float) -> None:
        super().__init__(setup)
        if not isinstance(self.model.pretext, BootstrapLatent):
            raise SystemExit("prototypes= needs pretext.task=byol, which has a target network.")
        self.weight = weight
        shape, device = (len(self.feed), self.model.n_clusters), self.feed.device
        self.P = torch.full(shape, 1.0 / shape[1], device=device)

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the clusters."""
        return {"P": self.P}

    def before_epoch(self, epoch: int) -> None:
        """Refresh the clusters every few epochs."""
        if epoch % REFRESH_EPOCHS:
            return
        with self.setup.autocast():
            Z, _ = infer(TargetProjections(self.model.pretext), self.views, self.feed)
        Z, settings, seed = Z.to(self.P.device), self.recipe.cluster, self.setup.seed
        near = smoothing_graph(Z, self.model.n_clusters, "cosine")
        if epoch == 0:
            P = smoothed_clusters(Z, near, self.model.n_clusters, settings, seed)
        else:
            pac = Parameters(self.model.n_clusters, init=self.P, m=settings.m, metric="cosine")
            P = solve(Z, pac).P
            P = sharpen(smooth(near, P), to=sharpness(P))
        self.P.copy_(P)

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        features = self.model.backbone(torch.cat(views))
        z, target = self.model.pretext.projections(self.model.backbone, views, features)
        terms = {"byol": self.model.pretext.distance(z, target)}
        Q = self.P[batch.samples]
        pairs = zip(z.chunk(2), target.chunk(2), strict=True)
        terms["prototypes"] = torch.stack([contrast(*pair, Q) for pair in pairs]).mean()
        return {"loss": terms["byol"] + self.weight * terms["prototypes"], **terms}


def contrast(z: Tensor, target: Tensor, Q: Tensor) -> Tensor:
    """Return InfoNCE between the means of clusters by the online and by the target network."""
    mass = Q.sum(0)
    A = (Q / mass.clamp(min=1e-12)).T
    z, target = (F.normalize(A @ F.normalize(as_float(x), dim=1), dim=1) for x in (z, target))
    logits = (z @ z.T).diagonal_scatter((z * target).sum(1)) / TEMPERATURE
    there = mass > 0.5
    logits = logits.masked_fill(~there, -torch.inf).diagonal_scatter(logits.diagonal())
    rows = logits.logsumexp(1) - logits.diagonal()
    return (there * rows).sum() / there.sum().clamp(min=1)
