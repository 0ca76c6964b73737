"""Stages of DPAC as the deep tables share them: one pre-training per data set, recipe and seed.

Every stage is trained in a folder of its own below `runs/bench`, from the weights of the one before
it. A stage that is there is not trained again, and one that was stopped is resumed.

At size short a ResNet-18 clusters CIFAR-10 after 100 epochs of pre-training. At the sizes small and
tiny a fully connected network clusters scikit-learn's digits.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import ROOT
from benchmarks.paper.training import ClusterStageMaker, Job, Scores, open_data, train
from benchmarks.study import Run
from probagg import Recipe
from probagg.data.images import ArrayImages
from probagg.dpac.stages import ClusterStage, NetworkStage

RUNS = ROOT / "runs" / "bench"
RECIPES = {"imagenette": "imagenet10"}  # of data sets without a recipe of their own
ON_GPU = ("full", "short")  # sizes with convolutional networks
CHANGES = {  # of the recipe fast; on a CPU, the convolutions of digits/fast take minutes
    "short": (
        "network.backbone=resnet18",
        "pretrain.epochs=100", "cluster.epochs=20", "self_label.epochs=20",
    ),
    "small": (
        "network.backbone=mlp", "network.layers=[512,512,128]",
        "pretrain.epochs=30", "cluster.epochs=30", "self_label.epochs=15",
    ),
    "tiny": (
        "network.backbone=mlp", "network.layers=[64,32]",
        "pretrain.epochs=3", "cluster.epochs=3", "self_label.epochs=2",
    ),
}  # fmt: skip
IMAGES = {("digits", "tiny"): 300, ("mnist", "small"): 10_000}  # the first ones
PAC_RUNS = {
    "full": 5,
    "short": 3,
    "small": 3,
    "tiny": 1,
}  # and of k-means, on the pre-trained features
EVERY = {"full": 10, "short": 10, "small": 30, "tiny": 3}  # epochs between points of a curve


@dataclass(frozen=True)
class Trained:
    """A stage that has ended: its folder, the weights it left, its readings and scores."""

    folder: Path
    stage: str
    recipe: Recipe
    label_free: dict[str, Any]
    revealed: dict[str, Any]

    @property
    def weights(self) -> Path:
        return self.folder / self.stage


@dataclass(frozen=True)
class Experiment:
    """The images and the recipe that a table's runs with one seed begin with."""

    data: str
    size: str
    seed: int
    recipe: Recipe

    @classmethod
    def of(cls, data: str, size: str, seed: int, kind: str = "fast") -> Experiment:
        """Return a data set with its recipe `fast` or `paper`, shortened below full size."""
        if size in ON_GPU and not torch.cuda.is_available():
            raise SystemExit(
                f"{data} at size {size} trains a ResNet on a GPU, and torch finds none here. Use "
                "--size small."
            )
        recipe = Recipe.of(f"{RECIPES.get(data, data)}/{kind}")
        return cls(data, size, seed, recipe.override(CHANGES.get(size, ())))

    def pretrained(self, *settings: str) -> Trained:
        """Return the end of pre-training by the recipe with some settings."""
        return self.trained("pretrain", None, *settings)

    def trained(
        self,
        stage: str,
        start: Trained | None,
        *settings: str,
        clustering: ClusterStageMaker = ClusterStage,
        every: int = 0,
        reveal: Callable[[NetworkStage, Tensor, Tensor], Scores] | None = None,
    ) -> Trained:
        """Return the end of a stage that begins with the weights of another one."""
        recipe = self.recipe.override(settings)
        text = recipe.to_toml() + (start.folder.parent.name if start else "")
        text += f"every {every}" if every else ""  # a stage with another curve
        text += "" if clustering is ClusterStage else repr(clustering)
        name = f"{stage}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        out = runs_folder(self.size) / self.data / name
        folder = out / f"seed{self.seed}"
        job = Job(
            out,
            (stage,),
            start and start.weights,
            clustering=clustering,
            every=every or EVERY[self.size],
            table3=PAC_RUNS[self.size],
            verbose=self.size in ON_GPU,
            reveal=reveal,
        )
        train(images(self.data, self.size), recipe, self.seed, job)
        free, scores = (
            json.loads((folder / f"{stage}.{end}").read_text()) for end in ("json", "revealed.json")
        )
        return Trained(folder, stage, recipe, free, scores)

    def row(self, pretrained: Trained, end: Trained) -> Run:
        """Return what is recorded of a run: scores, readings, recipe and circumstances."""
        data = images(self.data, self.size)
        return {
            **{score: end.revealed[score] for score in ("acc", "nmi", "ari", "knn")},
            "seconds": end.label_free["seconds"],
            "pretrain_seconds": pretrained.label_free["seconds"],
            "critical_m": pretrained.label_free["critical_m"],
            "state": end.label_free["diagnosis"]["state"],
            "pac_on_features": end.revealed["pac_on_features"],
            "pretrained": pretrained.revealed,
            "label_free": end.label_free,
            "settings": {
                "images": len(data),
                "hash": data.fingerprint(),
                "recipe": end.recipe.to_toml(),
            },
        }


def available(*names: str, size: str) -> tuple[str, ...]:
    """Return the data sets of a size; without ImageNet, Imagenette takes its place."""
    if size != "full":
        return ("cifar10",) if size == "short" else ("digits",)
    ours = {} if os.environ.get("PROBAGG_IMAGENET") else {"imagenet10": "imagenette"}
    return tuple(ours.get(name, name) for name in names)


@lru_cache(1)
def images(data: str, size: str) -> ArrayImages:
    """Return the images of a data set at a size; the last set stays in memory."""
    return open_data(data, IMAGES.get((data, size)))


def runs_folder(size: str) -> Path:
    """Return where stages are kept; those of a test go when it ends."""
    return Path(_temporary().name) if size == "tiny" else RUNS / size


@cache
def _temporary() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="probagg-bench-")
