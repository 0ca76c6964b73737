"""Self-labelling, the last stage: confident pseudo-labels train a linear head on strong views.

`self_label.labels` names one of four variants, by where the pseudo-labels come from.
"""

import copy
import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.feed import infer
from probagg.dpac.pretext import start_average, update_average
from probagg.dpac.randomness import uniforms
from probagg.dpac.stages import NetworkStage, Setup, make_views, total
from probagg.dpac.start import fit_head
from probagg.dpac.step import Batch
from probagg.dpac.views import Views
from probagg.errors import ClusteringWarning, warn_user
from probagg.known import with_known
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph
from probagg.opa.processes import gather_rows
from probagg.opa.targets import as_float

MIN_AGREEMENT = 0.8  # with the pseudo-labels, below which the linear head is not used

# Of "matched":
FIXED_PER_CLUSTER = 60  # images whose labels never change
BATCH_PER_FIXED = 7  # images of a batch for each fixed one beside it
FIXED_DRAWS = 9  # the stream of random numbers that draw fixed images; views use 0 to 3
NEGATIVE = 0.5  # weight of the term for improbable clusters
AVERAGING = 0.999  # momentum of the weights that are kept
RUNNING = 0.999  # momentum of the thresholds


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


class MatchedLabels(SelfLabelStage):
    """After ClusMatch (Wu et al., 2025): a mild view's label trains the strong view.

    The label is used where its probability is above the running mean of its cluster. Half of it is
    the image's cluster, which is the classifier's, smoothed over the kNN graph every
    `refresh_epochs`. Clusters whose probability is below their running mean for that label are
    pushed down. A few images whose neighbours agree keep their labels. The classifier is trained
    with the backbone, without a pretext task, and the averaged weights are the result.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        K, n, device = self.model.n_clusters, len(self.feed), self.feed.device
        self.mild = Views(
            replace(setup.recipe.views, crop=(0.75, 1.0), jitter_probability=0.0, grayscale=0.0)
        )
        self.current = nn.ModuleList([self.model.backbone, self.model.classifier])
        self.average = nn.ModuleList(map(start_average, self.current))
        count = K * min(FIXED_PER_CLUSTER, max(1, n // (2 * K)))
        self.images = torch.zeros(count, *self.feed.shape, dtype=torch.uint8, device=device)
        self.labels = torch.arange(K, device=device).repeat_interleave(count // K)  # of `images`
        self.clusters = torch.zeros(n, dtype=torch.int64, device=device)
        self.mass = torch.full((K,), n / K, device=device)  # each cluster's, as the stage begins
        self.running = torch.full((K, K), 1.0 / K, device=device)

    @property
    def state(self) -> dict[str, Tensor]:
        """Return fixed images, clusters and their masses, thresholds and averaged weights."""
        names = "images", "clusters", "mass", "running"
        averages = {f"average.{k}": v for k, v in self.average.state_dict().items()}
        return {**{name: getattr(self, name) for name in names}, **averages}

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return mild views of some fixed images, their labels, mild and strong views."""
        some = batch.samples[: math.ceil(len(batch.samples) / BATCH_PER_FIXED)]
        drawn = uniforms(batch.key, some, 1, FIXED_DRAWS)[:, 0] * len(self.images)
        drawn = drawn.long().clamp(max=len(self.images) - 1)
        return [
            self.mild.weak(self.images[drawn], some, batch.key, copy=1),
            self.labels[drawn],
            self.mild.weak(batch.images, batch.samples, batch.key),
            self.views.strong(batch.images, batch.samples, batch.key),
        ]

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the cross-entropies of fixed and of matched labels, and the negative term."""
        fixed, labels, mild, strong = views
        with torch.no_grad():
            update_average(self.average, self.current, AVERAGING)
            for a, c in zip(self.average.buffers(), self.current.buffers(), strict=True):
                a.copy_(c)
        features = self.model.backbone(torch.cat([fixed, mild, strong]))
        logits = as_float(self.model.classifier(features))
        known, weak, learnt = logits.split([len(fixed), len(mild), len(strong)])
        P = with_known(weak.detach().softmax(1), self.known[batch.samples])
        K = P.shape[1]
        confidence, label = P.max(1)
        self.running.lerp_(mean_by_label(P, label, self.running), 1.0 - RUNNING)
        mean = self.running[label]
        sure = confidence >= mean.gather(1, label[:, None])[:, 0]
        positive = (F.one_hot(label, K) + F.one_hot(self.clusters[batch.samples], K)) / 2
        wrong = (learnt.softmax(1) * ((mean > P) & (positive == 0))).sum(1)
        terms = {
            "fixed": F.cross_entropy(known, labels),
            "self_label": (sure * F.cross_entropy(learnt, positive, reduction="none")).mean(),
            "negative": -NEGATIVE * (1.0 - wrong).clamp(min=1e-8).log().mean(),
        }
        return {"loss": total(terms), **terms, "confident": sure.float().mean()}

    def before_epoch(self, epoch: int) -> None:
        """Refresh the clusters every `refresh_epochs`, at first also what the stage begins with."""
        if epoch % self.recipe.self_label.refresh_epochs:
            return
        features, P = (tensor.to(self.mass.device) for tensor in self.infer())
        P = with_known(P, self.known)
        near = smoothing_graph(features, self.model.n_clusters, self.recipe.cluster.metric)
        if epoch == 0:
            self.mass.copy_(P.sum(0))
            self.running.copy_(mean_by_label(P, P.argmax(1), self.running))
            self._fix_images(near, P)
            self.average.load_state_dict(self.current.state_dict())
        self.clusters.copy_(smooth(near, P, mass=self.mass, known=self.known).argmax(1))

    def _fix_images(self, near: Tensor, P: Tensor) -> None:
        """Take the images of each cluster with the most neighbours in it."""
        label = P.argmax(1)
        agreement = (label[near] == label[:, None]).double().mean(1)
        member = label[:, None] == torch.arange(P.shape[1], device=label.device)
        # Equal agreement is decided by confidence, which is at most 1 and so never outweighs it.
        score = agreement + 1e-3 * P.amax(1) + (self.known >= 0)
        score = torch.where(member.T, score, -1.0 + 1e-3 * P.T)
        best = score.topk(len(self.images) // P.shape[1], dim=1).indices.flatten()
        ((images, _),) = self.feed.batches([best.cpu()])
        self.images.copy_(images)

    def finish(self) -> None:
        """Take over the averaged weights; the classifier makes the predictions."""
        self.current.load_state_dict(self.average.state_dict())


@torch.no_grad()
def mean_by_label(P: Tensor, label: Tensor, otherwise: Tensor) -> Tensor:
    """Return the mean probabilities (K, K) of the rows of each label, `otherwise` without rows.

    >>> P = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    >>> mean_by_label(P, torch.tensor([0, 0]), torch.zeros(2, 2)).tolist()
    [[0.625, 0.375], [0.0, 0.0]]
    """
    member = (label[:, None] == torch.arange(P.shape[1], device=P.device)).float()
    count = member.sum(0)[:, None]
    return torch.where(count > 0, member.T @ P / count.clamp(min=1), otherwise)


# By the name that `self_label.labels` has for it.
VARIANTS: dict[str, type[SelfLabelStage]] = {
    "memory": RememberedLabels,
    "classifier": ClassifierLabels,
    "neighbours": SmoothedLabels,
    "matched": MatchedLabels,
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
