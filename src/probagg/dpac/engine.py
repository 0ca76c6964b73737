"""The training loop: epochs, checkpoints, resuming, time limits, logging.

It knows nothing of clustering: a stage gives it views and a loss of a batch. Order and views of the
images depend on (seed, stage, epoch, sample) only, so a run continues to the bit from any step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probagg.devices import choose_device
from probagg.dpac.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from probagg.dpac.feed import Feed
from probagg.dpac.history import History
from probagg.dpac.machine import (
    Machine,
    agree,
    is_first_process,
    of_first_process,
    own_share,
    place,
    stop_on_signals,
)
from probagg.dpac.randomness import key as random_key
from probagg.dpac.randomness import permutation
from probagg.dpac.recipe import Training
from probagg.dpac.step import Loss, Prepare, Step, choose_precision
from probagg.errors import InputError, Interrupted, ProbaggError
from probagg.opa.processes import n_processes, sum_over_processes
from probagg.progress import logger


class Diverged(ProbaggError, RuntimeError):
    """The loss became NaN or infinite."""


class CannotResume(ProbaggError, RuntimeError):
    """A checkpoint belongs to another run."""

    exit_code = 2


@dataclass(frozen=True)
class Progress:
    """Where training is; `metrics` are the means of an epoch that has just ended."""

    stage: str
    epoch: int  # epochs that are complete
    epochs: int
    step: int  # steps of the next epoch that are complete
    steps: int  # in an epoch
    metrics: dict[str, float] | None = None


@dataclass
class Position:
    """How far a run has come: what a checkpoint stores beside tensors."""

    stage: str = ""
    epoch: int = 0
    step: int = 0
    total: int = 0  # steps of all stages
    done: list[str] = field(default_factory=list)


class Engine:
    """Trains a module, stage after stage, in one run that can be left and taken up."""

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
        self.module = place(module, self.device)
        agree(self.module)
        self.position = Position()
        self.history = History(out if is_first_process() else None)
        self._restored: Checkpoint | None = None
        self._strata: Tensor | None = None  # of the epoch
        self._began = self._saved = time.monotonic()
        self.stop = ""

    def resume(self) -> bool:
        """Take up the newest checkpoint in the run folder, if there is one."""
        found = read_checkpoint(self.out / "checkpoints") if self.out else None
        if found is not None:
            check_identity(found.description, self.identity, self.out)
            self.module.load_state_dict(found.part("module."))
            self.position = Position(**found.description["position"])
        at = self.position
        self.history.trim(at.done, at.stage, at.epoch)
        self._restored = found
        return found is not None

    def train(
        self,
        stage: str,
        prepare: Prepare,
        loss: Loss,
        feed: Feed,
        plan: Training,
        *,
        before_epoch: Callable[[int], Tensor | None] | None = None,
    ) -> None:
        """Run one stage to its end, or from where a checkpoint left it.

        `before_epoch` may return strata (N,): every batch takes its share of each.
        """
        if stage in self.position.done or not plan.epochs:
            return
        batch_size = fitting_batch(plan, len(feed))
        steps = len(feed) // batch_size
        step = Step(
            prepare,
            loss,
            self.module,
            plan,
            device=self.device,
            precision=self.machine.precision,
            compiled=self._compiles(plan.epochs * steps),
        )
        at = self._enter(stage, step)
        with stop_on_signals(self._ask_to_stop), _fast_convolutions():
            self.module.train()
            while at.epoch < plan.epochs:
                if at.step == 0:
                    self._prepare_epoch(before_epoch)
                self._epoch(stage, step, feed, plan, batch_size, steps)
        agree(self.module)  # batch norm's running statistics are each process's own
        at.done.append(stage)
        self._save(step)
        at.stage = ""

    def _prepare_epoch(self, before_epoch: Callable[[int], Tensor | None] | None) -> None:
        self._strata = None
        if before_epoch is None:
            return
        strata = before_epoch(self.position.epoch)
        if strata is not None:
            self._strata = of_first_process(strata, self.device)
        agree(self.module)
        self.module.train()

    def autocast(self) -> torch.autocast:
        """A context in which the network runs in the precision of training."""
        dtype = choose_precision(self.machine.precision, self.device)
        return torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32)

    def _ask_to_stop(self, reason: str) -> bool:
        """Stop at the end of a step; whether that had been asked before."""
        before, self.stop = bool(self.stop), self.stop or reason
        return before

    def _enter(self, stage: str, step: Step) -> Position:
        at = self.position
        if at.stage == stage and self._restored is not None:
            step.load(self._restored.part("step."), self._restored.description["scaler"])
            self._strata = self._restored.tensors.get("strata")
        else:
            at.stage, at.epoch, at.step = stage, 0, 0
        self._restored = None
        return at

    def _epoch(
        self, stage: str, step: Step, feed: Feed, plan: Training, batch_size: int, steps: int
    ) -> None:
        at = self.position
        began, first = time.monotonic(), at.step
        step.key.fill_(random_key(self.seed, stage, at.epoch))
        order_key = random_key(self.seed, stage, at.epoch, "order")
        order = permutation(order_key, len(feed), self._strata)
        rows = [own_share(batch) for batch in order.split(batch_size)[first:steps]]
        for images, samples in feed.batches(rows):
            share = (at.epoch * steps + at.step) / (plan.epochs * steps)
            step.learning_rate.fill_(plan.learning_rate * rate(plan, share))
            step(images, samples)
            at.step += 1
            at.total += 1
            self._pause(step, at.step == steps)
            self.progress(Progress(stage, at.epoch, plan.epochs, at.step, steps))
        metrics = step.means(steps)
        seconds = time.monotonic() - began
        metrics["seconds"] = seconds
        metrics["images_per_second"] = (steps - first) * batch_size / max(seconds, 1e-9)
        at.epoch, at.step = at.epoch + 1, 0
        self.history.add({"stage": stage, "epoch": at.epoch, "step": at.total, **metrics})
        self.progress(Progress(stage, at.epoch, plan.epochs, 0, steps, metrics))
        _check_finite(metrics, stage, at.epoch)

    def _pause(self, step: Step, last_of_epoch: bool) -> None:
        """Save now and then; save and leave when asked to or out of time."""
        now, limit = time.monotonic(), self.machine.max_minutes
        if not self.stop and limit is not None and now - self._began > 60.0 * limit:
            self.stop = f"the limit of {limit:g} minutes"
        stop = bool(self.stop)
        if n_processes() > 1:  # all must leave at the same step, and agree on it now and then only
            if not (last_of_epoch or self.position.step % 50 == 0):
                return
            flag = torch.tensor([float(stop)], device=self.device)
            stop = bool(sum_over_processes(flag).item())
        if stop:
            self._save(step)
            raise Interrupted(f"Stopped by {self.stop or 'another process'}; all is saved.")
        if now - self._saved > 60.0 * self.machine.save_minutes:
            self._save(step)

    def _save(self, step: Step) -> None:
        self._saved = time.monotonic()
        if self.out is None or not is_first_process():
            return
        at = self.position
        _check_finite(step.sums(), at.stage, at.epoch + 1)  # a useless state must not be kept
        tensors = {f"module.{k}": v for k, v in self.module.state_dict().items()}
        if at.stage not in at.done:
            tensors |= {f"step.{k}": v for k, v in step.tensors().items()}
            tensors |= {} if self._strata is None else {"strata": self._strata}
        description = {
            "identity": self.identity,
            "position": vars(at),
            "scaler": step.scaler.state_dict(),
        }
        save_checkpoint(self.out / "checkpoints", at.total, Checkpoint(tensors, description))

    def _compiles(self, steps: int) -> bool:
        if self.machine.compile is not None:
            return self.machine.compile
        return self.device.type == "cuda" and steps > 5000  # compiling takes a minute or two


def fitting_batch(plan: Training, n: int) -> int:
    """The plan's batch size, or less for a set that is smaller; the same on every process."""
    parts = n_processes() * plan.accumulate
    size = min(plan.batch_size, n) // parts * parts
    if size < 2 * parts:
        raise InputError(
            f"{n} images in batches of {plan.batch_size}, for {n_processes()} processes with "
            f"{plan.accumulate} parts each, leave less than 2 a part. Bring more images, or lower "
            "accumulate or the number of processes."
        )
    if size < plan.batch_size:
        logger.info("Batches of %d instead of %d: there are %d images.", size, plan.batch_size, n)
    return size


def rate(plan: Training, share: float) -> float:
    """The learning rate's factor after this share of the stage: warm-up, then the schedule."""
    warm = min(plan.warmup_epochs / plan.epochs, 0.5)
    if share < warm:
        return (share + 1e-9) / warm
    if plan.schedule == "constant":
        return 1.0
    return 0.5 * (1.0 + math.cos(math.pi * (share - warm) / (1.0 - warm)))


def check_identity(description: dict[str, Any], now: dict[str, Any], out: Path | None) -> None:
    """Raise unless the checkpoint's run is this one."""
    differences = _differences(description["identity"], now)
    if differences:
        raise CannotResume(
            f"The checkpoint in {out} belongs to another run: {'; '.join(differences)}. Use the "
            "same recipe, images and seed, another folder, or delete its checkpoints "
            "(--resume never)."
        )


def _check_finite(metrics: dict[str, float], stage: str, epoch: int) -> None:
    if not all(math.isfinite(value) for value in metrics.values()):
        raise Diverged(
            f"The losses of {stage}, epoch {epoch}, are not finite: {metrics}. Lower "
            f"{stage}.learning_rate or use precision fp32, and start over (--resume never)."
        )


def _fast_convolutions() -> Any:
    """Let cuDNN try its algorithms, unless the user wants results that repeat; all else stays."""
    cudnn = torch.backends.cudnn
    return cudnn.flags(
        enabled=cudnn.enabled,
        benchmark=not cudnn.deterministic,
        deterministic=cudnn.deterministic,
        allow_tf32=cudnn.allow_tf32,
    )


def _differences(saved: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """Where two descriptions differ, key by key."""
    found = []
    for key in sorted({*saved, *now}):
        a, b = saved.get(key), now.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key} was {a!r} and is {b!r}")
    return found
