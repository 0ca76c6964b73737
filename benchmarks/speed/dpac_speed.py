"""Images per second of a pre-training step on one GPU: ours, its limit, and the classic loader.

Images of the set, two views each; the images are random, which costs what real ones cost.

    python -m benchmarks dpac_speed [--batch 512] [--backbones resnet18 resnet34] [--seconds 20]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import Cell, record
from probagg import DPAC, Recipe, WeightedContrastiveLoss
from probagg.dpac.model import build_model
from probagg.dpac.randomness import key
from probagg.dpac.views import Views


def random_images(n: int, size: int) -> np.ndarray:
    """Noise; views and networks cost the same on it."""
    return np.random.default_rng(0).integers(0, 256, (n, size, size, 3), dtype=np.uint8)


def ours(recipe: Recipe, images: np.ndarray, epochs: int) -> dict[str, float]:
    """The product itself: `DPAC.fit`, and what it writes to metrics.jsonl."""
    settings = [f"pretrain.epochs={epochs}", "cluster.epochs=0", "self_label.epochs=0"]
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        DPAC(10, recipe=recipe.override(settings), out_dir=out, random_state=0, compile=True).fit(
            images
        )
        seconds = time.perf_counter() - began
        lines = (Path(out) / "metrics.jsonl").read_text().splitlines()
    speeds = [json.loads(line)["images_per_second"] for line in lines]
    steady = speeds[2:]  # compiling and recording happen in the first
    return {
        "images_per_second": statistics.median(steady),
        "slowest_epoch": min(steady),
        "first_epoch_seconds": len(images) / speeds[0],
        "total_seconds": seconds,
    }


def limit(recipe: Recipe, batch: int, steps: int) -> float:
    """Forward, loss, backward and update on views that lie ready, compiled, as one CUDA graph."""
    model = build_model(recipe, 10).cuda().to(memory_format=torch.channels_last).train()
    size = recipe.views.size
    views = torch.randn(2 * batch, 3, size, size, device="cuda")
    views = views.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    contrast = WeightedContrastiveLoss()

    @torch.compile(dynamic=False)
    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            z1, z2 = model.pretext.projector(model.backbone(views)).chunk(2)
        return contrast(z1, z2)

    parameters = [*model.backbone.parameters(), *model.pretext.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=torch.tensor(1e-3).cuda(), momentum=0.9, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        return steps * batch / _replay(step, steps)


def views_alone(recipe: Recipe, batch: int, steps: int) -> float:
    """Seconds that both views of a batch take, compiled, as one CUDA graph."""
    views = Views(recipe.views)
    images = torch.from_numpy(random_images(batch, recipe.views.size)).cuda()
    samples = torch.arange(batch).cuda()
    number = torch.tensor(key(0)).cuda()

    @torch.compile(dynamic=False)
    def make() -> tuple[torch.Tensor, torch.Tensor]:
        weak, strong = views.weak(images, samples, number), views.strong(images, samples, number)
        return weak.bfloat16(), strong.bfloat16()

    return _replay(make, steps) / steps


def _replay(work, steps: int) -> float:
    """Seconds of so many replays of a recorded piece of work."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        graph.replay()
    torch.cuda.synchronize()
    return time.perf_counter() - began


class Classic(torch.utils.data.Dataset):
    """What every peer does: Pillow images through torchvision transforms, one by one."""

    def __init__(self, images: np.ndarray) -> None:
        from torchvision import transforms as T

        normalise = [T.ToTensor(), T.Normalize((0.49, 0.48, 0.45), (0.2, 0.2, 0.2))]
        jitter = T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
        size = images.shape[1]
        self.images = images
        self.weak = T.Compose(
            [
                T.RandomResizedCrop(size, (0.2, 1.0)),
                T.RandomHorizontalFlip(),
                jitter,
                T.RandomGrayscale(0.2),
                *normalise,
            ]
        )
        self.strong = T.Compose(
            [T.RandomHorizontalFlip(), T.RandAugment(4), *normalise, T.RandomErasing(1.0)]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int):
        from PIL import Image

        image = Image.fromarray(self.images[i])
        return self.weak(image), self.strong(image)


def classic(recipe: Recipe, images: np.ndarray, batch: int, workers: int, seconds: float) -> float:
    """Pillow transforms in DataLoader workers, autocast, eager, channels_last."""
    model = build_model(recipe, 10).cuda().to(memory_format=torch.channels_last).train()
    loader = torch.utils.data.DataLoader(
        Classic(images), batch, shuffle=True, drop_last=True, num_workers=workers,
        pin_memory=True, persistent_workers=True,
    )  # fmt: skip
    contrast = WeightedContrastiveLoss()
    parameters = [*model.backbone.parameters(), *model.pretext.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    done, began = 0, None
    while True:
        for v1, v2 in loader:
            views = torch.cat([v1.cuda(non_blocking=True), v2.cuda(non_blocking=True)])
            with torch.autocast("cuda", torch.bfloat16):
                features = model.backbone(views.contiguous(memory_format=torch.channels_last))
                z1, z2 = model.pretext.projector(features).chunk(2)
            optimizer.zero_grad(set_to_none=True)
            contrast(z1, z2).backward()
            optimizer.step()
            done += batch
            if began is None and done >= 10 * batch:
                torch.cuda.synchronize()
                began, done = time.perf_counter(), 0
            if began is not None and time.perf_counter() - began > seconds:
                torch.cuda.synchronize()
                return done / (time.perf_counter() - began)


def main() -> None:
    """Run and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--backbones", nargs="+", default=["resnet18", "resnet34"])
    arguments = parser.parse_args()
    batch = arguments.batch
    images = random_images(arguments.n, 32)
    rows = []
    for backbone in arguments.backbones:
        recipe = Recipe.of("cifar10").override(
            [f"network.backbone={backbone}", f"pretrain.batch_size={batch}"]
        )
        row = ours(recipe, images, arguments.epochs)
        row["limit"] = limit(recipe, batch, 100)
        step = batch / row["images_per_second"]
        row["views_ms"] = 1e3 * views_alone(recipe, batch, 100)
        row["views_share"] = row["views_ms"] / 1e3 / step
        row["of_limit"] = row["images_per_second"] / row["limit"]
        if arguments.seconds:
            row["classic"] = classic(recipe, images, batch, arguments.workers, arguments.seconds)
            row["times_classic"] = row["images_per_second"] / row["classic"]
        row["seconds"] = row.pop("total_seconds")
        rows.append(Cell("random images", backbone).row(row))
        print(backbone, json.dumps(row), flush=True)
    settings = {"batch": batch, "workers": arguments.workers}
    record("dpac_speed", rows, settings=settings)
