"""Section 3.5: pre-training, clustering (Algorithm 3) and self-labelling, each a loss of a batch.

Notation of the paper: x, p from the clean view of an image; x1, p1 from its first (weak) view and
x2 from its second (strong) one; f the backbone, g the projector, h the classifier.

A stage with another clustering term is a subclass of `ClusterStage` that overrides
`clustering_terms`; `Engine.train` takes any stage.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.aggregation import critical_m
from probagg.dpac.feed import Feed, estimate_statistics, infer
from probagg.dpac.model import Model
from probagg.dpac.recipe import Recipe, Training
from probagg.dpac.start import fit_head, initialize_classifier
from probagg.dpac.step import Batch, Stage
from probagg.dpac.views import Views
from probagg.errors import ClusteringWarning
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph
from probagg.opa.losses import OPALoss, PACLoss
from probagg.opa.processes import gather_rows
from probagg.opa.targets import as_float

MIN_AGREEMENT = 0.8  # with the pseudo-labels, below which the linear head is not used


@dataclass(frozen=True)
class Setup:
    """What the stages of a run work with."""

    model: Model
    views: Views
    feed: Feed
    recipe: Recipe
    seed: int = 0
    autocast: Callable[[], AbstractContextManager] = nullcontext  # in training's precision


class NetworkStage(Stage):
    """What the stages of DPAC share: network, views and images, and terms of their losses."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.model, self.views, self.feed = setup.model, setup.views, setup.feed
        self.recipe = setup.recipe
        settings = setup.recipe.cluster
        self.opa = OPALoss(
            settings.m, metric=settings.metric, balance=settings.balance, gather=True
        )
        self.pac = PACLoss(metric=settings.metric, gather=True)

    @property
    def plan(self) -> Training:
        """Return the stage's own table of the recipe."""
        return getattr(self.recipe, self.name)

    def rate(self, name: str) -> float:
        """Return the recipe's factor for the predictor, and 1 for the rest."""
        predictor = name.startswith("pretext.predictor.")
        return self.recipe.pretext.predictor_rate if predictor else 1.0

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
        """Return x and the logits of p, in training mode as in the authors' code."""
        x = self.model.backbone(clean)
        return x, self.model.classifier(x)

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

        Targets Q and distances D are those of the clean view, whose outputs are x and `logits`.
        """
        if self.recipe.cluster.objective == "pac":
            return {"pac": self.pac(x, logits1)}
        return {"kl": self.opa(x, logits, logits1)}

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
        P = as_float(logits).softmax(1)
        terms["pretext"] = self.pretext_loss(pair, features, P)
        return {"loss": total(terms), **terms, "sharpness": P.amax(1).mean()}

    def before_epoch(self, epoch: int) -> Tensor | None:
        """Initialize the classifier before the first epoch, and return the strata."""
        settings = self.recipe.cluster
        if epoch == 0 and settings.start == "pac":
            # The statistics are kept: the clean views of a step are normalised in the same way.
            estimate_statistics(self.model.backbone, self.views, self.feed)
            features, _ = infer(self.model, self.views, self.feed)
            initialize_classifier(self.model.classifier, features, settings, self.setup.seed)
        if epoch == 0 and settings.objective == "opa":
            self.check_m()
        return self.strata()

    def check_m(self) -> None:
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


class SelfLabelStage(NetworkStage):
    """Confident pseudo-labels train a linear head on strong views.

    Its variants differ in where the pseudo-labels come from: `RememberedLabels` is the paper's.
    They decide at the end whether the linear head or the classifier makes the predictions.
    """

    name = "self_label"

    def rate(self, name: str) -> float:
        """Return the recipe's factor for the backbone, and that of other stages for the rest."""
        backbone = name.startswith("backbone.")
        return self.recipe.self_label.backbone_rate if backbone else super().rate(name)

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return the weak, strong and clean views."""
        return make_views(self.views, ("weak", "strong", "clean"), batch)

    @torch.no_grad()
    def head_probabilities(self, features: Tensor) -> Tensor:
        """Return the linear head's probabilities of features on the CPU."""
        return copy.deepcopy(self.model.self_labeller).cpu()(features).softmax(1)

    def choose_head(self, features: Tensor, pseudo_labels: Tensor) -> None:
        """Use the linear head if it reproduces its pseudo-labels, else the classifier, and warn.

        A head with the same labels but far lower confidence does not reproduce them.
        """
        P = self.head_probabilities(features)
        agreement = float((P.argmax(1) == pseudo_labels.argmax(1)).float().mean())
        confidence = sharpness(P) / sharpness(pseudo_labels)
        self.model.self_labelled.fill_(min(agreement, confidence) >= MIN_AGREEMENT)
        if not self.model.self_labelled:
            smoothed = self.recipe.self_label.labels == "neighbours"
            other = "" if smoothed else ", or set self_label.labels to neighbours"
            warnings.warn(
                f"The self-labelling head agrees with its labels on {100 * agreement:.1f} % of the "
                f"images, with {100 * confidence:.0f} % of their confidence, so the classifier is "
                f"used instead. Raise self_label.epochs or pre-train longer{other}.",
                ClusteringWarning,
                stacklevel=2,
            )

    def finish(self) -> None:
        """Choose between the linear head and the classifier that labelled for it."""
        self.choose_head(*infer(self.model, self.views, self.feed))


class RememberedLabels(SelfLabelStage):
    """The paper's variant, as in TCL (Li et al., 2022): h's most confident labels, with a memory.

    h labels the clean view in evaluation mode. Of each cluster, the most confident half of a
    batch's share gets labels. They are kept until h is less confident than the threshold, and
    weight the pretext task. Strong views train the linear head, each cluster with the same weight,
    and h, whose gradient stops at the features: h follows them, and the paper trains a linear
    classifier.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.labels = torch.full((len(self.feed),), -1, device=self.feed.device)
        self.backbone, self.classifier = map(
            evaluating, (self.model.backbone, self.model.classifier)
        )

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the label of each image, -1 where it has none."""
        return {"labels": self.labels}

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the pretext's loss and the cross-entropies of both heads with the labels."""
        *pair, clean = views
        self._label(batch, clean)
        labels = self.labels[batch.samples]
        known = labels[:, None] == torch.arange(self.model.n_clusters, device=labels.device)
        weight = (known / known.sum(0).clamp(min=1)).sum(1)
        weight = weight / weight.sum().clamp(min=1e-12)
        features = self.model.backbone(torch.cat(pair))
        x2 = features.chunk(2)[1]
        terms = {"pretext": self.pretext_loss(pair, features, known.float())}
        heads = {
            "self_label": self.model.self_labeller(x2),
            "classifier": self.model.classifier(x2.detach()),
        }
        for name, logits in heads.items():
            rows = F.cross_entropy(as_float(logits), labels.clamp(min=0), reduction="none")
            terms[name] = (weight * rows).sum()
        return {"loss": total(terms), **terms, "confident": known.any(1).float().mean()}

    @torch.no_grad()
    def _label(self, batch: Batch, clean: Tensor) -> None:
        """Update the labels of a batch, in every process alike."""
        P = as_float(self.classifier(self.backbone(clean))).softmax(1)
        P, samples = gather_rows(P), gather_rows(batch.samples)
        threshold = self.recipe.self_label.confidence
        self.labels[samples] = confident_labels(P, self.labels[samples], threshold)

    def before_epoch(self, epoch: int) -> Tensor | None:
        """Label all images as the stage begins, and return the strata."""
        if epoch == 0:
            P = self.infer()[1].to(self.labels.device)
            threshold = self.recipe.self_label.confidence
            self.labels.copy_(confident_labels(P, self.labels, threshold))
        return self.strata()


class ClassifierLabels(SelfLabelStage):
    """FixMatch's variant: h's confident labels of the weak view are learnt from the strong view.

    The losses of the clustering stage are kept. The authors' code has these lines, as a comment.
    """

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the clustering stage's terms and the cross-entropy of confident rows."""
        *pair, clean = views
        features = self.model.backbone(torch.cat(pair))
        x1, x2 = features.chunk(2)
        logits1 = self.first_logits(x1)
        x, logits = self.clean_outputs(clean)
        terms = self.clustering_terms(batch, x, logits, logits1)
        terms["pretext"] = self.pretext_loss(pair, features, as_float(logits).softmax(1))
        confidence, labels = as_float(logits1.detach()).softmax(1).max(1)
        confident = confidence >= self.recipe.self_label.confidence
        logits2 = as_float(self.model.self_labeller(x2))
        rows = F.cross_entropy(logits2, labels, reduction="none")
        terms["self_label"] = (confident * rows).mean()
        return {"loss": total(terms), **terms, "confident": confident.float().mean()}

    def before_epoch(self, epoch: int) -> Tensor | None:
        """Return the strata."""
        return self.strata()


class SmoothedLabels(SelfLabelStage):
    """Our variant: the linear head's own probabilities, smoothed over the kNN graph.

    All rows train the head, confident ones the backbone too. The pretext task is weighted by the
    pseudo-labels; OPA's loss, and with it its feedback loop, is not used.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        K = self.model.n_clusters
        self.pseudo_labels = torch.full((len(self.feed), K), 1.0 / K, device=self.feed.device)
        self.mass = self.pseudo_labels.sum(0)  # each cluster's, by the classifier

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the pseudo-labels (N, K) and the masses (K,) that they are held to."""
        return {"pseudo_labels": self.pseudo_labels, "mass": self.mass}

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return the weak and the strong view."""
        return make_views(self.views, ("weak", "strong"), batch)

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the pretext's loss and the cross-entropy with the pseudo-labels Q."""
        features = self.model.backbone(torch.cat(views))
        x2 = features.chunk(2)[1]
        Q = self.pseudo_labels[batch.samples]
        terms = {"pretext": self.pretext_loss(views, features, Q)}
        confident = Q.amax(1) >= self.recipe.self_label.confidence
        x2 = torch.where(confident[:, None], x2, x2.detach())
        logits2 = as_float(self.model.self_labeller(x2))
        terms["self_label"] = F.cross_entropy(logits2, Q, reduction="none").mean()
        return {"loss": total(terms), **terms, "confident": confident.float().mean()}

    def before_epoch(self, epoch: int) -> None:
        """Refresh the pseudo-labels every `refresh_epochs`."""
        if epoch % self.recipe.self_label.refresh_epochs == 0:
            self._refresh(first=epoch == 0)

    def finish(self) -> None:
        """Fit the head to the final pseudo-labels, and use it if that succeeds."""
        self._refresh(first=False)
        features, _ = infer(self.model, self.views, self.feed)
        self.choose_head(features, self.pseudo_labels.cpu())

    def _refresh(self, *, first: bool) -> None:
        """Smooth the current probabilities over the kNN graph, and fit the head to the result.

        The probabilities are the head's, or the classifier's as the stage begins. Smoothing is held
        to the masses of the classifier, and sharpening to the mean confidence before: a head that
        has come to favour a cluster or to be less confident would otherwise be trained to be so
        even more. The masses of the refresh before would not do: sharpening moves them.
        """
        features, P = self.infer()
        Q = self.pseudo_labels
        before = P.to(Q.device) if first else Q
        P = before if first else self.head_probabilities(features).to(Q.device)
        if first:
            self.mass.copy_(P.sum(0))
        near = smoothing_graph(
            features.to(Q.device), self.model.n_clusters, self.recipe.cluster.metric
        )
        Q.copy_(sharpen(smooth(near, P, mass=self.mass), to=sharpness(before)))
        fit_head(self.model.self_labeller, features, Q, self.setup.seed)


@torch.no_grad()
def confident_labels(P: Tensor, before: Tensor, threshold: float) -> Tensor:
    """Return the label of each row of P (n, K), or -1, given the labels (n,) before.

    Rows that had none get one if they are among the n / (2K) most confident rows of their cluster.
    Rows whose confidence is below the threshold lose theirs.

    >>> P = torch.tensor([[0.9, 0.1], [0.99, 0.01], [0.2, 0.8], [0.97, 0.03]])
    >>> confident_labels(P, torch.tensor([-1, -1, 1, 0]), threshold=0.85)
    tensor([-1,  0, -1,  0])
    """
    n, K = P.shape
    confidence, cluster = P.max(1)
    order = confidence.argsort(descending=True, stable=True)
    member = cluster[order][:, None] == torch.arange(K, device=P.device)
    rank = torch.empty_like(cluster)
    rank[order] = (member.cumsum(0) * member).sum(1)  # 1 is the most confident row of a cluster
    new = torch.where(rank <= math.ceil(n / (2 * K)), cluster, -1)
    return torch.where(confidence >= threshold, torch.where(before >= 0, before, new), -1)


def evaluating(module: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode that shares all weights and statistics of the module."""
    shared = {id(t): t for t in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared).eval()


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
