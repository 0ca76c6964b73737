"""One update of the weights; on CUDA recorded once as a graph and then replayed."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from probagg.dpac.checkpoint import TrainingState, load_optimizer_tensors, optimizer_tensors
from probagg.dpac.feed import Feed
from probagg.dpac.recipe import Training
from probagg.errors import InputError
from probagg.opa.processes import n_processes

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WARM_UP = 5  # steps before a graph is recorded, in which kernels are chosen and buffers allocated


class Batch(NamedTuple):
    """Images (B, H, W, C) as uint8, their rows in the set, and a random key.

    The key stands for (seed, stage, epoch); with the rows it fixes every random view.
    """

    images: Tensor
    samples: Tensor
    key: Tensor


class Stage(ABC):
    """One stage of training: what the engine asks of it, in the order of the methods.

    A stage owns the tensors in `state`, which checkpoints carry beside the network's weights. They
    are only changed in place, since a recorded step reads them from where they lie.
    """

    name: str
    feed: Feed

    @property
    @abstractmethod
    def plan(self) -> Training:
        """Return epochs, batch size and optimiser."""

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the tensors that checkpoints carry for this stage."""
        return {}

    def before_epoch(self, epoch: int) -> Tensor | None:
        """Prepare an epoch; strata (N,) may be returned, of which each batch takes its share."""
        return None

    @abstractmethod
    def prepare(self, batch: Batch) -> list[Tensor]:
        """Return the views of a batch, without gradient."""

    @abstractmethod
    def loss(self, batch: Batch, views: list[Tensor]) -> dict[str, Tensor]:
        """Return named terms: "loss" is minimised, the others are reported."""

    def finish(self) -> None:  # noqa: B027 (a stage may have nothing to finish)
        """Run after the last epoch, before the stage is saved as done."""


class Step:
    """Views of a batch, its losses, their gradients, one update.

    `prepare` and `loss` are compiled separately: views have no backward pass. Launching the
    thousand kernels of a step takes longer than running them, hence the recorded graph.
    """

    def __init__(
        self,
        stage: Stage,
        module: nn.Module,
        *,
        device: torch.device,
        precision: str = "auto",
        compiled: bool = False,
    ) -> None:
        self.plan, self.device = stage.plan, device
        self.dtype = choose_precision(precision, device)
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._rate = torch.tensor(self.plan.learning_rate, device=device)
        self.optimizer = _optimizer(self.parameters, self._rate, self.plan)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)
        self.key = torch.zeros((), dtype=torch.int64, device=device)
        self.totals: dict[str, Tensor] = {}
        prepare, loss = stage.prepare, stage.loss
        self._prepare = torch.compile(prepare, dynamic=False) if compiled else prepare
        self._loss = torch.compile(loss, dynamic=False) if compiled else loss
        self._recordable = (
            device.type == "cuda" and n_processes() == 1 and not self.scaler.is_enabled()
        )
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Batch | None = None
        self._stream = torch.cuda.Stream(device) if self._recordable else None
        self._done = 0

    def __call__(self, images: Tensor, samples: Tensor) -> None:
        """Update the weights by one batch."""
        if not self._recordable:
            self._update(Batch(images, samples, self.key))
            return
        if self._inputs is None:
            self._inputs = Batch(images.clone(), samples.clone(), self.key)
        self._inputs.images.copy_(images)
        self._inputs.samples.copy_(samples)
        if self._done == WARM_UP:
            self._record()
        if self._graph is not None:
            self._graph.replay()
        else:
            current = torch.cuda.current_stream(self.device)
            assert self._stream is not None
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                self._update(self._inputs)
            current.wait_stream(self._stream)
        self._done += 1

    def set_learning_rate(self, value: float) -> None:
        """Set the learning rate in place, as a recorded step reads it there."""
        self._rate.fill_(value)

    def _record(self) -> None:
        assert self._inputs is not None
        self.optimizer.zero_grad(set_to_none=True)  # the graph allocates its own
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        # Threads that read images ahead may allocate pinned memory during capture, hence the mode.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._update(self._inputs)
        self._graph = graph

    def _update(self, batch: Batch) -> None:
        n = self.plan.accumulate
        self.optimizer.zero_grad(set_to_none=True)
        for images, samples in zip(batch.images.chunk(n), batch.samples.chunk(n), strict=True):
            part = Batch(images, samples, batch.key)
            with torch.no_grad():
                views = self._prepare(part)
            reduced = self.dtype != torch.float32
            # Before torch 2.11 the cache keeps the casts of a pass without gradient, such as that
            # of the clean view, and the next pass gives the weights none (pytorch/pytorch#165068).
            with torch.autocast(self.device.type, self.dtype, reduced, cache_enabled=False):
                terms = self._loss(part, views)
            self.scaler.scale(terms["loss"] / n).backward()
            for name, value in terms.items():
                if name not in self.totals:
                    self.totals[name] = torch.zeros((), device=self.device)
                self.totals[name].add_(value.detach().float() / n)
        _average_gradients(self.parameters)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def means(self, steps: int) -> dict[str, float]:
        """Return the mean of each term over the epoch and all processes, and reset the sums."""
        if not self.totals:
            return {}
        sums = torch.stack(list(self.totals.values()))
        if n_processes() > 1:
            dist.all_reduce(sums)
        means = (sums / (steps * n_processes())).tolist()
        for total in self.totals.values():
            total.zero_()
        return dict(zip(self.totals, means, strict=True))

    def sums(self) -> dict[str, float]:
        """Return this process's sum of each term since the epoch began."""
        return {name: total.item() for name, total in self.totals.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that the next step depends on, besides the weights."""
        totals = {f"step.total.{name}": value for name, value in self.totals.items()}
        state = optimizer_tensors(self.optimizer)
        return totals | {f"step.optimizer.{name}": value for name, value in state.items()}

    def load(self, checkpoint: TrainingState) -> None:
        """Restore what `tensors` returned, and the scaler."""
        load_optimizer_tensors(self.optimizer, checkpoint.part("step.optimizer."))
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate  # loading replaced it with a copy
        for name, value in checkpoint.part("step.total.").items():
            self.totals[name] = value.to(self.device)
        if scaler := checkpoint.description["scaler"]:
            self.scaler.load_state_dict(scaler)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the data type of matrix products and convolutions."""
    if name == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if name not in PRECISIONS:
        raise InputError(f"precision is {name!r}, but must be auto, {', '.join(PRECISIONS)}.")
    return PRECISIONS[name]


def _optimizer(
    parameters: list[nn.Parameter], rate: Tensor, plan: Training
) -> torch.optim.Optimizer:
    """Return the optimiser. Its rate is a tensor, so that a recorded step sees it change."""
    fused = rate.device.type in ("cuda", "cpu")
    if plan.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=rate,
            momentum=plan.momentum,
            weight_decay=plan.weight_decay,
            fused=fused,
        )
    return torch.optim.Adam(
        parameters,
        lr=rate,
        weight_decay=plan.weight_decay,
        fused=fused,
        capturable=rate.device.type == "cuda",
    )


def _average_gradients(parameters: list[nn.Parameter]) -> None:
    """Average the gradients over processes, in one exchange.

    DistributedDataParallel would overlap it with the backward pass, but expects one call of one
    module; a stage calls backbone and heads separately, and the backbone twice.
    """
    if n_processes() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]  # no gradient, no weight decay
    flat = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(flat)
    flat /= n_processes()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
