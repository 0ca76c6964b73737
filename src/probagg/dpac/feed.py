"""Batches of images on the device, and a network applied to all of them."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from probagg.arrays import chunks
from probagg.dpac.views import Views
from probagg.environment import free_memory
from probagg.opa.targets import as_float
from probagg.progress import logger
from probagg.threads import read_ahead

AHEAD = 3  # batches that are read in advance
PIXELS = 2**21  # pixels of a batch without gradient: 2048 views of 32 x 32, 227 of 96 x 96
STATISTICS = 5000  # images from which batch norm statistics are estimated
CHUNK = 4096  # images read at a time when all are moved to the device


class Images(Protocol):
    """What a feed needs of a set: its length, and rows as uint8 (n, height, width, channels)."""

    def __len__(self) -> int: ...

    def read(self, rows: np.ndarray) -> np.ndarray: ...


class Feed:
    """Batches of images on the device.

    All images are kept on the device if they take less than `share` of its free memory. Otherwise
    threads read some batches in advance: decoding does not hold Python's lock.
    """

    def __init__(self, images: Images, device: torch.device, *, share: float = 0.4) -> None:
        self.images, self.device = images, device
        self.shape = images.read(np.arange(1)).shape[1:]
        wanted = len(images) * int(np.prod(self.shape))
        self.resident = wanted <= share * device_memory(device)
        self._store: Tensor | None = None
        if not self.resident:
            logger.info("%.1f GB of images are read batch by batch.", wanted / 1e9)

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images of each tensor of rows (on the CPU) and the rows, on the device."""
        if self.resident:
            store = self._resident()
            whole = torch.cat(list(rows)).to(self.device) if rows else torch.empty(0)
            for chosen in whole.split([len(r) for r in rows]):  # one transfer, not one per batch
                yield store.index_select(0, chosen), chosen
        else:
            for images, chosen in read_ahead(self._read, rows, AHEAD):
                yield (
                    images.to(self.device, non_blocking=True),
                    chosen.to(self.device, non_blocking=True),
                )

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images of rows, and the rows, ready to be moved to the device."""
        images = torch.from_numpy(np.ascontiguousarray(self.images.read(rows.numpy())))
        if self.device.type == "cuda":
            return images.pin_memory(), rows.pin_memory()
        return images, rows

    def _resident(self) -> Tensor:
        if self._store is None:
            store = torch.empty(len(self.images), *self.shape, dtype=torch.uint8)
            for chunk in chunks(len(store), CHUNK):
                rows = np.arange(chunk.start, chunk.stop)
                store[chunk] = torch.from_numpy(self.images.read(rows))
            self._store = store.to(self.device)
        return self._store


class Joined:
    """Two sets as one: the images to cluster, then more that only pre-training uses."""

    def __init__(self, first: Images, second: Images) -> None:
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of both sets, in the given order."""
        border = len(self.first)
        later = rows >= border
        shape = self.first.read(np.arange(1)).shape[1:]
        out = np.empty((len(rows), *shape), np.uint8)
        out[~later] = self.first.read(rows[~later])
        out[later] = self.second.read(rows[later] - border)
        return out


def device_memory(device: torch.device) -> float:
    """Return the free bytes of a device; for a CPU, half of what this process can still take."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return free_memory() / 2


@torch.no_grad()
def infer(
    model: nn.Module, views: Views, feed: Feed, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return features (n, D) and probabilities (n, K) of rows (None: all), as float32 on the CPU.

    The model, which returns features and logits, runs in evaluation mode, so that the result of an
    image does not depend on the others of its batch; the mode is restored afterwards.
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
    worse (benchmarks/notes/cifar10.md).
    """
    layers = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
    if not layers:
        return
    training, momenta = network.training, [layer.momentum for layer in layers]
    network.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.train().momentum = None  # statistics are then the mean over batches
    rows = torch.randperm(len(feed), generator=torch.Generator().manual_seed(0))[:STATISTICS]
    n_batches = -(-len(rows) * views.settings.size**2 // PIXELS)
    n_batches = max(min(n_batches, len(rows) // 2), 1)  # a variance needs two images
    for images, _ in feed.batches(rows.tensor_split(n_batches)):
        network(views.clean(images))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    network.train(training)
