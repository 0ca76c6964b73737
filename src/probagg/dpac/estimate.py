"""Roughly how long a recipe takes on this machine, from a few steps of its network."""

from __future__ import annotations

import time

import torch

from probagg.dpac.model import build_model
from probagg.dpac.recipe import Recipe

FORWARD = 1 / 3  # of a view that is only looked at, beside one that is learnt from
COMPILING = 60.0  # seconds, on CUDA
ENOUGH = 2.0  # seconds of timing, after which no batch is begun


def estimate_seconds(recipe: Recipe, n_clusters: int, n_images: int, device: torch.device) -> float:
    """Time batches forward and backward, and count the images of all stages."""
    views = len(recipe.pretext.views)
    passes = recipe.pretrain.epochs * float(views) if recipe.pretext.task != "none" else 0.0
    looks = 2.0 if recipe.cluster.stratify else 1.0  # clean view, and labels before an epoch
    passes += recipe.cluster.epochs * (views + looks * FORWARD)
    last = recipe.self_label
    looks = looks if last.labels == "classifier" else 1 / last.refresh_epochs
    passes += last.epochs * (2 + looks * FORWARD)
    compiling = COMPILING if device.type == "cuda" else 0.0
    return passes * n_images * _seconds_an_image(recipe, n_clusters, n_images, device) + compiling


def _seconds_an_image(
    recipe: Recipe, n_clusters: int, n_images: int, device: torch.device
) -> float:
    """The least over growing batches: small ones cost more than images do."""
    cuda, largest = device.type == "cuda", min(recipe.pretrain.batch_size, n_images)
    model = build_model(recipe, n_clusters, n_images=n_images).to(device)
    generator = torch.Generator().manual_seed(0)
    size, least, began = min(16, largest), float("inf"), time.perf_counter()
    while time.perf_counter() - began < ENOUGH:
        shape = (size, recipe.channels, recipe.views.size, recipe.views.size)
        images = torch.randn(shape, generator=generator).to(device)
        start = time.perf_counter()
        with torch.enable_grad(), torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            model.classifier(model.backbone(images)).float().logsumexp(1).sum().backward()
        if cuda:
            torch.cuda.synchronize()
        least = min(least, (time.perf_counter() - start) / size)
        size = min(2 * size, largest)
    return least
