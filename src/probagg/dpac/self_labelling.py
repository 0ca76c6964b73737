"""Section 3.5's last stage: confident pseudo-labels train a linear head on strong views.

`ClassifierLabels` is the paper's variant, `SmoothedLabels` (`self_label.labels = "neighbours"`) is
ours. Both decide at the end whether the linear head or the classifier makes the predictions.
"""

from __future__ import annotations

import copy
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from probagg.dpac.inference import infer
from probagg.dpac.initialization import fit_head
from probagg.dpac.neighbours import nearest
from probagg.dpac.stages import (
    ClusterLoss,
    NetworkStage,
    Setup,
    classify,
    make_views,
    total,
    without_gradient,
)
from probagg.dpac.step import Batch
from probagg.errors import ClusteringWarning
from probagg.opa.functional import as_float
from probagg.smoothing import sharpen, sharpness, smooth

MIN_AGREEMENT = 0.8  # with the pseudo-labels, below which the linear head is not used


class SelfLabelStage(NetworkStage):
    """What both variants share: the linear head, and whether it makes the predictions."""

    name = "self_label"

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


class ClassifierLabels(SelfLabelStage):
    """The paper's variant: h's confident labels of the weak view are learnt from the strong view.

    The losses of the clustering stage are kept; `targets` are its offline targets, if any.
    """

    def __init__(self, setup: Setup, targets: Tensor | None = None) -> None:
        super().__init__(setup)
        self.objective = ClusterLoss(self.recipe.cluster, targets)

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return the weak, strong and clean views."""
        return make_views(self.views, ("weak", "strong", "clean"), batch)

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the clustering stage's terms and the cross-entropy of confident rows."""
        *pair, clean = views
        features = self.model.backbone(torch.cat(pair))
        x1, x2 = features.chunk(2)
        logits1 = classify(self.model, x1, self.recipe.cluster)
        x, logits = without_gradient(self.model, clean)
        terms = self.objective(batch, x, logits, logits1)
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

    def finish(self) -> None:
        """Choose between the linear head and the classifier that labelled for it."""
        self.choose_head(*infer(self.model, self.views, self.feed))


class SmoothedLabels(SelfLabelStage):
    """Our variant: the linear head's own probabilities, smoothed over the kNN graph.

    All rows train the head, confident ones the backbone too. The pretext task is weighted by the
    pseudo-labels; OPA's loss, and with it its feedback loop, is not used.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        K = self.model.n_clusters
        self.pseudo_labels = torch.full((len(self.feed), K), 1.0 / K, device=self.feed.device)
        self.mass = self.pseudo_labels.sum(0)  # of each cluster, by the classifier

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
        near = nearest(features.to(Q.device), self.model.n_clusters, self.recipe.cluster.metric)
        Q.copy_(sharpen(smooth(near, P, mass=self.mass), to=sharpness(before)))
        fit_head(self.model.self_labeller, features, Q, self.setup.seed)


def self_label_stage(setup: Setup, targets: Tensor | None = None) -> SelfLabelStage:
    """Return the variant that the recipe names; `targets` are the clustering stage's, if any."""
    if setup.recipe.self_label.labels == "neighbours":
        return SmoothedLabels(setup)
    return ClassifierLabels(setup, targets)
