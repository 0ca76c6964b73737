"""Torch modules as backbones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from probagg.devices import choose_device
from probagg.embed.backbone import Backbone, identity_of, pooled, try_out

if TYPE_CHECKING:
    from PIL.Image import Image

    from probagg.embed.preprocessing import Colour


class Pooled(nn.Module):
    """A network whose output is one row of features for each image."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, D) of images (n, 3, H, W)."""
        features = self.network(images)
        if not isinstance(features, Tensor):
            raise TypeError(f"it returns a {type(features).__name__}, not one tensor")
        return pooled(features)


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
    """A torch module and its transform as a backbone.

    `facts` tell apart what the weights do not: architecture and transform.
    """
    where = choose_device(device)
    identity = identity_of(facts, state_digest(network))
    module = Pooled(network).eval().requires_grad_(False)
    module = module.to(where).to(memory_format=torch.channels_last)  # quicker on CPUs too

    def run(batch: np.ndarray) -> np.ndarray:
        images = torch.from_numpy(batch).to(where, memory_format=torch.channels_last)
        with torch.inference_mode():
            return module(images).float().cpu().numpy()

    size, n_features = try_out(name, transform, run)
    return Backbone(
        name=name,
        weights=weights,
        identity=identity,
        transform=transform,
        network=run,
        n_features=n_features,
        size=size,
        resize=resize,
        mean=mean,
        std=std,
        module=module,
        device=str(where),
    )


def state_digest(network: nn.Module) -> str:
    """A digest of all weights and buffers, with their names and shapes."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)  # bytes: NumPy has no bfloat16
    return digest.hexdigest()
