"""Torch modules as backbones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from probagg.app.embed.backbone import Backbone, pool, try_out
from probagg.app.embed.folding import folded
from probagg.devices import choose_device
from probagg.storage import fingerprint

if TYPE_CHECKING:
    from PIL.Image import Image

    from probagg.app.embed.preprocessing import Colour


class Pooled(nn.Module):
    """A network whose output is pooled to one row of features per image."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (n, D) of images (n, 3, H, W)."""
        features = self.network(images)
        if not isinstance(features, Tensor):
            raise TypeError(f"it returns a {type(features).__name__}, not one tensor")
        return pool(features)


def torch_backbone(
    name: str,
    network: nn.Module,
    transform: Callable[[Image], Any],
    *,
    facts: tuple[Any, ...],
    device: str,
    weights: str | None = None,
    resize: int | None = None,
    mean: Colour | None = None,
    std: Colour | None = None,
) -> Backbone:
    """Return a torch module and its transform as a backbone.

    `facts` identify what the weights do not: architecture and transform.
    """
    where = choose_device(device)
    identity = fingerprint([repr((facts, fingerprint(_state(network), 16)))])
    module = Pooled(network).eval().requires_grad_(False)
    module = module.to(where).to(memory_format=torch.channels_last)  # quicker on CPUs too

    fast: nn.Module = module

    def run(batch: np.ndarray) -> np.ndarray:
        images = torch.from_numpy(batch).to(where, memory_format=torch.channels_last)
        with torch.inference_mode():
            return fast(images).float().cpu().numpy()

    shape, n_features = try_out(name, transform, run)
    if where.type == "cpu":  # on a GPU it is not worth a second copy of the weights
        fast = folded(module, shape)
    return Backbone(
        name=name,
        weights=weights,
        identity=identity,
        transform=transform,
        network=run,
        n_features=n_features,
        size=shape[-1],
        resize=resize,
        mean=mean,
        std=std,
        module=module,
        device=str(where),
    )


@contextmanager
def one_thread_each() -> Iterator[Callable[[], None]]:
    """Yield a function by which a thread of a pool lets torch compute in that thread alone.

    Networks run faster side by side than one after the other on all cores: no core waits.
    """
    before = torch.get_num_threads()
    try:
        yield lambda: torch.set_num_threads(1)
    finally:
        torch.set_num_threads(before)  # which threads that start later take over


def _state(network: nn.Module) -> Iterator[str | memoryview]:
    """Yield all weights and buffers with their names and shapes."""
    for name, tensor in network.state_dict().items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}\0"
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data  # bytes: NumPy has no bfloat16
