"""Section 3.5's last stage: confident labels train a linear head on strong views."""

from __future__ import annotations

import copy
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from probagg.dpac.engine import Engine
from probagg.dpac.feed import Feed
from probagg.dpac.inference import infer
from probagg.dpac.model import Model
from probagg.dpac.recipe import Recipe
from probagg.dpac.stages import (
    ClusterLoss,
    make_views,
    strata,
    student,
    total,
    weighted_pretext,
    without_gradient,
)
from probagg.dpac.starts import teach
from probagg.dpac.step import Batch
from probagg.dpac.views import Views
from probagg.opa.diagnose import ClusteringWarning
from probagg.opa.functional import as_float

TRUSTED = 0.8  # share of images on which a trained linear head says what its teacher says


def self_label(engine: Engine, model: Model, views: Views, feed: Feed, recipe: Recipe) -> None:
    """Confident labels of the weak view train a linear head on the strong view.

    They are those of h as it goes on, as in the paper; or, `labels="anchored"`, those of which h is
    sure as the stage begins, and the linear head's own for the other images (FixMatch). The
    probability must reach `confidence`; the cross-entropy is averaged over the whole batch, so few
    confident rows move little. The losses of the clustering stage go on beside it, or not.
    """
    settings, kept = recipe.self_label, recipe.self_label.keep_losses
    objective, pretext = ClusterLoss(model, recipe.cluster), weighted_pretext(model, recipe)

    def prepare(batch: Batch) -> list[Tensor]:
        return make_views(views, ("weak", "strong", "clean") if kept else ("weak", "strong"), batch)

    def loss(batch: Batch, made: list[Tensor]) -> dict[str, Tensor]:
        pair = made[:2]
        features = model.backbone(torch.cat(pair))
        x1, x2 = features.chunk(2)
        logits1 = student(model, x1, recipe.cluster)
        terms = {}
        if kept:
            x, logits = without_gradient(model, made[2])
            terms = objective(batch, x, logits, logits1)
            terms["pretext"] = pretext(pair, features, as_float(logits).softmax(1))
        confidence, labels = teacher(model, batch.samples, x1, logits1, settings.confidence)
        chosen = (confidence >= settings.confidence).float()
        rows = F.cross_entropy(as_float(model.self_labeller(x2)), labels, reduction="none")
        terms["self_label"] = (rows * chosen).mean()
        return {"loss": total(terms), **terms, "confident": chosen.mean()}

    def before_epoch(epoch: int) -> Tensor | None:
        if epoch == 0 and (settings.start == "classifier" or model.anchors is not None):
            features, P = infer(model, views, feed)
            if settings.start == "classifier":
                teach(model.self_labeller, features, P, engine.seed)
            if model.anchors is not None:
                model.anchors.Q.copy_(P)
        return strata(engine, model, views, feed) if recipe.cluster.stratify and kept else None

    if settings.epochs:
        engine.train("self_label", prepare, loss, feed, settings, before_epoch=before_epoch)
        _trust_linear_head(model, views, feed, settings.confidence)


@torch.no_grad()
def teacher(
    model: Model, samples: Tensor, x1: Tensor, logits1: Tensor, sure: float
) -> tuple[Tensor, Tensor]:
    """How certain the label of each row is, and which it is."""
    if model.anchors is None:
        return _confidence(logits1)
    anchor, anchored = model.anchors.Q[samples].max(1)
    own, labels = _confidence(model.self_labeller(x1))
    fixed = anchor >= sure
    return torch.where(fixed, anchor, own), torch.where(fixed, anchored, labels)


def _confidence(logits: Tensor) -> tuple[Tensor, Tensor]:
    confidence, labels = as_float(logits).softmax(1).max(1)
    return confidence, labels


def _trust_linear_head(model: Model, views: Views, feed: Feed, sure: float) -> None:
    """Let the linear head answer if it has learnt what its teacher says; else say so.

    The teacher is h as it is now, or what it was sure of as the stage began.
    """
    features, P = infer(model, views, feed)
    taught = torch.ones(len(P), dtype=torch.bool)
    if model.anchors is not None:
        P = model.anchors.Q.cpu()
        taught = P.amax(1) >= sure
    head = copy.deepcopy(model.self_labeller).cpu()
    with torch.no_grad():
        same = head(features).argmax(1) == P.argmax(1)
    agreement = float(same[taught].float().mean()) if taught.any() else 0.0
    model.self_labelled.fill_(agreement >= TRUSTED)
    if agreement < TRUSTED:
        warnings.warn(
            f"The self-labelling head agrees with its labels on {100 * agreement:.1f} % of the "
            "images, so the classifier's are kept. Raise self_label.epochs, or lower "
            "self_label.confidence.",
            ClusteringWarning,
            stacklevel=3,
        )
