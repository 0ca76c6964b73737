"""The device on which torch computes, and copies of arrays to it."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probagg.environment import free_memory
from probagg.errors import InputError


def choose_device(name: str | torch.device) -> torch.device:
    """Return a torch device; "auto" is the GPU of this process, else Apple's, else the CPU."""
    if name == "auto":
        name = "mps" if torch.backends.mps.is_available() else "cpu"
        name = "cuda" if torch.cuda.is_available() else name
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(
            f"device is {name!r}, but auto, cpu, cuda, cuda:1 or mps is needed."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"device is {name!r}, but PyTorch finds no CUDA GPU here. Use auto or cpu."
        )
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


@contextmanager
def one_torch_thread() -> Iterator[Callable[[], None]]:
    """Let torch compute in one thread of the CPU; other threads call what is yielded, once each.

    In many small steps threads wait for each other: where other programs are busy, 2 to 20 times as
    long as one of them computes. (`environment.one_thread` may not know torch: it looks once.)
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield partial(torch.set_num_threads, 1)
    finally:
        torch.set_num_threads(before)


class Copies:
    """Copies of arrays to a device; to a GPU by a stream of their own, while another one computes.

    Threads may send; the thread that computes receives.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def free_bytes(self) -> float:
        """The memory that is left on the device."""
        if self.device.type != "cuda":
            return free_memory()
        reserved = torch.cuda.memory_reserved(self.device)  # by torch, of which some is in use
        in_use = torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + reserved - in_use

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
        """Return a tensor on the device that is yet to be filled."""
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=self.device)

    def send(self, parts: Sequence[np.ndarray]) -> Any:
        """Start to copy arrays, joined, and return what `receive` takes."""
        shape, dtype = (sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype
        is_pinned = self._stream is not None
        host = torch.empty(shape, dtype=getattr(torch, dtype.name), pin_memory=is_pinned)
        np.concatenate(parts, out=host.numpy())
        if self._stream is None:
            return host.to(self.device), None
        with torch.cuda.stream(self._stream):
            return host.to(self.device, non_blocking=True), self._stream.record_event()

    def receive(self, sent: Any) -> Tensor:
        """Return the copy; what this thread computes with it waits until it is there."""
        tensor, event = sent
        if event is not None:
            here = torch.cuda.current_stream(self.device)
            here.wait_event(event)
            tensor.record_stream(here)
        return tensor
