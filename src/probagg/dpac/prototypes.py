"""BYOL beside a contrast of cluster means, as in ProPos (Huang et al., 2022), with PAC's clusters.

In each batch the mean of a cluster by the online network is pulled towards that by the target
network, and pushed away from the means of other clusters. ProPos takes k-means' clusters; here they
are PAC's of the target's projections, smoothed over their kNN graph, and each refresh starts PAC
from the clusters before. What this gains is in benchmarks/notes/prototypes.md.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.feed import infer
from probagg.dpac.pretext import BootstrapLatent
from probagg.dpac.recipe import RecipeError
from probagg.dpac.stages import PretrainStage, Setup
from probagg.dpac.start import (
    pac_parameters,
    smooth_as_sure,
    smoothed_clusters,
    to_solver,
)
from probagg.dpac.step import Batch
from probagg.known import with_known
from probagg.neighbours.smoothing import smoothing_graph
from probagg.opa.processes import gather_rows
from probagg.opa.targets import as_float, full_precision
from probagg.pac.solver import solve

# Share of the epochs in which BYOL trains alone: its first features have no clusters.
ALONE = 0.2
REFRESH_EPOCHS = 3
TEMPERATURE = 0.5  # ProPos's


class PrototypeStage(PretrainStage):
    """Pre-train with BYOL and `pretext.prototypes` times the contrast of cluster means."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if not isinstance(self.model.pretext, BootstrapLatent):
            raise RecipeError(
                f"pretext.prototypes is {self.recipe.pretext.prototypes:g}, but a pretext task of "
                "your own has no target network of BYOL. Set it to 0."
            )
        self.byol = self.model.pretext
        device, K = self.feed.device, self.model.n_clusters
        self.P = torch.full((len(self.feed), K), 1.0 / K, device=device)
        self.weight = torch.zeros((), device=device)  # a recorded step sees it change

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the clusters and the weight of their contrast, 0 while BYOL trains alone."""
        return {"P": self.P, "weight": self.weight}

    def before_epoch(self, epoch: int) -> None:
        """Refresh the clusters every few epochs."""
        first = math.ceil(ALONE * self.plan.epochs)
        if epoch >= first and (epoch - first) % REFRESH_EPOCHS == 0:
            self._refresh()

    def _refresh(self) -> None:
        """Let PAC cluster the target's projections, from the clusters before if there are any."""
        model, settings = self.model, self.recipe.cluster
        known = None if self.setup.known is None else self.known.cpu().numpy()
        with self.setup.autocast():
            Z, _ = infer(TargetProjections(self.byol), self.views, self.feed)
        Z = to_solver(Z, self.P.device)
        near = smoothing_graph(Z, model.n_clusters, settings.metric)
        if self.weight == 0:
            P = smoothed_clusters(Z, near, model.n_clusters, settings, self.setup.seed, known)
        else:
            start = {"init": self.P.to(Z.device), "random_state": self.setup.seed}
            pac = pac_parameters(Z, model.n_clusters, settings, **start)
            P = smooth_as_sure(near, solve(Z, pac, None, known).P.float(), known)
        self.P.copy_(P)
        self.weight.fill_(self.recipe.pretext.prototypes)

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return BYOL's loss, the contrast of cluster means in both orders, and their sum."""
        features = self.model.backbone(torch.cat(views))
        z, target = self.byol.projections(self.model.backbone, views, features)
        terms = {"byol": self.byol.distance(z, target)}
        P = gather_rows(with_known(self.P[batch.samples], self.known[batch.samples]))
        pairs = zip(z.chunk(2), target.chunk(2), strict=True)
        both = [contrast_means(gather_rows(a), gather_rows(b), P) for a, b in pairs]
        terms["prototypes"] = torch.stack(both).mean()
        return {"loss": terms["byol"] + self.weight * terms["prototypes"], **terms}


class TargetProjections(nn.Module):
    """BYOL's target network as `infer` takes a model: unit-length projections, no classes."""

    def __init__(self, byol: BootstrapLatent) -> None:
        super().__init__()
        self.backbone, self.projector = byol.target_backbone, byol.target_projector

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projections, and one column of them in place of logits."""
        z = F.normalize(as_float(self.projector(self.backbone(images))), dim=1)
        return z, z[:, :1]


def contrast_means(z: Tensor, target: Tensor, P: Tensor) -> Tensor:
    """Return InfoNCE between the means of clusters by the online and by the target network.

    The mean over the clusters that have half a row of the batch or more; the others are neither
    positives nor negatives.
    """
    with full_precision(z):
        mass = P.sum(0)
        A = (P / mass.clamp(min=1e-12)).T
        z, target = (F.normalize(A @ F.normalize(as_float(x), dim=1), dim=1) for x in (z, target))
        logits = (z @ z.T).diagonal_scatter((z * target).sum(1)) / TEMPERATURE
        present = mass > 0.5
        logits = logits.masked_fill(~present, -torch.inf).diagonal_scatter(logits.diagonal())
        rows = logits.logsumexp(1) - logits.diagonal()
        return (present * rows).sum() / present.sum().clamp(min=1)
