"""The device on which torch computes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
def one_torch_thread() -> Iterator[None]:
    """Let torch compute in one thread of the CPU.

    In many small steps threads wait for each other: where other programs are busy, 2 to 20 times as
    long as one of them computes. (`environment.one_thread` may not know torch: it looks once.)
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
