"""Self-labelling by FixMatch with a mean teacher, from images whose neighbours agree.

    python -m benchmarks training --stages self_label --weights FOLDER --way tenth teacher=0.1 ...

The factor of the backbone's learning rate follows `teacher=`. On CIFAR-10 the first epoch destroyed
the features at 1 (seed 35) and 0.1 (seed 37); 0.02 gained (benchmarks/notes/gpu_minutes.md).
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.feed import estimate_statistics
from probagg.dpac.pretext import start_average, update_average
from probagg.dpac.self_labelling import SelfLabelStage, rank_in_cluster
from probagg.dpac.stages import Setup, make_views, total
from probagg.dpac.start import fit_head
from probagg.dpac.step import Batch
from probagg.dpac.views import Views
from probagg.known import with_known
from probagg.neighbours.smoothing import smoothing_graph
from probagg.opa.targets import as_float

FIXED_SHARE = 1 / 6  # of each cluster, whose labels never change
MILD_CROP = 0.5  # least share of the image that a view shows
AVERAGED = 1 / 50  # of the stage's steps, over which the teacher averages


class TeacherStage(SelfLabelStage):
    """A teacher labels mild views for strong ones (FixMatch, Sohn et al., 2020).

    A share of each cluster, the images with the most neighbours in it, keep their labels, and the
    linear head is first fitted to them alone. The teacher, whose weights are the average of the
    student's, labels a mild view of all others where it is confident; the student learns all labels
    on strong views, without a pretext task. The teacher is the result.
    """

    def __init__(self, setup: Setup, backbone_rate: float = 1.0) -> None:
        super().__init__(setup)
        self.backbone_rate = backbone_rate
        whole = replace(setup.recipe.views, jitter_probability=0.0, grayscale=0.0, blur=0.0)
        low, high = setup.recipe.views.crop
        self.mild = Views(replace(whole, crop=(max(low, MILD_CROP), high), strong_crop=True))
        self.student = nn.ModuleList([self.model.backbone, self.model.self_labeller])
        # In training mode: batch norm has its own statistics, of mild views.
        self.teacher = nn.ModuleList(map(start_average, self.student)).train()
        plan = self.plan
        steps = AVERAGED * plan.epochs * (len(self.feed) // plan.batch_size)
        self.momentum = 1.0 - 1.0 / max(steps, 2.0)
        self.fixed = self.known.clone()  # the label of each image, -1 where the teacher gives it

    def rate(self, name: str) -> float:
        """Return the backbone's factor, and that of other stages for the rest."""
        return self.backbone_rate if name.startswith("backbone.") else super().rate(name)

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the fixed labels and the teacher."""
        return {"fixed": self.fixed} | {
            f"teacher.{name}": tensor for name, tensor in self.teacher.state_dict().items()
        }

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return a mild and a strong view, both cropped."""
        return make_views(self.mild, ("weak", "strong"), batch)

    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return the cross-entropies of strong views with fixed labels and with the teacher's."""
        mild, strong = views
        with torch.no_grad():
            update_average(self.teacher, self.student, self.momentum)
            confidence, label = as_float(self._logits(self.teacher, mild)).softmax(1).max(1)
        given = self.fixed[batch.samples]
        fixed = given >= 0
        sure = ~fixed & (confidence >= self.recipe.self_label.confidence)
        logits = as_float(self._logits(self.student, strong))
        rows = F.cross_entropy(logits, torch.where(fixed, given, label), reduction="none")
        terms = {
            "fixed": (fixed * rows).sum() / fixed.sum().clamp(min=1),
            "self_label": (sure * rows).mean(),
        }
        return {"loss": total(terms), **terms, "confident": sure.float().mean()}

    @staticmethod
    def _logits(network: nn.ModuleList, views: Tensor) -> Tensor:
        backbone, head = network
        return head(backbone(views))

    def before_epoch(self, epoch: int) -> None:
        """Fix labels and fit the head to them as the stage begins."""
        if epoch > 0:
            return
        estimate_statistics(self.model.backbone, self.views, self.feed)
        features, P = (tensor.to(self.fixed.device) for tensor in self.infer())
        near = smoothing_graph(features, self.model.n_clusters, self.recipe.cluster.metric)
        P = with_known(P, self.known)
        labels, chosen = P.argmax(1), central_rows(near, P) | (self.known >= 0)
        self.fixed.copy_(torch.where(chosen, labels, -1))
        one_hot = F.one_hot(labels, self.model.n_clusters).float()
        fit_head(self.model.self_labeller, features[chosen], one_hot[chosen], self.setup.seed)
        self.teacher.load_state_dict(self.student.state_dict())

    def finish(self) -> None:
        """Take over the teacher with statistics of clean views; its head makes the predictions."""
        self.student.load_state_dict(self.teacher.state_dict())
        estimate_statistics(self.model.backbone, self.views, self.feed)
        self.model.self_labelled.fill_(True)


@torch.no_grad()
def central_rows(near: Tensor, P: Tensor) -> Tensor:
    """Return whether each row is in the share of its cluster with the most neighbours in it.

    Rows with equally many are taken by their confidence.

    >>> near = torch.tensor([[0, 1], [1, 0], [2, 1], [3, 4], [4, 3], [5, 1]])
    >>> P = torch.tensor([0.7, 0.8, 0.9, 0.2, 0.1, 0.3])
    >>> central_rows(near, torch.stack([P, 1 - P], dim=1))
    tensor([False, False,  True, False,  True, False])
    """
    confidence, labels = P.max(1)
    agreement = (labels[near] == labels[:, None]).double().mean(1)
    score = agreement + 1e-3 * confidence  # too little to outweigh a neighbour
    most = (FIXED_SHARE * labels.bincount()).ceil()[labels]
    return rank_in_cluster(score, labels, P.shape[1]) <= most
