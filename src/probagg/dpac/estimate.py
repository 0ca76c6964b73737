"""Roughly how long a recipe takes on this machine, from a step or two of its network."""

from __future__ import annotations

import time

import torch

from probagg.dpac.model import build_model
from probagg.dpac.recipe import Recipe

FORWARD = 1 / 3  # of a view that is only looked at, beside one that is learnt from
COMPILING = 60.0  # seconds, on CUDA


def estimate_seconds(recipe: Recipe, n_clusters: int, n_images: int, device: torch.device) -> float:
    """Time a small batch forward and backward, and count the images of all stages."""
    cuda = device.type == "cuda"
    size = min(recipe.pretrain.batch_size, 256 if cuda else 16, n_images)
    model = build_model(recipe, n_clusters, n_images=n_images).to(device)
    shape = (size, recipe.channels, recipe.views.size, recipe.views.size)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    times = []
    for _ in range(2):  # the first one warms up
        began = time.perf_counter()
        with torch.enable_grad(), torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            model.classifier(model.backbone(images)).float().logsumexp(1).sum().backward()
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    views = len(recipe.pretext.views)
    passes = recipe.pretrain.epochs * float(views) if recipe.pretext.task != "none" else 0.0
    passes += recipe.cluster.epochs * (views + FORWARD)
    passes += recipe.self_label.epochs * (2 + FORWARD)
    return passes * n_images * min(times) / size + (COMPILING if cuda else 0.0)
