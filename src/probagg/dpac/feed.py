"""Batches of images on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from probagg.environment import free_memory as free_on_machine
from probagg.progress import logger

AHEAD = 3  # batches that are read in advance
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
        self.resident = wanted <= share * free_memory(device)
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
            yield from self._read_ahead(rows)

    def _resident(self) -> Tensor:
        if self._store is None:
            store = torch.empty(len(self.images), *self.shape, dtype=torch.uint8)
            for first in range(0, len(store), CHUNK):
                rows = np.arange(first, min(first + CHUNK, len(store)))
                store[first : first + CHUNK] = torch.from_numpy(self.images.read(rows))
            self._store = store.to(self.device)
        return self._store

    def _read_ahead(self, rows: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        pin = self.device.type == "cuda"

        def read(chosen: Tensor) -> tuple[Tensor, Tensor]:
            images = torch.from_numpy(np.ascontiguousarray(self.images.read(chosen.numpy())))
            return (images.pin_memory(), chosen.pin_memory()) if pin else (images, chosen)

        waiting: list[Future[tuple[Tensor, Tensor]]] = []
        pool = ThreadPoolExecutor(AHEAD)
        try:
            remaining = iter(rows)
            while True:
                while len(waiting) < AHEAD and (chosen := next(remaining, None)) is not None:
                    waiting.append(pool.submit(read, chosen))
                if not waiting:
                    return
                images, chosen = waiting.pop(0).result()
                yield (
                    images.to(self.device, non_blocking=True),
                    chosen.to(self.device, non_blocking=True),
                )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


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


def free_memory(device: torch.device) -> float:
    """Return the free bytes of a device; for a CPU, half of what this process can still take."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return free_on_machine() / 2
