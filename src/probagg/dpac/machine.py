"""Where training runs: device, processes, signals."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor, nn

from probagg.opa.processes import n_processes
from probagg.processes import on_signals


@dataclass(frozen=True)
class Machine:
    """How to run a recipe; the result changes by rounding only."""

    device: str = "auto"  # CUDA, else MPS, else the CPU; or any torch device
    precision: str = "auto"  # fp32, bf16 or fp16; auto is bf16 on CUDA GPUs that support it
    compile: bool | None = None  # torch.compile; None compiles long runs on CUDA
    max_minutes: float | None = None
    save_minutes: float = 1.0


def move_to_device(module: nn.Module, device: torch.device) -> nn.Module:
    """Return the module on a device; on CUDA channels-last, with batch norm over all processes."""
    if device.type != "cuda":
        return module.to(device)
    if n_processes() > 1:
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    return module.to(device).to(memory_format=torch.channels_last)


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


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[str], bool]) -> Iterator[None]:
    """Call `stop` with the name of a signal; where it returns True, Ctrl-C interrupts at once."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop(signal.Signals(number).name) and number == signal.SIGINT:
            raise KeyboardInterrupt

    with on_signals(handle):
        yield
