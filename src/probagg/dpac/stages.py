"""Section 3.5: pre-training and clustering (Algorithm 3), each a loss of a batch.

Notation of the paper: x, p from the clean view of an image; x1, p1 from its first (weak) view and
x2 from its second (strong) one; f the backbone, g the projector, h the classifier.

A stage with another clustering term is a subclass of `ClusterStage` that overrides
`clustering_terms`; `Engine.train` takes any stage.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.aggregation import critical_m
from probagg.arrays import UNKNOWN
from probagg.dpac.feed import Feed, estimate_statistics, infer
from probagg.dpac.model import Model
from probagg.dpac.pretext import distance_spaces
from probagg.dpac.recipe import SPACES, Recipe, Training
from probagg.dpac.start import initialize_classifier, outputs_of, spread_rows
from probagg.dpac.step import Batch, Stage
from probagg.dpac.views import Views
from probagg.errors import ClusteringWarning, warn_user
from probagg.known import with_known
from probagg.opa.losses import OPALoss, PACLoss
from probagg.opa.processes import from_first_process, n_processes
from probagg.opa.targets import as_float


@dataclass(frozen=True)
class Setup:
    """What the stages of a run work with."""

    model: Model
    views: Views
    feed: Feed
    recipe: Recipe
    seed: int = 0
    autocast: Callable[[], AbstractContextManager] = nullcontext  # in training's precision
    known: np.ndarray | None = None  # (N,) the clusters that images keep, -1 where unknown


class NetworkStage(Stage):
    """What the stages of DPAC share: network, views and images, and terms of their losses."""

    takes_extra: ClassVar[bool] = False  # whether images beside those to cluster are trained on

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.model, self.views, self.feed = setup.model, setup.views, setup.feed
        self.recipe = setup.recipe
        self.known = torch.full((len(self.feed),), UNKNOWN, device=self.feed.device)
        if setup.known is not None:  # further images, which only some stages take, come last
            self.known[: len(setup.known)] = torch.from_numpy(setup.known)
        settings = setup.recipe.cluster
        self.opa = OPALoss(
            settings.m, metric=settings.metric, balance=settings.balance, gather=True
        )
        self.pac = PACLoss(metric=settings.metric, gather=True)
        # Kept: to read which they are waits for the device, and a recorded step cannot.
        self.distance_layers = self.model.distance_layers

    @property
    def plan(self) -> Training:
        """Return the stage's own table of the recipe."""
        return getattr(self.recipe, self.name)

    def infer(self) -> tuple[Tensor, Tensor]:
        """Return features and probabilities of all images, in the precision of training."""
        with self.setup.autocast():
            return infer(self.model, self.views, self.feed)

    def strata(self) -> Tensor | None:
        """Return the cluster of every image by h, where the recipe wants stratified batches.

        Eq. 9 takes a cluster's mass from the batch. For 1024 random rows and K = 10 it is off by
        9 %, which the power 1/(m - 1) turns into 4.7 in the logits of the targets at m = 1.02. On
        features of CIFAR-10, 86 % of the targets agreed with PAC's clusters, and 98 % where every
        batch had its share of each cluster (benchmarks/results/opa_loop/full.json).
        """
        return self.infer()[1].argmax(1) if self.recipe.cluster.stratify else None

    @torch.no_grad()
    def clean_outputs(self, clean: Tensor) -> tuple[Tensor, Tensor]:
        """Return x in the space of distances and the logits of p.

        Both are in training mode, as in the authors' code.
        """
        x = self.model.backbone(clean)
        return self.distance_layers(x), self.model.classifier(x)

    def first_logits(self, x1: Tensor) -> Tensor:
        """Return the logits of p1, with their gradient to x1 scaled by `backbone_gradient`."""
        share = self.recipe.cluster.backbone_gradient
        if share != 1.0:  # the value stays x1 exactly
            x1 = x1.detach() + share * (x1 - x1.detach())
        return self.model.classifier(x1)

    def clustering_terms(
        self, batch: Batch, x: Tensor, logits: Tensor, logits1: Tensor
    ) -> dict[str, Tensor]:
        """Return KL(Q || P1) (Eq. 12) or Tr(P1^T D P1) / B (Eq. 13), by name.

        Targets Q and distances D are those of the clean view, whose outputs are x and `logits`. Q
        of images whose cluster is known is one-hot; Eq. 13 has no targets, and so another term.
        """
        known = self.known[batch.samples]
        if self.recipe.cluster.objective == "opa":
            return {"kl": self.opa(x, logits, logits1, known)}
        terms = {"pac": len(x) * n_processes() * self.pac(x, logits1)}
        if self.setup.known is not None:
            rows = F.cross_entropy(as_float(logits1), known.clamp(min=0), reduction="none")
            terms["known"] = ((known >= 0) * rows).mean()
        return terms

    def pretext_loss(self, pair: list[Tensor], features: Tensor, P: Tensor) -> Tensor:
        """Return the pretext's loss of views, their features and P, times its weight."""
        return self.recipe.pretext.weight * self.model.pretext(
            self.model.backbone, pair, features, P
        )


class PretrainStage(NetworkStage):
    """Train f and g on the pretext task: Eq. 11 with uniform P, both orders, or another."""

    name = "pretrain"
    takes_extra = True

    @property
    def plan(self) -> Training:
        """Return the recipe's plan, with 0 epochs if it has no pretext task."""
        plan = self.recipe.pretrain
        return plan if self.recipe.pretext.task != "none" else replace(plan, epochs=0)

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return the views that the pretext task compares."""
        return make_views(self.views, self.recipe.pretext.views, batch)

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the loss of the pretext task."""
        features = self.model.backbone(torch.cat(views))
        return {"loss": self.model.pretext(self.model.backbone, views, features, None)}


class ClusterStage(NetworkStage):
    """Algorithm 3: the clustering term and the pretext task, weighted by P (Eqs. 12, 13)."""

    name = "cluster"

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return the clean view and those of the pretext task."""
        return make_views(self.views, ("clean", *self.recipe.pretext.views), batch)

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the terms of Eq. 12 or Eq. 13, and the sharpness of P."""
        clean, *pair = views
        x, logits = self.clean_outputs(clean)
        features = self.model.backbone(torch.cat(pair))
        logits1 = self.first_logits(features[: len(x)])
        terms = self.clustering_terms(batch, x, logits, logits1)
        P = with_known(as_float(logits).softmax(1), self.known[batch.samples])
        terms["pretext"] = self.pretext_loss(pair, features, P)
        return {"loss": total(terms), **terms, "sharpness": P.amax(1).mean()}

    def before_epoch(self, epoch: int) -> Tensor | None:
        """Initialize the classifier before the first epoch, and return the strata."""
        settings = self.recipe.cluster
        if epoch == 0 and settings.start == "pac":
            self._start_from_pac()
        if epoch == 0 and settings.objective == "opa":
            self.check_m()
        return self.strata()

    def _start_from_pac(self) -> None:
        """Initialize the classifier from PAC's clusters in the space of distances, or in the best.

        The statistics of batch norm are kept: the clean views of a step are normalised in the same
        way.
        """
        model, settings, setup = self.model, self.recipe.cluster, self.setup
        spaces = distance_spaces(model.pretext)
        if settings.space != "best":
            spaces = {settings.space: self.distance_layers}
        *_, deepest = spaces.values()
        estimate_statistics(nn.Sequential(model.backbone, deepest), self.views, self.feed)
        features, _ = infer(model, self.views, self.feed)
        found = initialize_classifier(
            model.classifier, features, spaces, settings, setup.seed, setup.known
        )
        best = torch.tensor(SPACES.index(found))
        model.best_space.copy_(from_first_process(best, self.feed.device))
        self.distance_layers = model.distance_layers

    def check_m(self) -> None:
        """Warn if m is too high for probabilities to leave the uniform start."""
        settings, rows = self.recipe.cluster, spread_rows(len(self.feed))
        features, _ = infer(self.model, self.views, self.feed, rows)
        threshold = critical_m(outputs_of(self.distance_layers, features), settings.metric)
        if settings.m >= threshold:
            warn_user(
                f"m={settings.m:g} is at or above the critical value {threshold:.4f} of the "
                "network's outputs as clustering begins, so probabilities stay uniform. Lower "
                "cluster.m below it.",
                ClusteringWarning,
            )


def total(terms: dict[str, Tensor]) -> Tensor:
    """Return the sum of all terms."""
    return torch.stack(list(terms.values())).sum()


def make_views(views: Views, names: tuple[str, ...], batch: Batch) -> list[Tensor]:
    """Return the named views of a batch; a repeated name gives different views."""
    made = []
    for place, name in enumerate(names):
        if name == "clean":
            made.append(views.clean(batch.images))
        else:
            make = views.weak if name == "weak" else views.strong
            copy = names[:place].count(name)
            made.append(make(batch.images, batch.samples, batch.key, copy=copy))
    return made
