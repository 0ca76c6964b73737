"""What is decided before training: images opened, recipe adapted, network built, each once."""

from __future__ import annotations

import dataclasses
import json
from functools import cached_property
from typing import Any

import torch

from probagg.data.images import ImageSet, converted
from probagg.data.opening import open_images
from probagg.dpac.model import Model, build_model
from probagg.dpac.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class Plan:
    """A fit before it trains. Network and fingerprint are computed when first needed."""

    images: Any  # as they were given
    parameters: dict[str, Any]  # of the estimator
    data: ImageSet
    recipe: Recipe
    device: torch.device
    seed: int

    @cached_property
    def model(self) -> Model:
        """Return the network before training."""
        return build_model(self.recipe, int(self.parameters["n_clusters"]), seed=self.seed)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must share with a run that resumes it."""
        if self.parameters["out_dir"] is None:
            return {}
        data, extra = self.data, self.data.extra
        identity = {
            "recipe": dataclasses.asdict(self.recipe),
            "data": data.fingerprint(),
            "extra": None if extra is None else extra.fingerprint(),
            "n_clusters": int(self.parameters["n_clusters"]),
            "seed": self.seed,
        }
        return json.loads(json.dumps(identity))  # as it will be read: lists, not tuples


def open_for(images: Any, recipe: Recipe) -> ImageSet:
    """Return images as a recipe reads them; an image set that is open already stays as it is."""
    data = open_images(images)
    return data if isinstance(images, ImageSet) else decoded_for(data, recipe)


def decoded_for(data: ImageSet, recipe: Recipe) -> ImageSet:
    """Return photo files decoded to a recipe's size and channels, and other images as they are."""
    if data.paths is None:
        return data
    return converted(data, recipe.decode_size, recipe.channels)
