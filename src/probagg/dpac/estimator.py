"""DPAC: an estimator that trains a network to cluster images."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from probagg.data.images import ImageSet, open_images
from probagg.devices import choose_device
from probagg.dpac.checkpoint import read_description
from probagg.dpac.engine import Engine, Progress, check_identity
from probagg.dpac.estimate import estimate_seconds
from probagg.dpac.feed import Feed, Joined
from probagg.dpac.inference import infer
from probagg.dpac.machine import Machine, join_processes, of_first_process
from probagg.dpac.model import Model, build_model
from probagg.dpac.recipe import Recipe
from probagg.dpac.saved import load_model, save_model
from probagg.dpac.self_labelling import self_label
from probagg.dpac.stages import cluster, pretrain
from probagg.dpac.step import choose_precision
from probagg.dpac.views import Views
from probagg.errors import InputError
from probagg.opa.diagnose import Diagnosis, diagnose

DIAGNOSED = 2000  # images of the reading after training


class DPAC(ClusterMixin, BaseEstimator):
    """Deep probability aggregation clustering: pre-train, cluster, self-label (section 3.5).

    Parameters
    ----------
    n_clusters : int, default=10
        K, the number of clusters.
    recipe : Recipe, str or None, default=None
        What is trained and how: a recipe, its name ("cifar10/fast") or a TOML file. None is
        "own/fast".
    device : str, default="auto"
        "auto" is CUDA, else MPS, else the CPU; or a device of torch.
    precision : {"auto", "fp32", "bf16", "fp16"}, default="auto"
        Of products and convolutions; "auto" is bf16 on CUDA, fp32 elsewhere.
    compile : bool or None, default=None
        Whether to use torch.compile; None compiles long runs on CUDA.
    out_dir : path or None, default=None
        Where checkpoints and metrics go. An unfinished run there is taken up.
    max_minutes : float or None, default=None
        Save and stop after so long, with `Interrupted`; the same `fit` goes on from there.
    random_state : int, RandomState instance or None, default=None
        Fixes starting weights, order and views.
    progress : callable or None, default=None
        Called with a `Progress` after each step and each epoch.

    Attributes
    ----------
    labels_ : ndarray of shape (n_images,)
        The most probable cluster of each image.
    probabilities_ : ndarray of shape (n_images, n_clusters)
        Of each image in each cluster.
    features_ : ndarray of shape (n_images, n_features)
        The backbone's features of the clean views.
    model_ : torch.nn.Module
        The trained network.
    recipe_ : Recipe
        The recipe, fitted to the size and channels of the images.
    diagnosis_ : Diagnosis
        A label-free reading of the result.
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        recipe: Recipe | str | PathLike[str] | None = None,
        device: str = "auto",
        precision: str = "auto",
        compile: bool | None = None,
        out_dir: str | PathLike[str] | None = None,
        max_minutes: float | None = None,
        random_state: Any = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.recipe = recipe
        self.device = device
        self.precision = precision
        self.compile = compile
        self.out_dir = out_dir
        self.max_minutes = max_minutes
        self.random_state = random_state
        self.progress = progress

    def fit(self, images: Any, y: Any = None) -> Self:
        """Train on images: a uint8 array (n, height, width[, channels]), a folder, a torch Dataset.

        y is ignored: nothing here looks at labels. Where `out_dir` holds a finished training of the
        same recipe, images and seed, its result is taken.
        """
        data, recipe, device = self._plan(images)
        with join_processes(device):
            seed = int(of_first_process(torch.tensor([self._seed()]), device))
            model = build_model(recipe, self.n_clusters, seed=seed, n_images=len(data))
            engine = Engine(
                model,
                seed=seed,
                machine=Machine(self.device, self.precision, self.compile, self.max_minutes),
                out=self._out(),
                identity=self._identity(recipe, data, seed),
                progress=self.progress,
            )
            self._train(engine, model, data, recipe)
        return self

    def check(self, images: Any) -> None:
        """Raise what `fit` would raise before it trains; nothing is written."""
        data, recipe, _ = self._plan(images)
        build_model(recipe, self.n_clusters, n_images=len(data))
        out = self._out()
        saved = read_description(out / "checkpoints") if out else None
        if saved is not None:
            check_identity(saved, self._identity(recipe, data, self._seed()), out)

    def estimate(self, images: Any) -> float:
        """Roughly how many seconds `fit` takes on this machine, from timing its network."""
        data, recipe, device = self._plan(images)
        return estimate_seconds(recipe, self.n_clusters, len(data), device)

    def _plan(self, images: Any) -> tuple[ImageSet, Recipe, torch.device]:
        """Everything that can be wrong, before any work."""
        recipe, device = self._recipe(), choose_device(self.device)
        choose_precision(self.precision, device)
        data = open_for(images, recipe)
        self._check(data)
        size = data.size or data.read(np.arange(1)).shape[1:3]
        return data, recipe.adapt(data.channels, size), device

    def _train(self, engine: Engine, model: Model, data: ImageSet, recipe: Recipe) -> None:
        views, feed = Views(recipe.views), Feed(data, engine.device)
        engine.resume()
        more = feed if data.extra is None else Feed(Joined(data, data.extra), engine.device)
        pretrain(engine, model, views, more, recipe)
        del more  # its images may fill the GPU
        cluster(engine, model, views, feed, recipe)
        self_label(engine, model, views, feed, recipe)
        features, probabilities = infer(model, views, feed)
        rows = torch.randperm(len(feed), generator=torch.Generator().manual_seed(0))[:DIAGNOSED]
        settings = recipe.cluster
        self.diagnosis_: Diagnosis = diagnose(
            features[rows],
            probabilities[rows],
            settings.m,
            metric=settings.metric,
            balance=settings.balance,
        )
        self.model_, self.recipe_ = model.cpu(), recipe
        self.features_, self.probabilities_ = features.numpy(), probabilities.numpy()
        self.labels_ = self.probabilities_.argmax(1)

    def transform(self, images: Any) -> np.ndarray:
        """The features of images, (n, n_features)."""
        return self.infer(images)[0]

    def predict_proba(self, images: Any) -> np.ndarray:
        """The probability of each image in each cluster, (n, n_clusters)."""
        return self.infer(images)[1]

    def predict(self, images: Any) -> np.ndarray:
        """The most probable cluster of each image."""
        return self.predict_proba(images).argmax(1)

    def infer(self, images: Any) -> tuple[np.ndarray, np.ndarray]:
        """Features and probabilities of images in one pass."""
        check_is_fitted(self, "model_")
        recipe = self.recipe_
        data = open_for(images, recipe)
        if data.channels != recipe.channels:
            raise InputError(
                f"The model was trained on images of {recipe.channels} channels, but these have "
                f"{data.channels}. Convert them first."
            )
        device = choose_device(self.device)
        features, probabilities = infer(
            self.model_.to(device), Views(recipe.views), Feed(data, device)
        )
        self.model_.cpu()
        return features.numpy(), probabilities.numpy()

    def save(self, path: str | PathLike[str], *, compact: bool = False) -> None:
        """Write the trained network and its recipe to one safetensors file.

        `compact` writes a folder instead: weights rounded to bfloat16, in files of about
        15 MiB at most.
        """
        check_is_fitted(self, "model_")
        save_model(self.model_, self.recipe_, path, compact=compact)

    @classmethod
    def load(cls, path: str | PathLike[str], *, device: str = "auto") -> Self:
        """Read what `save` wrote: ready to predict, without labels_ of the training images."""
        model, recipe = load_model(path)
        estimator = cls(model.n_clusters, recipe=recipe, device=device)
        estimator.model_, estimator.recipe_ = model, recipe
        return estimator

    def _out(self) -> Path | None:
        return None if self.out_dir is None else Path(self.out_dir)

    def _seed(self) -> int:
        """The random state's seed; without one, that of an unfinished run in `out_dir`."""
        out = self._out()
        saved = read_description(out / "checkpoints") if out else None
        if self.random_state is None and saved is not None:
            return int(saved["identity"]["seed"])
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _identity(self, recipe: Recipe, data: ImageSet, seed: int) -> dict[str, Any]:
        """What a checkpoint must share with a run that takes it up."""
        if self.out_dir is None:
            return {}
        identity = {
            "recipe": dataclasses.asdict(recipe),
            "data": data.fingerprint(),
            "extra": None if data.extra is None else data.extra.fingerprint(),
            "n_clusters": self.n_clusters,
            "seed": seed,
        }
        return json.loads(json.dumps(identity))  # as it will be read: lists, not tuples

    def _recipe(self) -> Recipe:
        if isinstance(self.recipe, Recipe):
            return self.recipe
        return Recipe.of("own/fast" if self.recipe is None else self.recipe)

    def _check(self, data: ImageSet) -> None:
        if not isinstance(self.n_clusters, Integral):
            raise InputError(f"n_clusters is {self.n_clusters!r}, but an integer is needed.")
        if self.n_clusters < 2 or len(data) < 2 * self.n_clusters:
            raise InputError(
                f"{len(data)} images and {self.n_clusters} clusters: at least 2 clusters and two "
                "images for each are needed. Bring more images or ask for fewer clusters."
            )


def open_for(images: Any, recipe: Recipe) -> ImageSet:
    """A folder decoded to the recipe's size and channels; other sets as they are."""
    if isinstance(images, str | PathLike) and Path(images).is_dir():
        return open_images(images, size=recipe.decode_size, channels=recipe.channels)
    return open_images(images)
