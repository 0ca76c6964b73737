"""Section 3.5: pre-training and clustering (Algorithm 3), each a loss of a batch.

Notation of the paper: x, p from the clean view of an image; x1, p1 from its first (weak) view and
x2 from its second (strong) one; f the backbone, g the projector, h the classifier.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from probagg.aggregation import critical_m
from probagg.dpac.feed import Feed
from probagg.dpac.inference import estimate_statistics, infer
from probagg.dpac.initialization import initialize_classifier
from probagg.dpac.model import Model
from probagg.dpac.offline import refresh_targets
from probagg.dpac.recipe import Cluster, Recipe, Training
from probagg.dpac.step import Batch, Stage
from probagg.dpac.views import Views
from probagg.errors import ClusteringWarning
from probagg.opa.functional import as_float, full_precision
from probagg.opa.losses import OPALoss, PACLoss
from probagg.opa.processes import n_processes, sum_over_processes


@dataclass(frozen=True)
class Setup:
    """What the stages of a run work with."""

    model: Model
    views: Views
    feed: Feed
    recipe: Recipe
    seed: int = 0
    autocast: Callable[[], AbstractContextManager] = nullcontext  # in the precision of training


class NetworkStage(Stage):
    """What the stages of DPAC share."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.model, self.views, self.feed = setup.model, setup.views, setup.feed
        self.recipe = setup.recipe

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

    def pretext_loss(self, pair: list[Tensor], features: Tensor, P: Tensor) -> Tensor:
        """Return the pretext's loss of views, their features and P, times its weight."""
        return self.recipe.pretext.weight * self.model.pretext(
            self.model.backbone, pair, features, P
        )


class PretrainStage(NetworkStage):
    """Train f and g on the pretext task: Eq. 11 with uniform P, both orders, or another."""

    name = "pretrain"

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
    """Algorithm 3: the pretext task and KL(Q || P1) (Eq. 12), or Tr(P1^T D P1) / B (Eq. 13).

    `targets` are the offline targets (N, K) of Table 7; None where targets are computed online.
    """

    name = "cluster"
    targets: Tensor | None = None

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if self.recipe.cluster.targets != "online":
            K = self.model.n_clusters
            self.targets = torch.full((len(self.feed), K), 1.0 / K, device=self.feed.device)
        self.objective = ClusterLoss(self.recipe.cluster, self.targets)

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the offline targets."""
        return {} if self.targets is None else {"targets": self.targets}

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return the clean view and those of the pretext task."""
        return make_views(self.views, ("clean", *self.recipe.pretext.views), batch)

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the terms of Eq. 12 or Eq. 13, and the sharpness of P."""
        clean, *pair = views
        x, logits = without_gradient(self.model, clean)
        features = self.model.backbone(torch.cat(pair))
        logits1 = classify(self.model, features[: len(x)], self.recipe.cluster)
        terms = self.objective(batch, x, logits, logits1)
        P = as_float(logits).softmax(1)
        terms["pretext"] = self.pretext_loss(pair, features, P)
        return {"loss": total(terms), **terms, "sharpness": P.amax(1).mean()}

    def before_epoch(self, epoch: int) -> Tensor | None:
        """Initialize the classifier, refresh offline targets, and return the strata."""
        settings = self.recipe.cluster
        if epoch == 0 and settings.start == "pac":
            # They are kept: the clean views of a training step are normalised in the same way.
            estimate_statistics(self.model.backbone, self.views, self.feed)
            features, _ = infer(self.model, self.views, self.feed)
            initialize_classifier(self.model.classifier, features, settings, self.setup.seed)
        if epoch == 0 and settings.objective == "opa" and self.targets is None:
            self._check_m()
        if self.targets is not None and epoch % settings.refresh_epochs == 0:
            features, _ = infer(self.model, self.views, self.feed)
            refresh_targets(self.targets, features, settings, self.setup.seed + epoch)
        return self.strata()

    def _check_m(self) -> None:
        """Warn if m is too high for probabilities to leave the uniform start."""
        settings, n = self.recipe.cluster, len(self.feed)
        rows = torch.linspace(0, n - 1, min(n, 2000)).long()  # folders are sorted
        features, _ = infer(self.model, self.views, self.feed, rows)
        threshold = critical_m(features, settings.metric)
        if settings.m >= threshold:
            warnings.warn(
                f"m={settings.m:g} is at or above the critical value {threshold:.4f} of the "
                "features as clustering begins, so probabilities stay uniform. Lower cluster.m "
                "below it.",
                ClusteringWarning,
                stacklevel=2,
            )


class ClusterLoss:
    """The clustering term of Eq. 12 or Eq. 13, and the regularisation of Table 5c if wanted."""

    def __init__(self, settings: Cluster, targets: Tensor | None) -> None:
        self.settings, self.targets = settings, targets
        self.opa = OPALoss(
            settings.m, metric=settings.metric, balance=settings.balance, gather=True
        )
        self.pac = PACLoss(metric=settings.metric, gather=True)

    def __call__(
        self, batch: Batch, x: Tensor, logits: Tensor, logits1: Tensor
    ) -> dict[str, Tensor]:
        """Return the terms: targets and distances from the clean view, logits of the first."""
        terms = {}
        if self.settings.objective == "pac":
            terms["pac"] = self.pac(x, logits1)
        elif self.targets is not None:
            with full_precision(logits1):
                P1 = as_float(logits1).log_softmax(1)
                terms["kl"] = F.kl_div(P1, self.targets[batch.samples], reduction="batchmean")
        else:
            terms["kl"] = self.opa(x, logits, logits1)
        if self.settings.regularization:
            terms["regularization"] = self.settings.regularization * _negative_entropy(logits1)
        return terms


def classify(model: Model, x1: Tensor, settings: Cluster) -> Tensor:
    """Return the logits of p1, with their gradient to x1 scaled by `backbone_gradient`."""
    share = settings.backbone_gradient
    if share != 1.0:  # the value stays x1 exactly
        x1 = x1.detach() + share * (x1 - x1.detach())
    return model.classifier(x1)


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


@torch.no_grad()
def without_gradient(model: Model, clean: Tensor) -> tuple[Tensor, Tensor]:
    """Return x and the logits of p, in training mode as in the authors' code."""
    x = model.backbone(clean)
    return x, model.classifier(x)


def _negative_entropy(logits: Tensor) -> Tensor:
    """Return sum_k q_k log q_k of the mean assignment q over the whole batch."""
    with full_precision(logits):
        mean = sum_over_processes(as_float(logits).softmax(1).mean(0)) / n_processes()
        return (mean * mean.clamp(min=1e-12).log()).sum()
