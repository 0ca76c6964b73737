"""Batch normalisation folded into the convolution before it: the same features in less time."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

TOLERANCE = 1e-4  # of the length of a row of features; rounding is a hundredth of it


def folded(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Return a copy of a network in eval mode with its batch norms folded, or the network itself.

    A norm is folded where it takes the output of a convolution. The copy is returned only if it
    gives the same features of random images of `shape`, (3, H, W). They differ where the output of
    a convolution is used twice, or a layer computes more than its class.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, *shape, generator=generator)
    images = images.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        features = network(images)
        pairs = _pairs(network, images)
    if not pairs:
        return network
    copied = copy.deepcopy(network)
    for first, second in pairs:
        conv, norm = copied.get_submodule(first), copied.get_submodule(second)
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        copied.set_submodule(first, fuse_conv_bn_eval(conv, norm))
        copied.set_submodule(second, _rest(norm))
    copied = copied.requires_grad_(False).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        error = (copied(images) - features).norm(dim=1) / features.norm(dim=1)
    return copied if bool((error < TOLERANCE).all()) else network


def _pairs(network: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Return the names of each convolution and the batch norm that alone takes its output."""
    outputs: dict[int, str] = {}
    kept: list[Any] = []  # alive, so that no two outputs have the same id
    pairs: list[tuple[str, str]] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if isinstance(module, nn.Conv2d):
                kept.append(output)
                outputs[id(output)] = name
            elif inputs and id(inputs[0]) in outputs:
                pairs.append((outputs[id(inputs[0])], name))

        return hook

    layers = [
        (name, layer)
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d)
    ]
    hooks = [layer.register_forward_hook(watch(name)) for name, layer in layers]
    try:
        network(images)
    finally:
        for hook in hooks:
            hook.remove()
    pairs = list(dict.fromkeys(pairs))
    uses = Counter(name for pair in pairs for name in pair)
    return [pair for pair in pairs if uses[pair[0]] == uses[pair[1]] == 1]


def _rest(norm: nn.Module) -> nn.Module:
    """Return what is left of a batch norm: nothing, or the activation of timm's BatchNormAct2d."""
    act = getattr(norm, "act", None)
    return act if isinstance(act, nn.Module) else nn.Identity()
