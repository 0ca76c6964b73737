"""The training loop: epochs, checkpoints, resuming, time limits, logging.

It knows nothing of clustering: that is in the stages. Order and views of the images depend on
(seed, stage, epoch, sample) only, so a run resumes from any step and ends with the same bits.
"""

import contextlib
import json
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from probagg.devices import choose_device
from probagg.dpac.checkpoint import (
    CannotResume,
    TrainingState,
    check_identity,
    read_checkpoint,
    save_checkpoint,
    versions,
    warn_of_versions,
)
from probagg.dpac.randomness import key as random_key
from probagg.dpac.randomness import permutation
from probagg.dpac.recipe import Training
from probagg.dpac.step import Stage, Step, choose_precision
from probagg.errors import InputError, Interrupted, ProbaggError, reading
from probagg.opa.processes import (
    from_first_process,
    is_first_process,
    n_processes,
    process_share,
    sum_over_processes,
    synchronize,
)
from probagg.processes import on_signals
from probagg.progress import duration, logger
from probagg.storage import append, encode, read_bytes, write_atomically

METRICS = "metrics.jsonl"  # of a run: one JSON object per epoch
LONG = 5000  # steps of a stage from which compiling it, a minute or two, pays
NOTICEABLE = 2.0  # seconds of a step from which the wait for its end is said


@dataclass(frozen=True)
class Machine:
    """How to run a recipe; the result changes by rounding only."""

    device: str = "auto"  # CUDA, else MPS, else the CPU; or any torch device
    precision: str = "auto"  # fp32, bf16 or fp16; auto is bf16 on CUDA GPUs that support it
    compile: bool | None = None  # torch.compile; None compiles long runs on CUDA
    max_minutes: float | None = None
    save_minutes: float = 1.0


class Diverged(ProbaggError, RuntimeError):
    """The loss became NaN or infinite."""


@dataclass(frozen=True)
class Progress:
    """How far training is: what the `progress` callback of DPAC is called with."""

    stage: str  # pretrain, cluster or self_label
    epoch: int  # completed epochs
    epochs: int
    step: int  # completed steps of the current epoch
    steps: int  # steps per epoch
    metrics: dict[str, float] | None = None  # means over an epoch that has just ended


@dataclass
class Position:
    """How far a run is, as checkpoints store it."""

    stage: str = ""
    epoch: int = 0
    step: int = 0
    total: int = 0  # steps of all stages
    done: list[str] = field(default_factory=list)


class Engine:
    """Train a module stage by stage, in a run that can be interrupted and resumed."""

    def __init__(
        self,
        module: nn.Module,
        *,
        seed: int = 0,
        machine: Machine | None = None,
        out: Path | None = None,
        identity: dict[str, Any] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.machine = machine or Machine()
        self.device = choose_device(self.machine.device)
        self.seed, self.out, self.identity = seed, out, identity or {}
        self.progress = progress or (lambda _: None)
        self.module = move_to_device(module, self.device)
        synchronize(self.module.state_dict())
        self.position = Position()
        self._written = out if is_first_process() else None  # where this process writes
        if self._written:
            self._written.mkdir(parents=True, exist_ok=True)
        self._restored: TrainingState | None = None
        self._states: dict[str, dict[str, Tensor]] = {}  # the state of each stage so far
        self._strata: Tensor | None = None  # the epoch's
        self._began = self._saved = time.monotonic()
        self._kept = 0  # steps that the newest checkpoint has
        self._slowest = 0.0  # seconds of the slowest step
        self.stop = ""

    def resume(self) -> bool:
        """Load the newest checkpoint in the run folder, and return whether there is one."""
        found = read_checkpoint(self.out / "checkpoints") if self.out else None
        if found is not None:
            where = f"The checkpoint in {self.out}"
            with reading(where, "Start over (--resume never).", CannotResume):
                check_identity(found.description, self.identity, self.out)
                self.module.load_state_dict(found.part("module."))
                warn_of_versions(found.description)
                self.position = Position(**found.description["position"])
        at = self.position
        self._kept = at.total
        if self._written:
            trim_metrics(self._written / METRICS, at.done, at.stage, at.epoch)
        self._restored = found
        return found is not None

    def train(self, stage: Stage) -> None:
        """Run a stage to its end, from its checkpoint if there is one.

        A stage that is done only gets its state back, for later stages that read it.
        """
        at, plan = self.position, stage.plan
        self._restore_state(stage)
        if stage.name in at.done or not plan.epochs:
            return
        batch_size = effective_batch_size(plan, len(stage.feed))
        steps = len(stage.feed) // batch_size
        compiled = self.machine.compile
        if compiled is None:
            compiled = self.device.type == "cuda" and plan.epochs * steps > LONG
        step = Step(
            stage,
            self.module,
            device=self.device,
            precision=self.machine.precision,
            compiled=compiled,
        )
        self._enter(stage, step)
        self.progress(Progress(stage.name, at.epoch, plan.epochs, at.step, steps))
        with on_signals(self._stop_on), _fast_convolutions():
            self.module.train()
            while at.epoch < plan.epochs:
                if at.step == 0:
                    self._prepare_epoch(stage)
                began, first = time.monotonic(), at.step
                step.key.fill_(random_key(self.seed, stage.name, at.epoch))
                for images, samples in stage.feed.batches(self._rows(stage, batch_size, steps)):
                    share = (at.epoch * steps + at.step) / (plan.epochs * steps)
                    step.set_learning_rate(plan.learning_rate * learning_rate_factor(plan, share))
                    start = time.monotonic()
                    step(images, samples)
                    self._slowest = max(self._slowest, time.monotonic() - start)
                    at.step += 1
                    at.total += 1
                    self._save_or_stop(step, at.step == steps)
                    self.progress(Progress(stage.name, at.epoch, plan.epochs, at.step, steps))
                metrics = step.means(steps)  # waits for the device
                metrics["seconds"] = seconds = time.monotonic() - began
                metrics["images_per_second"] = (steps - first) * batch_size / max(seconds, 1e-9)
                self._end_epoch(stage, steps, metrics)
            synchronize(self.module.state_dict())  # batch norm's statistics differ by process
            stage.finish()
            synchronize(self.module.state_dict(), stage.state)
            at.done.append(stage.name)
            self._save(step)
        at.stage = ""

    def _restore_state(self, stage: Stage) -> None:
        self._states[stage.name] = state = stage.state
        if self._restored is not None:
            for name, tensor in self._restored.part(f"stage.{stage.name}.").items():
                state[name].copy_(tensor)

    def _prepare_epoch(self, stage: Stage) -> None:
        strata = stage.before_epoch(self.position.epoch)
        self._strata = None if strata is None else from_first_process(strata, self.device)
        synchronize(self.module.state_dict(), stage.state)
        self.module.train()

    def autocast(self) -> torch.autocast:
        """Return a context in which the network runs in the precision of training."""
        dtype = choose_precision(self.machine.precision, self.device)
        return torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32)

    def _stop_on(self, number: int, frame: FrameType | None) -> None:
        """Stop after the current step; Ctrl-C interrupts at once where there is nothing to save.

        So it does when it is pressed again.
        """
        again, self.stop = bool(self.stop), self.stop or signal.Signals(number).name
        unsaved = self.out is not None and self._kept < self.position.total
        if again or (not unsaved and n_processes() == 1):
            if number == signal.SIGINT:
                raise KeyboardInterrupt
        elif self._slowest > NOTICEABLE:
            with contextlib.suppress(RuntimeError):  # the signal came while a line was written
                logger.warning(
                    "Stopping after this step, which takes about %s; Ctrl-C again stops at once "
                    "and resumes from what was saved %s ago.",
                    duration(self._slowest),
                    duration(time.monotonic() - self._saved),
                )

    def _enter(self, stage: Stage, step: Step) -> None:
        at = self.position
        if at.stage == stage.name and self._restored is not None:
            step.load(self._restored)
            self._strata = self._restored.tensors.get("strata")
        else:
            at.stage, at.epoch, at.step = stage.name, 0, 0
        self._restored = None

    def _rows(self, stage: Stage, batch_size: int, steps: int) -> list[Tensor]:
        """Return this process's rows of the epoch's remaining batches."""
        at = self.position
        order_key = random_key(self.seed, stage.name, at.epoch, "order")
        order = permutation(order_key, len(stage.feed), self._strata)
        return [process_share(batch) for batch in order.split(batch_size)[at.step : steps]]

    def _end_epoch(self, stage: Stage, steps: int, metrics: dict[str, float]) -> None:
        at = self.position
        at.epoch, at.step = at.epoch + 1, 0
        record = {"stage": stage.name, "epoch": at.epoch, "step": at.total, **metrics}
        logger.info("%s", record)
        if self._written:
            append(self._written / METRICS, json.dumps(record) + "\n")
        self.progress(Progress(stage.name, at.epoch, stage.plan.epochs, 0, steps, metrics))
        _check_finite(metrics, stage.name, at.epoch)

    def _save_or_stop(self, step: Step, last_of_epoch: bool) -> None:
        """Save every `save_minutes`; save and raise on a requested stop or out of time."""
        now, limit = time.monotonic(), self.machine.max_minutes
        if not self.stop and limit is not None and now - self._began > 60.0 * limit:
            self.stop = f"the limit of {limit:g} minutes"
        stop = bool(self.stop)
        if n_processes() > 1:  # all must stop at the same step; asking them at every step is slow
            if not (last_of_epoch or self.position.step % 50 == 0):
                return
            flag = torch.tensor([float(stop)], device=self.device)
            stop = bool(sum_over_processes(flag).item())
        if stop:
            self._save(step)
            kept = "The run is saved." if self.out else "Nothing is saved: there is no out_dir."
            raise Interrupted(f"Stopped by {self.stop or 'another process'}. {kept}")
        if now - self._saved > 60.0 * self.machine.save_minutes:
            self._save(step)

    def _save(self, step: Step) -> None:
        self._saved = time.monotonic()
        if self._written is None:
            return
        at = self.position
        _check_finite(step.sums(), at.stage, at.epoch + 1)  # a diverged state must not be kept
        tensors = {f"module.{k}": v for k, v in self.module.state_dict().items()}
        for stage, state in self._states.items():
            tensors |= {f"stage.{stage}.{name}": tensor for name, tensor in state.items()}
        if at.stage not in at.done:
            tensors |= step.tensors()
            tensors |= {} if self._strata is None else {"strata": self._strata}
        description = {
            "identity": self.identity,
            "position": vars(at),
            "scaler": step.scaler.state_dict(),
            "versions": versions(),
        }
        checkpoint = TrainingState(tensors, description)
        save_checkpoint(self._written / "checkpoints", at.total, checkpoint)
        self._kept = at.total


def move_to_device(module: nn.Module, device: torch.device) -> nn.Module:
    """Return the module on a device; on CUDA channels-last, with batch norm over all processes."""
    if device.type != "cuda":
        return module.to(device)
    if n_processes() > 1:
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    return module.to(device).to(memory_format=torch.channels_last)


def effective_batch_size(plan: Training, n: int) -> int:
    """Return the plan's batch size, or less for a small set; divisible by processes and parts."""
    parts = n_processes() * plan.accumulate
    size = min(plan.batch_size, n) // parts * parts
    if size < 2 * parts:
        raise InputError(
            f"{n} images in batches of {plan.batch_size}, for {n_processes()} processes with "
            f"{plan.accumulate} parts each, leave less than 2 images per part. Use more images, or "
            "lower accumulate or the number of processes."
        )
    if size < plan.batch_size:
        logger.info("Batches of %d instead of %d: there are %d images.", size, plan.batch_size, n)
    return size


def learning_rate_factor(plan: Training, share: float) -> float:
    """Return the factor of the learning rate after this share of a stage."""
    warm = min(plan.warmup_epochs / plan.epochs, 0.5)
    if share < warm:
        return (share + 1e-9) / warm
    if plan.schedule == "constant":
        return 1.0
    return 0.5 * (1.0 + math.cos(math.pi * (share - warm) / (1.0 - warm)))


def _check_finite(metrics: dict[str, float], stage: str, epoch: int) -> None:
    if not all(math.isfinite(value) for value in metrics.values()):
        raise Diverged(
            f"A loss of {stage}, epoch {epoch}, is NaN or infinite: {metrics}. Lower "
            f"{stage}.learning_rate or use precision fp32, and start over (--resume never)."
        )


def _fast_convolutions() -> Any:
    """Let cuDNN benchmark its algorithms, unless the user wants deterministic ones."""
    cudnn = torch.backends.cudnn
    return cudnn.flags(
        enabled=cudnn.enabled,
        benchmark=not cudnn.deterministic,
        deterministic=cudnn.deterministic,
        allow_tf32=cudnn.allow_tf32,
    )


def trim_metrics(path: Path, done: list[str], stage: str, epoch: int) -> None:
    """Keep records of done stages and of `stage` up to `epoch`; the rest is trained again."""
    if not path.exists():
        return
    kept = ""
    for line in read_bytes(path).decode("utf-8", "surrogateescape").splitlines():
        # A damaged line, or half of one that a kill left, is of no use to anybody.
        with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
            record = json.loads(line)
            current = record["stage"] == stage and record["epoch"] <= epoch
            if record["stage"] in done or current:
                kept += f"{line}\n"
    write_atomically(path, encode(kept))
