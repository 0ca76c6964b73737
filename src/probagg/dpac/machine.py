"""Where training runs: device, processes, signals."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor, nn

from probagg.opa.processes import n_processes


@dataclass(frozen=True)
class Machine:
    """How to run a recipe; what is learnt changes by rounding only."""

    device: str = "auto"  # CUDA, else MPS, else the CPU; or a device of torch
    precision: str = "auto"  # fp32, bf16 or fp16; auto is bf16 on CUDA GPUs that have it
    compile: bool | None = None  # torch.compile; None compiles long runs on CUDA
    max_minutes: float | None = None
    save_minutes: float = 1.0


def place(module: nn.Module, device: torch.device) -> nn.Module:
    """The module on its device, laid out for it; with several GPUs batch norm is over all."""
    if device.type != "cuda":
        return module.to(device)
    if n_processes() > 1:
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    return module.to(device).to(memory_format=torch.channels_last)


@contextlib.contextmanager
def join_processes(device: torch.device) -> Iterator[None]:
    """Be one of several processes where torchrun started them; nothing otherwise."""
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
    """Whether this process writes files."""
    return n_processes() == 1 or dist.get_rank() == 0


def own_share(rows: Tensor) -> Tensor:
    """This process's rows of a batch."""
    return rows.chunk(n_processes())[dist.get_rank()] if n_processes() > 1 else rows


def agree(module: nn.Module) -> None:
    """Give all processes the first one's weights and buffers."""
    if n_processes() > 1:
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)


def of_first_process(tensor: Tensor, device: torch.device) -> Tensor:
    """The first process's tensor, in every process; `device` is the one they speak through."""
    if n_processes() == 1:
        return tensor
    shared = tensor.to(device)
    dist.broadcast(shared, src=0)
    return shared.to(tensor.device)


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[str], bool]) -> Iterator[None]:
    """Call `stop` with the name of a SIGTERM or Ctrl-C; where it had stopped already, end at once.

    Python lets only the main thread do this; elsewhere signals keep their meaning.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop(signal.Signals(number).name) and number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
