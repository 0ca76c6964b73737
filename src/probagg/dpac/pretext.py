"""Pretext tasks, which train the backbone beside clustering (Tables 5a and 5b of the paper).

Each is a module that owns its head and returns a loss of the views of a batch and their features.
Its buffers change in place, since a recorded CUDA graph keeps their addresses. A user's own task is
`DPAC(pretext=...)`; a new one of a recipe is a class here, an entry in `build_pretext` and a name
in `recipe.TASKS`.
"""

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probagg.dpac.recipe import Pretext
from probagg.opa.processes import gather_rows
from probagg.opa.targets import as_float, full_precision, weighted_contrastive


def norm_layer(kind: str, width: int, dimensions: int) -> nn.Module:
    """Return batch norm, or group norm, whose result for a row does not depend on its batch."""
    if kind == "group":
        return nn.GroupNorm(1, width)
    return nn.BatchNorm2d(width) if dimensions == 2 else nn.BatchNorm1d(width)


def mlp(widths: Sequence[int], norm: str) -> nn.Sequential:
    """Return linear layers with a norm (or "none") and ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after)]
        layers += [norm_layer(norm, after, 1)] if norm != "none" else []
        layers += [nn.ReLU()]
    drop = 1 if norm == "none" else 2  # the last linear layer has neither
    return nn.Sequential(*layers[:-drop])


def distance_spaces(pretext: nn.Module) -> dict[str, nn.Module]:
    """Return the layers from the features to each of `recipe.SPACES` that a task has.

    Without a projector there are only the features. Layers of a later space include those of the
    spaces before.
    """
    spaces: dict[str, nn.Module] = {"features": nn.Identity()}
    projector = getattr(pretext, "projector", None)
    if isinstance(projector, nn.Sequential):
        if len(projector) > 1:
            spaces["hidden"] = projector[:-1]
        spaces["projections"] = projector
    return spaces


def start_average(module: nn.Module) -> nn.Module:
    """Return a copy of a module without gradient, to be moved by `update_average` alone."""
    return copy.deepcopy(module).requires_grad_(False)


def update_average(average: nn.Module, current: nn.Module, momentum: float) -> None:
    """Update parameters in place: average <- momentum * average + (1 - momentum) * current.

    Buffers are not averaged: the batch norm statistics of `average` come from its own forward
    passes.
    """
    for a, c in zip(average.parameters(), current.parameters(), strict=True):
        a.lerp_(c.detach(), 1.0 - momentum)


class Contrast(nn.Module):
    """SimCLR and WCL: Eq. 11 between the projections of two views.

    Without probabilities (in pre-training), or with `weighted=False`, it is plain NT-Xent; the
    paper's uniform P only adds the constant log(1 - 1/K) to that.
    """

    def __init__(self, settings: Pretext, dim: int, norm: str) -> None:
        super().__init__()
        self.projector = mlp((dim, *settings.head), norm)
        self.temperature = settings.temperature
        self.weighted = settings.task == "wcl"

    def forward(
        self, backbone: nn.Module, views: list[Tensor], features: Tensor, P: Tensor | None
    ) -> Tensor:
        """Return the mean over the batch, both orders averaged."""
        z = self.projector(features)
        return contrast_views(z, P if self.weighted else None, self.temperature)


def contrast_views(z: Tensor, P: Tensor | None, temperature: float) -> Tensor:
    """Return the batch mean of Eq. 11, whose views' projections come one after the other."""
    z1, z2 = z.chunk(2)
    return weighted_contrastive(z1, z2, P, temperature=temperature, gather=True).mean()


class MomentumContrast(nn.Module):
    """MoCo: a view's projection picks the other view's key out of a queue of past keys.

    The loss is the mean of both orders, an option of the authors' code: if only the weak view were
    a query, no gradient would come from strong views.
    """

    queue: Tensor
    cursor: Tensor

    def __init__(self, settings: Pretext, backbone: nn.Module, dim: int, norm: str) -> None:
        super().__init__()
        self.projector = mlp((dim, *settings.head), norm)
        self.key_backbone = start_average(backbone)
        self.key_projector = start_average(self.projector)
        self.temperature, self.key_momentum = settings.temperature, settings.key_momentum
        queue = F.normalize(torch.randn(settings.queue_size, settings.head[-1]), dim=1)
        self.register_buffer("queue", queue)
        self.register_buffer("cursor", torch.zeros((), dtype=torch.int64))

    def forward(
        self, backbone: nn.Module, views: list[Tensor], features: Tensor, P: Tensor | None
    ) -> Tensor:
        """Return InfoNCE with the queue as negatives, then add the batch's keys to the queue."""
        query = self.projector(features)
        with torch.no_grad():
            update_average(self.key_backbone, backbone, self.key_momentum)
            update_average(self.key_projector, self.projector, self.key_momentum)
            x1, x2 = self.key_backbone(torch.cat(views)).chunk(2)
            key = self.key_projector(torch.cat([x2, x1]))  # the other view's
        with full_precision(query):
            query = F.normalize(as_float(query), dim=1)
            key = F.normalize(as_float(key), dim=1)
            positive = (query * key).sum(1, keepdim=True)
            logits = torch.cat([positive, query @ self.queue.clone().T], dim=1) / self.temperature
            self._enqueue(gather_rows(key))
            return (torch.logsumexp(logits, 1) - logits[:, 0]).mean()

    def _enqueue(self, keys: Tensor) -> None:
        keys = keys[-len(self.queue) :]
        places = (self.cursor + torch.arange(len(keys), device=keys.device)) % len(self.queue)
        self.queue.index_copy_(0, places, keys)
        self.cursor.add_(len(keys)).remainder_(len(self.queue))


class BootstrapLatent(nn.Module):
    """BYOL: predict, from one view, the target network's projection of the other view.

    The target network is a moving average of backbone and projector and gets no gradient. The
    predictor has one hidden layer, as wide as the projector's first. Two things differ from Grill
    et al. (2020): the loss is the mean of both orders, not the sum, and the momentum is constant,
    not raised to 1.

    There are no negatives that probabilities could weigh, so BYOL is the task of pre-training
    alone: the stages that cluster go on with Eq. 11 of the projections.
    """

    def __init__(self, settings: Pretext, backbone: nn.Module, dim: int, norm: str) -> None:
        super().__init__()
        hidden, out = settings.head[0], settings.head[-1]
        self.projector = mlp((dim, *settings.head), norm)
        self.predictor = mlp((out, hidden, out), norm)
        self.target_backbone = start_average(backbone)
        self.target_projector = start_average(self.projector)
        self.momentum, self.temperature = settings.key_momentum, settings.temperature

    def forward(
        self, backbone: nn.Module, views: list[Tensor], features: Tensor, P: Tensor | None
    ) -> Tensor:
        """Return 2 - 2 cos(prediction, target), the mean over the batch and both orders.

        With probabilities it is Eq. 11.
        """
        if P is not None:
            return contrast_views(self.projector(features), P, self.temperature)
        return self.distance(*self.projections(backbone, views, features))

    def projections(
        self, backbone: nn.Module, views: list[Tensor], features: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the projections of both views, and the target's of the other view of each."""
        z = self.projector(features)
        with torch.no_grad():
            update_average(self.target_backbone, backbone, self.momentum)
            update_average(self.target_projector, self.projector, self.momentum)
            x1, x2 = self.target_backbone(torch.cat(views)).chunk(2)
            return z, self.target_projector(torch.cat([x2, x1]))

    def distance(self, z: Tensor, target: Tensor) -> Tensor:
        """Return the loss of projections: 2 - 2 cos(prediction, target)."""
        prediction = self.predictor(z)
        with full_precision(prediction):
            cosine = F.cosine_similarity(as_float(prediction), as_float(target), dim=1)
            return (2.0 - 2.0 * cosine).mean()


class Reconstruction(nn.Module):
    """An autoencoder: reconstruct the first view from its features."""

    def __init__(self, settings: Pretext, dim: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, height, width = shape
        self.decoder = mlp((dim, *settings.head, channels * height * width), "none")

    def forward(
        self, backbone: nn.Module, views: list[Tensor], features: Tensor, P: Tensor | None
    ) -> Tensor:
        """Return the mean squared error over pixels."""
        image = views[0].flatten(1)
        return F.mse_loss(as_float(self.decoder(features[: len(image)])), as_float(image))


class NoPretext(nn.Module):
    """Clustering alone."""

    def forward(
        self, backbone: nn.Module, views: list[Tensor], features: Tensor, P: Tensor | None
    ) -> Tensor:
        """Return zero."""
        return torch.zeros((), device=features.device)


def build_pretext(
    settings: Pretext, backbone: nn.Module, dim: int, shape: tuple[int, int, int], norm: str
) -> nn.Module:
    """Return the module of a recipe's pretext task."""
    tasks: dict[str, Callable[[], nn.Module]] = {
        "wcl": lambda: Contrast(settings, dim, norm),
        "simclr": lambda: Contrast(settings, dim, norm),
        "moco": lambda: MomentumContrast(settings, backbone, dim, norm),
        "byol": lambda: BootstrapLatent(settings, backbone, dim, norm),
        "autoencoder": lambda: Reconstruction(settings, dim, shape),
        "none": NoPretext,
    }
    return tasks[settings.task]()
