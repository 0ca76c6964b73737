"""Self-labelling as semi-supervised learning, after ClusMatch (`self_label.labels = "matched"`).

A few images per cluster keep their labels; the others are labelled anew at every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.feed import infer
from probagg.dpac.pretext import start_average, update_average
from probagg.dpac.randomness import uniforms
from probagg.dpac.stages import (
    ClassifierLabels,
    RememberedLabels,
    SelfLabelStage,
    Setup,
    SmoothedLabels,
    total,
)
from probagg.dpac.start import fit_head
from probagg.dpac.step import Batch
from probagg.dpac.views import Views
from probagg.neighbours.smoothing import smoothing_graph
from probagg.opa.targets import as_float

FIXED = 60  # images of each cluster whose labels never change
PART = 7  # a batch comes with a seventh as many fixed images
AVERAGING = 0.999  # momentum of the weights that are kept
RUNNING = 0.999  # momentum of the thresholds
NEGATIVE = 0.5  # weight of the term for improbable clusters
STREAM = 9  # random numbers that draw fixed images; views use 0 to 3


class MatchedLabels(SelfLabelStage):
    """Fixed labels where neighbours agree; elsewhere a mild view's label trains the strong view.

    A label is used where its probability is above the running mean of its cluster. Clusters whose
    probability is below their running mean for that label are pushed down. There is no pretext
    task. The averaged weights are the result.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        K, n, device = self.model.n_clusters, len(self.feed), self.feed.device
        self.mild = Views(
            replace(setup.recipe.views, crop=(0.75, 1.0), jitter_probability=0.0, grayscale=0.0)
        )
        self.current = nn.ModuleList([self.model.backbone, self.model.self_labeller])
        self.average = nn.ModuleList(map(start_average, self.current))
        count = K * min(FIXED, max(1, n // (2 * K)))
        self.clusters = torch.full((n, K), 1.0 / K, device=device)
        self.running = torch.full((K, K), 1.0 / K, device=device)
        self.images = torch.zeros(count, *self.feed.shape, dtype=torch.uint8, device=device)
        self.rows, self.labels = (
            torch.zeros(count, dtype=torch.int64, device=device) for _ in range(2)
        )

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the clusters at the start, the fixed images, thresholds and averaged weights."""
        names = "clusters", "running", "images", "rows", "labels"
        averages = {f"average.{k}": v for k, v in self.average.state_dict().items()}
        return {**{name: getattr(self, name) for name in names}, **averages}

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return mild views of some fixed images, their labels, mild and strong views."""
        some = batch.samples[: math.ceil(len(batch.samples) / PART)]
        drawn = uniforms(batch.key, some, 1, STREAM)[:, 0] * len(self.rows)
        drawn = drawn.long().clamp(max=len(self.rows) - 1)
        return [
            self.mild.weak(self.images[drawn], self.rows[drawn], batch.key, copy=1),
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
        logits = as_float(
            self.model.self_labeller(self.model.backbone(torch.cat([fixed, mild, strong])))
        )
        sizes = [len(fixed), len(mild), len(strong)]
        known, weak, learnt = logits.split(sizes)
        P = weak.detach().softmax(1)
        confidence, label = P.max(1)
        self._update_thresholds(P, label)
        mean = self.running[label]
        sure = confidence >= mean.gather(1, label[:, None])[:, 0]
        improbable = (mean > P) & (torch.arange(P.shape[1], device=P.device) != label[:, None])
        wrong = (learnt.softmax(1) * improbable).sum(1)
        terms = {
            "fixed": F.cross_entropy(known, labels),
            "self_label": (sure * F.cross_entropy(learnt, label, reduction="none")).mean(),
            "negative": -NEGATIVE * (1.0 - wrong).clamp(min=1e-8).log().mean(),
        }
        return {"loss": total(terms), **terms, "confident": sure.float().mean()}

    @torch.no_grad()
    def _update_thresholds(self, P: Tensor, label: Tensor) -> None:
        """Move the mean probabilities of the rows of each label; a label without rows keeps its."""
        member = (label[:, None] == torch.arange(P.shape[1], device=P.device)).float()
        count = member.sum(0)[:, None]
        mean = torch.where(count > 0, member.T @ P / count.clamp(min=1), self.running)
        self.running.lerp_(mean, 1.0 - RUNNING)

    def before_epoch(self, epoch: int) -> None:
        """Fit the head to the clusters and fix the images whose neighbours agree, once."""
        if epoch > 0:
            return
        features, P = self.infer()
        features = features.to(self.clusters.device)
        self.clusters.copy_(P)
        label = self.clusters.argmax(1)
        near = smoothing_graph(features, self.model.n_clusters, self.recipe.cluster.metric)
        agreement = (label[near] == label[:, None]).double().mean(1)
        member = label[:, None] == torch.arange(P.shape[1], device=label.device)
        # Equal agreement is decided by confidence, which is at most 1 and so never outweighs it.
        score = agreement + 1e-3 * self.clusters.amax(1)
        score = torch.where(member.T, score, -1.0 + 1e-3 * self.clusters.T)
        best = score.topk(len(self.rows) // P.shape[1], dim=1).indices
        self.rows.copy_(best.flatten())
        self.labels.copy_(torch.arange(P.shape[1]).repeat_interleave(best.shape[1]))
        ((images, _),) = self.feed.batches([self.rows.cpu()])
        self.images.copy_(images)
        fit_head(self.model.self_labeller, features, self.clusters, self.setup.seed)
        self.average.load_state_dict(self.current.state_dict())

    def finish(self) -> None:
        """Take over the averaged weights, and use the head if it still reproduces the clusters."""
        self.current.load_state_dict(self.average.state_dict())
        features, _ = infer(self.model, self.views, self.feed)
        self.choose_head(features, self.clusters.cpu())


def self_label_stage(setup: Setup) -> SelfLabelStage:
    """Return the variant of self-labelling that the recipe names."""
    variants: dict[str, Callable[[Setup], SelfLabelStage]] = {
        "memory": RememberedLabels,
        "classifier": ClassifierLabels,
        "neighbours": SmoothedLabels,
        "matched": MatchedLabels,
    }
    return variants[setup.recipe.self_label.labels](setup)
