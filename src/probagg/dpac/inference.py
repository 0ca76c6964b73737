"""Features and probabilities of a set of images, from clean views; their batch norm statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from probagg.dpac.feed import Feed
from probagg.dpac.model import Model
from probagg.dpac.views import Views
from probagg.opa.functional import as_float

PIXELS = 2**21  # per batch of views: 2048 views of 32 x 32, 227 of 96 x 96
STATISTICS = 5000  # images from which batch norm statistics are estimated


@torch.no_grad()
def infer(
    model: Model, views: Views, feed: Feed, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return features (n, D) and probabilities (n, K) of rows (None: all), as float32 on the CPU.

    The model runs in evaluation mode, so that the result of an image does not depend on the others
    of its batch; the mode is restored afterwards.
    """
    training = model.training
    model.eval()
    features, probabilities = [], []
    rows = torch.arange(len(feed)) if rows is None else rows
    for images, _ in feed.batches(rows.split(max(1, PIXELS // views.settings.size**2))):
        x, logits = model(views.clean(images))
        features.append(as_float(x).cpu())
        probabilities.append(as_float(logits).softmax(1).cpu())
    model.train(training)
    return torch.cat(features), torch.cat(probabilities)


@torch.no_grad()
def estimate_statistics(network: nn.Module, views: Views, feed: Feed) -> None:
    """Replace the running statistics of batch norm layers by those of clean views.

    Training leaves the statistics of random views, with which the features of clean views cluster
    worse (docs/cifar10.md).
    """
    layers = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
    if not layers:
        return
    training, momenta = network.training, [layer.momentum for layer in layers]
    network.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.train().momentum = None  # the mean over batches
    rows = torch.randperm(len(feed), generator=torch.Generator().manual_seed(0))[:STATISTICS]
    n_batches = -(-len(rows) * views.settings.size**2 // PIXELS)
    for images, _ in feed.batches(rows.tensor_split(n_batches)):
        network(views.clean(images))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    network.train(training)
