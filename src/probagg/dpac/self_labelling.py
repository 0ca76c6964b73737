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
from probagg.dpac.machine import agree
from probagg.dpac.model import Model
from probagg.dpac.neighbours import ask, nearest, sharpen, sharpness
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
from probagg.errors import ClusteringWarning
from probagg.opa.functional import as_float

TRUSTED = 0.8  # so much of the labels a trained linear head must say, and so sure of them be


def self_label(engine: Engine, model: Model, views: Views, feed: Feed, recipe: Recipe) -> None:
    """Confident labels train a linear head on the strong view, averaged over the whole batch.

    They are those of h on the weak view as it goes on, as in the paper; or, `labels="neighbours"`,
    what the neighbours of an image say of it, as probabilities. The losses of the clustering stage
    go on beside it, or not; of neighbours only the pretext task's, weighted by what they say.
    """
    settings = recipe.self_label
    online = model.lessons is None
    objective, pretext = ClusterLoss(model, recipe.cluster), weighted_pretext(model, recipe)

    def prepare(batch: Batch) -> list[Tensor]:
        clean = ("clean",) if online else ()
        return make_views(views, ("weak", "strong", *clean), batch)

    def loss(batch: Batch, made: list[Tensor]) -> dict[str, Tensor]:
        pair, clean = made[:2], made[2:]
        features = model.backbone(torch.cat(pair))
        x1, x2 = features.chunk(2)
        terms = {}
        if model.lessons is not None:
            P = Q = model.lessons.Q[batch.samples]
        else:
            logits1 = student(model, x1, recipe.cluster)
            Q = as_float(logits1.detach()).softmax(1)
            x, logits = without_gradient(model, *clean)
            terms = objective(batch, x, logits, logits1)
            P = as_float(logits).softmax(1)
        terms["pretext"] = pretext(pair, features, P)
        confidence, labels = Q.max(1)
        sure = confidence >= settings.confidence
        if not online:  # all rows teach the head, the sure ones the backbone too
            x2 = torch.where(sure[:, None], x2, x2.detach())
        answers = as_float(model.self_labeller(x2))
        rows = F.cross_entropy(answers, labels if online else Q, reduction="none")
        terms["self_label"] = (sure * rows if online else rows).mean()
        return {"loss": total(terms), **terms, "confident": sure.float().mean()}

    def renew(epoch: int) -> None:
        """What there is to learn now; the head learns it at once, of the features as they are."""
        with engine.autocast():
            features, P = infer(model, views, feed)
        if model.lessons is not None:
            Q = model.lessons.Q
            before = Q if epoch else P.to(Q.device)  # to the end as sure and as even as h was
            P = _answers(model, features).to(Q.device) if epoch else before
            near = nearest(features.to(Q.device), model.n_clusters, recipe.cluster.metric)
            P = sharpen(ask(near, P, mass=before.sum(0)), to=sharpness(before))
            Q.copy_(P)
        teach(model.self_labeller, features, P, engine.seed)

    def before_epoch(epoch: int) -> Tensor | None:
        if not online and epoch % settings.refresh_epochs == 0:
            renew(epoch)
        massed = online and recipe.cluster.stratify
        return strata(engine, model, views, feed) if massed else None

    if settings.epochs:
        engine.train("self_label", prepare, loss, feed, settings, before_epoch=before_epoch)
        if not online:
            renew(settings.epochs)
            agree(model)
        _trust_linear_head(model, views, feed)


@torch.no_grad()
def _answers(model: Model, features: Tensor) -> Tensor:
    """What the linear head says of features on the CPU."""
    return copy.deepcopy(model.self_labeller).cpu()(features).softmax(1)


def _trust_linear_head(model: Model, views: Views, feed: Feed) -> None:
    """Let the linear head answer if it has learnt what its teacher says; else say so.

    A head that says the same but far less surely has not.
    """
    features, P = infer(model, views, feed)
    answers = _answers(model, features)
    lessons = P if model.lessons is None else model.lessons.Q.cpu()
    agreement = float((answers.argmax(1) == lessons.argmax(1)).float().mean())
    as_sure = sharpness(answers) / sharpness(lessons)
    model.self_labelled.fill_(min(agreement, as_sure) >= TRUSTED)
    if not model.self_labelled:
        warnings.warn(
            f"The self-labelling head agrees with its labels on {100 * agreement:.1f} % of the "
            f"images and is {100 * as_sure:.0f} % as sure of them, so the classifier's are kept. "
            "Raise self_label.epochs, pre-train longer, or set self_label.labels to neighbours.",
            ClusteringWarning,
            stacklevel=3,
        )
