"""A rough estimate of how long a recipe takes on this machine."""

from __future__ import annotations

import copy
import time

import torch

from probagg.dpac.model import Model
from probagg.dpac.recipe import Recipe

FORWARD = 1 / 3  # cost of a forward pass, relative to forward and backward
COMPILING = 60.0  # seconds, on CUDA
ENOUGH = 2.0  # seconds of timing, after which no batch is started
REPEATS = 5  # of the largest batch


def estimate_seconds(recipe: Recipe, model: Model, n_images: int, device: torch.device) -> float:
    """Return the seconds of all stages, from timing batches forward and backward."""
    views = len(recipe.pretext.views)
    passes = recipe.pretrain.epochs * float(views) if recipe.pretext.task != "none" else 0.0
    forward = 2.0 if recipe.cluster.stratify else 1.0  # clean view, and strata before an epoch
    passes += recipe.cluster.epochs * (views + forward * FORWARD)
    last = recipe.self_label
    forward = forward if last.labels == "classifier" else 1 / last.refresh_epochs
    passes += last.epochs * (2 + forward * FORWARD)
    compiling = COMPILING if device.type == "cuda" else 0.0
    return passes * n_images * _seconds_per_image(recipe, model, n_images, device) + compiling


def _seconds_per_image(recipe: Recipe, model: Model, n_images: int, device: torch.device) -> float:
    """Return the minimum over growing batches, since small ones have an overhead."""
    cuda, largest = device.type == "cuda", min(recipe.pretrain.batch_size, n_images)
    model = copy.deepcopy(model).to(device)  # the passes change batch norm's statistics
    generator = torch.Generator().manual_seed(0)
    size, least, repeats, began = min(16, largest), float("inf"), 0, time.perf_counter()
    while repeats < REPEATS and time.perf_counter() - began < ENOUGH:
        shape = (size, recipe.channels, recipe.views.size, recipe.views.size)
        images = torch.randn(shape, generator=generator).to(device)
        start = time.perf_counter()
        with torch.enable_grad(), torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            model.classifier(model.backbone(images)).float().logsumexp(1).sum().backward()
        if cuda:
            torch.cuda.synchronize()
        least = min(least, (time.perf_counter() - start) / size)
        repeats += size == largest
        size = min(2 * size, largest)
    return least
