"""Sums and gathers over the processes of a distributed run, with gradients.

Each process computes the loss of its own rows against the global batch. Averaged over processes, as
DistributedDataParallel averages gradients, that is the loss and the gradient of one process with
the whole batch: what flows back into other processes' rows is summed here.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def n_processes() -> int:
    """1 where no process group is up."""
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
    """The sum of every process's tensor, on each; gradients are summed on the way back."""
    return tensor if n_processes() == 1 else _Sum.apply(tensor)


def gather_rows(tensor: Tensor) -> Tensor:
    """Every process's rows, in order of rank; gradients return to the process that owns a row.

    All processes must bring the same number of rows, as a sampler with `drop_last=True` gives.
    """
    if n_processes() == 1:
        return tensor
    rows, first = len(tensor), first_row(tensor)
    whole = tensor.new_zeros(n_processes() * rows, *tensor.shape[1:])
    index = torch.arange(first, first + rows, device=tensor.device)
    return sum_over_processes(whole.index_copy(0, index, tensor))


def first_row(tensor: Tensor) -> int:
    """Where this process's rows begin in what `gather_rows` returns."""
    return 0 if n_processes() == 1 else dist.get_rank() * len(tensor)
