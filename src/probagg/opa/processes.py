"""The processes of a distributed run: sums and gathers with gradients, and what they share.

Each process computes the loss of its own rows against the global batch. Gradients with respect to
the rows of other processes are summed here, so the average over processes, which
DistributedDataParallel takes, is the gradient of one process with the whole batch.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from probagg.errors import InputError


def n_processes() -> int:
    """Return the number of processes, 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        dist.all_reduce(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


def sum_over_processes(tensor: Tensor) -> Tensor:
    """Return the sum of the tensors of all processes; gradients are summed in the backward pass."""
    return tensor if n_processes() == 1 else _Sum.apply(tensor)


def gather_rows(tensor: Tensor) -> Tensor:
    """Return the rows of all processes by rank; gradients go to the process that owns a row.

    All processes must have the same number of rows, as with `drop_last=True`.
    """
    if n_processes() == 1:
        return tensor
    rows, first = len(tensor), first_row(tensor)
    # On CPUs gloo would end the process. On GPUs asking would wait for them at every step.
    if tensor.device.type == "cpu":
        most = torch.tensor([rows, -rows])
        dist.all_reduce(most, dist.ReduceOp.MAX)
        if most.sum():
            raise InputError(
                f"The processes have {-int(most[1])} to {int(most[0])} rows, but as many in each "
                "are needed. Leave out an incomplete batch: drop_last=True."
            )
    whole = tensor.new_zeros(n_processes() * rows, *tensor.shape[1:])
    index = torch.arange(first, first + rows, device=tensor.device)
    return sum_over_processes(whole.index_copy(0, index, tensor))


def first_row(tensor: Tensor) -> int:
    """Return the index of this process's first row in the result of `gather_rows`."""
    return 0 if n_processes() == 1 else dist.get_rank() * len(tensor)


@contextlib.contextmanager
def join_processes(device: torch.device) -> Iterator[None]:
    """Join the process group if torchrun started several processes; otherwise do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def is_first_process() -> bool:
    """Return whether this process is the one that writes files."""
    return n_processes() == 1 or dist.get_rank() == 0


def process_share(rows: Tensor) -> Tensor:
    """Return this process's rows of a batch."""
    return rows.chunk(n_processes())[dist.get_rank()] if n_processes() > 1 else rows


def synchronize(*states: Mapping[str, Tensor]) -> None:
    """Overwrite the tensors of all processes with those of the first."""
    if n_processes() > 1:
        for state in states:
            for tensor in state.values():
                dist.broadcast(tensor, src=0)


def from_first_process(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the first process's tensor in every process, communicated through `device`."""
    if n_processes() == 1:
        return tensor
    shared = tensor.to(device)
    dist.broadcast(shared, src=0)
    return shared.to(tensor.device)
