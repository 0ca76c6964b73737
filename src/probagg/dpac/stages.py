"""Section 3.5: pre-training and clustering (Algorithm 3), each a loss of a batch.

Notation of the paper: x, p from the clean view of an image; x1, p1 from its first (weak) view and
x2 from its second (strong) one; f the backbone, g the projector, h the classifier.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from probagg.aggregation import critical_m
from probagg.dpac.engine import Engine
from probagg.dpac.feed import Feed
from probagg.dpac.inference import infer
from probagg.dpac.model import Model
from probagg.dpac.recipe import Cluster, Recipe
from probagg.dpac.starts import start_classifier
from probagg.dpac.step import Batch
from probagg.dpac.views import Views
from probagg.errors import ClusteringWarning
from probagg.opa.functional import as_float, full_precision
from probagg.opa.losses import OPALoss, PACLoss
from probagg.opa.processes import n_processes, sum_over_processes


def pretrain(engine: Engine, model: Model, views: Views, feed: Feed, recipe: Recipe) -> None:
    """Train f and g on the pretext task: Eq. 11 with uniform P, both orders, or another."""

    def prepare(batch: Batch) -> list[Tensor]:
        return make_views(views, recipe.pretext.views, batch)

    def loss(batch: Batch, pair: list[Tensor]) -> dict[str, Tensor]:
        features = model.backbone(torch.cat(pair))
        return {"loss": model.pretext(model.backbone, pair, features, None)}

    if recipe.pretext.task != "none":
        engine.train("pretrain", prepare, loss, feed, recipe.pretrain)


def cluster(engine: Engine, model: Model, views: Views, feed: Feed, recipe: Recipe) -> None:
    """Algorithm 3: the pretext task and KL(Q || P1) (Eq. 12), or Tr(P1^T D P1) / B (Eq. 13)."""
    settings = recipe.cluster
    objective, pretext = ClusterLoss(model, settings), weighted_pretext(model, recipe)

    def prepare(batch: Batch) -> list[Tensor]:
        return make_views(views, ("clean", *recipe.pretext.views), batch)

    def loss(batch: Batch, made: list[Tensor]) -> dict[str, Tensor]:
        clean, *pair = made
        x, logits = without_gradient(model, clean)
        features = model.backbone(torch.cat(pair))
        logits1 = student(model, features[: len(x)], settings)
        terms = objective(batch, x, logits, logits1)
        P = as_float(logits).softmax(1)
        terms["pretext"] = pretext(pair, features, P)
        return {"loss": total(terms), **terms, "sharpness": P.amax(1).mean()}

    def before_epoch(epoch: int) -> Tensor | None:
        if epoch == 0 and settings.objective == "opa" and model.offline is None:
            _warn_of_critical_m(model, views, feed, settings)
        if epoch == 0 and settings.start == "pac":
            features, _ = infer(model, views, feed)
            start_classifier(model.classifier, features, settings, engine.seed)
        if model.offline is not None and epoch % settings.refresh_epochs == 0:
            features, _ = infer(model, views, feed)
            model.offline.refresh(features, settings, engine.seed + epoch)
        return strata(engine, model, views, feed) if settings.stratify else None

    engine.train("cluster", prepare, loss, feed, recipe.cluster, before_epoch=before_epoch)


def strata(engine: Engine, model: Model, views: Views, feed: Feed) -> Tensor:
    """The cluster of every image, by h.

    Eq. 9 takes a cluster's mass from the batch. Of 1024 random rows and K = 10 that is off by 9 %,
    which the power 1/(m - 1) makes 4.7 in the logits of the targets at m = 1.02: on features of
    CIFAR-10 they were PAC's clusters for 86 % of the rows, and for 98 % where every batch had its
    share of each cluster (benchmarks/opa_loop.py).
    """
    with engine.autocast():
        return infer(model, views, feed)[1].argmax(1)


class ClusterLoss:
    """The clustering term of Eq. 12 or Eq. 13, and the regularisation of Table 5c if asked for."""

    def __init__(self, model: Model, settings: Cluster) -> None:
        self.settings = settings
        self.opa = OPALoss(
            settings.m, metric=settings.metric, balance=settings.balance, gather=True
        )
        self.pac = PACLoss(metric=settings.metric, gather=True)
        self.offline = model.offline

    def __call__(
        self, batch: Batch, x: Tensor, logits: Tensor, logits1: Tensor
    ) -> dict[str, Tensor]:
        """Terms of the loss: targets and distances from the clean view, the first view learns."""
        terms = {}
        if self.settings.objective == "pac":
            terms["pac"] = self.pac(x, logits1)
        elif self.offline is not None:
            terms["kl"] = self.offline(batch.samples, logits1)
        else:
            terms["kl"] = self.opa(x, logits, logits1)
        if self.settings.regularization:
            terms["regularization"] = self.settings.regularization * _negative_entropy(logits1)
        return terms


def student(model: Model, x1: Tensor, settings: Cluster) -> Tensor:
    """The logits of p1; the backbone feels only a share of their gradient if so asked."""
    share = settings.backbone_gradient
    if share != 1.0:  # the value stays x1 exactly
        x1 = x1.detach() + share * (x1 - x1.detach())
    return model.classifier(x1)


def weighted_pretext(
    model: Model, recipe: Recipe
) -> Callable[[list[Tensor], Tensor, Tensor], Tensor]:
    """The pretext's loss of views, features and P, with its weight beside clustering."""

    def loss(pair: list[Tensor], features: Tensor, P: Tensor) -> Tensor:
        return recipe.pretext.weight * model.pretext(model.backbone, pair, features, P)

    return loss


def total(terms: dict[str, Tensor]) -> Tensor:
    """The loss of all terms."""
    return torch.stack(list(terms.values())).sum()


def make_views(views: Views, names: tuple[str, ...], batch: Batch) -> list[Tensor]:
    """The named views of a batch; a name that comes twice gives two different views."""
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
    """x and the logits of p, in training mode as in the authors' code."""
    x = model.backbone(clean)
    return x, model.classifier(x)


def _negative_entropy(logits: Tensor) -> Tensor:
    """sum_k q_k log q_k of the mean assignment q over the whole batch: lowest when it is even."""
    with full_precision(logits):
        mean = sum_over_processes(as_float(logits).softmax(1).mean(0)) / n_processes()
        return (mean * mean.clamp(min=1e-12).log()).sum()


def _warn_of_critical_m(model: Model, views: Views, feed: Feed, settings: Cluster) -> None:
    """Tell before training that m is too high for the features to leave the uniform start."""
    rows = torch.linspace(0, len(feed) - 1, min(len(feed), 2000)).long()  # folders are sorted
    features, _ = infer(model, views, feed, rows)
    threshold = critical_m(features, settings.metric)
    if settings.m >= threshold:
        warnings.warn(
            f"m={settings.m:g} is at or above the critical value {threshold:.4f} of the features "
            "as clustering begins, where probabilities stay uniform. Lower cluster.m below it.",
            ClusteringWarning,
            stacklevel=3,
        )
