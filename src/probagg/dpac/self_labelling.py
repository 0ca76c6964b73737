"""Self-labelling, the last stage: confident pseudo-labels train a linear head on strong views.

`self_label.labels` names one of three variants, by where the pseudo-labels come from.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.feed import infer
from probagg.dpac.stages import NetworkStage, Setup, make_views, total
from probagg.dpac.start import fit_head
from probagg.dpac.step import Batch
from probagg.errors import ClusteringWarning, warn_user
from probagg.known import with_known
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph
from probagg.opa.processes import gather_rows
from probagg.opa.targets import as_float

MIN_AGREEMENT = 0.8  # with the pseudo-labels, below which the linear head is not used


class SelfLabelStage(NetworkStage):
    """Confident pseudo-labels train a linear head on strong views.

    Its variants differ in where the pseudo-labels come from: `RememberedLabels` is the paper's.
    They decide at the end whether the linear head or the classifier makes the predictions.
    """

    name = "self_label"

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
            warn_user(
                f"The self-labelling head agrees with its labels on {100 * agreement:.1f} % of the "
                f"images, with {100 * confidence:.0f} % of their confidence, so the classifier is "
                f"used instead. Raise self_label.epochs or pre-train longer{other}.",
                ClusteringWarning,
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
        self.labels = self.known.clone()
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
        with torch.no_grad():
            P = as_float(self.classifier(self.backbone(clean))).softmax(1)
        self._label(gather_rows(P), gather_rows(batch.samples))
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

    def _label(self, P: Tensor, samples: Tensor | slice) -> None:
        """Update the labels of samples with these probabilities, in every process alike."""
        threshold = self.recipe.self_label.confidence
        labels, known = confident_labels(P, self.labels[samples], threshold), self.known[samples]
        self.labels[samples] = torch.where(known >= 0, known, labels)

    def before_epoch(self, epoch: int) -> Tensor | None:
        """Label all images as the stage begins, and return the strata."""
        if epoch == 0:
            self._label(self.infer()[1].to(self.labels.device), slice(None))
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
        P1 = with_known(as_float(logits1.detach()).softmax(1), self.known[batch.samples])
        confidence, labels = P1.max(1)
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
        smoothed = smooth(near, P, mass=self.mass, known=self.known)
        Q.copy_(with_known(sharpen(smoothed, to=sharpness(before)), self.known))
        fit_head(self.model.self_labeller, features, Q, self.setup.seed)


# By the name that `self_label.labels` has for it.
VARIANTS: dict[str, type[SelfLabelStage]] = {
    "memory": RememberedLabels,
    "classifier": ClassifierLabels,
    "neighbours": SmoothedLabels,
}


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
    rank = rank_in_cluster(confidence, cluster, K)
    new = torch.where(rank <= math.ceil(n / (2 * K)), cluster, -1)
    return torch.where(confidence >= threshold, torch.where(before >= 0, before, new), -1)


def rank_in_cluster(score: Tensor, cluster: Tensor, n_clusters: int) -> Tensor:
    """Return the place of each row in its cluster, 1 for the highest score.

    >>> rank_in_cluster(torch.tensor([0.1, 0.9, 0.5, 0.7]), torch.tensor([0, 1, 0, 1]), 2)
    tensor([2, 1, 1, 2])
    """
    order = score.argsort(descending=True, stable=True)
    member = cluster[order][:, None] == torch.arange(n_clusters, device=cluster.device)
    rank = torch.empty_like(cluster)
    rank[order] = (member.cumsum(0) * member).sum(1)
    return rank


def evaluating(module: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode that shares all weights and statistics of the module."""
    shared = {id(t): t for t in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared).eval()
