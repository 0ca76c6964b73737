"""DPAC: an estimator that trains a network to cluster images."""

from __future__ import annotations

import copy
import dataclasses
import json
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from probagg.data.images import ImageSet, converted
from probagg.data.opening import open_images
from probagg.devices import choose_device
from probagg.dpac.checkpoint import check_identity, read_checkpoint
from probagg.dpac.engine import Engine, Machine, Progress
from probagg.dpac.feed import Feed, Joined, infer
from probagg.dpac.model import Model, PretextFactory, build_model, load_network, save_network
from probagg.dpac.prototypes import PrototypeStage
from probagg.dpac.recipe import Recipe
from probagg.dpac.self_labelling import VARIANTS
from probagg.dpac.stages import ClusterStage, NetworkStage, PretrainStage, Setup
from probagg.dpac.start import outputs_of
from probagg.dpac.step import PRECISIONS
from probagg.dpac.views import Views
from probagg.errors import InputError
from probagg.estimators import check_parameters, draw_seed, labels_of
from probagg.known import check_known_labels, with_known
from probagg.opa.diagnose import Diagnosis, diagnose
from probagg.opa.processes import from_first_process, join_processes
from probagg.storage import fingerprint

OWN = ("backbone", "pretext", "stages")  # parameters that replace parts of the recipe
DIAGNOSED = 2000, 50  # images that `diagnosis_` is computed from, and the least per cluster


class DPAC(ClusterMixin, BaseEstimator):
    """Deep probability aggregation clustering: pre-train, cluster, self-label (section 3.5).

    Parameters
    ----------
    n_clusters : int, default=10
        K, the number of clusters.
    recipe : Recipe, str, path or None, default=None
        All settings of network and training: a recipe, its name ("cifar10/fast") or a TOML file.
        None is "own/fast".
    backbone : torch.nn.Module or None, default=None
        A network from images (n, channels, size, size) to features (n, n_features), in place of the
        recipe's; it is copied, with its weights.
    pretext : callable or None, default=None
        Called with the backbone, the number of its features and the shape of an image, it returns
        the module of a pretext task, in place of the recipe's (see `probagg.dpac.pretext`).
    stages : sequence of classes or None, default=None
        The stages to train, subclasses of `probagg.dpac.stages.NetworkStage`; the `name` of each is
        the table of the recipe with its settings. None is pre-training, clustering and the recipe's
        self-labelling.
    device : str or torch.device, default="auto"
        "auto" is CUDA, else MPS, else the CPU.
    precision : {"auto", "fp32", "bf16", "fp16"}, default="auto"
        The precision of matrix products and convolutions; "auto" is bf16 on CUDA, fp32 elsewhere.
    compile : bool or None, default=None
        Whether to use torch.compile; None compiles long runs on CUDA.
    out_dir : path or None, default=None
        Folder of checkpoints and metrics. An unfinished run there is resumed, and the result of a
        finished one is loaded.
    max_minutes : float or None, default=None
        Save to `out_dir`, which is needed for this, and raise `Interrupted` after this time;
        calling `fit` again resumes the run.
    random_state : int, RandomState instance or None, default=None
        Determines initial weights, order and views. With None or a RandomState instance, a run in
        `out_dir` keeps the seed it was started with; an int must be the same to resume it.
    progress : callable or None, default=None
        Called after each step and each epoch with an object whose attributes are `stage`
        ("pretrain", "cluster" or "self_label"), `epoch` of `epochs`, `step` of `steps`, and
        `metrics`: a dictionary of losses and other means after an epoch, None after a step.

    Attributes
    ----------
    labels_ : ndarray of shape (n_images,)
        The most probable cluster of each image, as int64.
    probabilities_ : ndarray of shape (n_images, n_clusters)
        The probability of each image in each cluster.
    features_ : ndarray of shape (n_images, n_features)
        The backbone's features of the clean views.
    model_ : torch.nn.Module
        The trained network, on the CPU and in evaluation mode.
    recipe_ : Recipe
        The recipe, adapted to the size and channels of the images.
    diagnosis_ : Diagnosis
        A label-free diagnosis of the result.

    Examples
    --------
    >>> from probagg import DPAC, Recipe
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> epochs = ["pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=0"]
    >>> recipe = Recipe.of("digits").override(epochs)
    >>> dpac = DPAC(2, recipe=recipe, device="cpu", random_state=0).fit(images)
    >>> dpac.labels_.shape, dpac.probabilities_.shape
    ((40,), (40, 2))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 2, None, closed="left")],
        "recipe": [Recipe, str, PathLike, None],
        "backbone": [torch.nn.Module, None],
        "pretext": [callable, None],
        "stages": ["array-like", None],
        "device": [str, torch.device],
        "precision": [StrOptions({"auto", *PRECISIONS})],
        "compile": ["boolean", None],
        "out_dir": [str, PathLike, None],
        "max_minutes": [Interval(Real, 0.0, None, closed="left"), None],
        "random_state": ["random_state"],
        "progress": [callable, None],
    }
    _planned: FitPlan | None = None

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        recipe: Recipe | str | PathLike[str] | None = None,
        backbone: torch.nn.Module | None = None,
        pretext: PretextFactory | None = None,
        stages: Sequence[type[NetworkStage]] | None = None,
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
        self.backbone = backbone
        self.pretext = pretext
        self.stages = stages
        self.device = device
        self.precision = precision
        self.compile = compile
        self.out_dir = out_dir
        self.max_minutes = max_minutes
        self.random_state = random_state
        self.progress = progress

    def fit(self, images: Any, y: Any = None, known_labels: Any = None) -> Self:
        """Train on images, and return the fitted estimator.

        Where `out_dir` holds an unfinished run of the same recipe, images and seed, it is resumed;
        the result of a finished one is loaded.

        Parameters
        ----------
        images : array, path, name or Dataset
            An array (n, height, width[, channels]), uint8 or float in [0, 1], a folder of photos,
            an .npz or .npy file, the name of a data set, or a map-style torch Dataset.
        y : ignored
            Labels are never used.
        known_labels : array-like of shape (n_images,) or None, default=None
            The cluster of each image where it is known, and -1 elsewhere, as in `PAC.fit`: the
            image's target while clustering and self-labelling, and its label.
        """
        plan = self._plan(images, known_labels)
        self._planned = None  # training changes the plan's network
        data, recipe, model = plan.data, plan.recipe, plan.model
        with join_processes(plan.device):
            seed = int(from_first_process(torch.tensor([plan.seed]), plan.device))
            engine = Engine(
                model,
                seed=seed,
                machine=Machine(self.device, self.precision, self.compile, self.max_minutes),
                out=self._out(),
                identity=plan.identity | {"seed": seed} if plan.identity else {},
                progress=self.progress,
            )
            feed = Feed(data, engine.device)
            setup = Setup(
                model, Views(recipe.views), feed, recipe, seed, engine.autocast, plan.known
            )
            engine.resume()
            for stage in plan.stages:
                used = feed
                if stage.takes_extra and data.extra is not None:
                    used = Feed(Joined(data, data.extra), engine.device)
                engine.train(stage(dataclasses.replace(setup, feed=used)))
            features, P = infer(model, setup.views, feed)
        some = max(DIAGNOSED[0], DIAGNOSED[1] * P.shape[1])
        rows = torch.randperm(len(P), generator=torch.Generator().manual_seed(0))[:some]
        settings = recipe.cluster
        x = outputs_of(model.distance_layers, features[rows])
        self.diagnosis_: Diagnosis = diagnose(
            x, P[rows], settings.m, metric=settings.metric, balance=settings.balance
        )
        self.model_, self.recipe_ = model.cpu().eval(), recipe
        self.features_ = features.numpy()
        self.probabilities_ = with_known(P.numpy(), plan.known)
        self.labels_ = labels_of(self.probabilities_)
        return self

    def check(self, images: Any, known_labels: Any = None) -> None:
        """Raise what `fit` would raise before it trains; write nothing."""
        plan, out = self._plan(images, known_labels), self._out()
        _ = plan.model
        saved = read_checkpoint(out / "checkpoints") if out else None
        if saved is not None:
            check_identity(saved.description, plan.identity, out)

    def _plan(self, images: Any, known_labels: Any = None) -> FitPlan:
        """Return the plan of a fit, the one of the last call if nothing has changed since."""
        given = {"images": images, "known_labels": known_labels, **self.get_params(deep=False)}
        last = self._planned
        if last is not None and all(map(operator.is_, last.given.values(), given.values())):
            return last
        check_parameters(self)
        if self.max_minutes is not None and self.out_dir is None:
            raise InputError(
                f"max_minutes={self.max_minutes:g} stops training to resume it later, but without "
                "out_dir nothing is saved. Pass out_dir, a folder for the checkpoints."
            )
        recipe, device = self.recipe or "own/fast", choose_device(self.device)
        recipe = recipe if isinstance(recipe, Recipe) else Recipe.of(recipe)
        data = open_for(images, recipe)
        if len(data) < 2 * self.n_clusters:
            raise InputError(
                f"{len(data)} images are too few for {self.n_clusters} clusters: at least two per "
                "cluster are needed. Use more images or fewer clusters."
            )
        size = data.size or data.read(np.arange(1)).shape[1:3]
        recipe = recipe.adapt(data.channels, size)
        known = check_known_labels(known_labels, len(data), self.n_clusters)
        self._planned = FitPlan(given, data, known, recipe, device, self._seed())
        return self._planned

    def transform(self, images: Any) -> np.ndarray:
        """Return the features of images, (n, n_features)."""
        return self.infer(images)[0]

    def predict_proba(self, images: Any) -> np.ndarray:
        """Return the probability of each image in each cluster, (n, n_clusters)."""
        return self.infer(images)[1]

    def predict(self, images: Any) -> np.ndarray:
        """Return the most probable cluster of each image, as int64."""
        return labels_of(self.predict_proba(images))

    def infer(self, images: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return features and probabilities of images from one pass."""
        check_is_fitted(self, "model_")
        recipe = self.recipe_
        data = open_for(images, recipe)
        if data.channels != recipe.channels:
            raise InputError(
                f"The model was trained on images with {recipe.channels} channel(s), but these "
                f"have {data.channels}. Convert them first."
            )
        device, model = choose_device(self.device), self.model_
        if device.type != "cpu":  # moving the model itself would disturb other threads
            model = copy.deepcopy(model).to(device)
        features, probabilities = infer(model, Views(recipe.views), Feed(data, device))
        return features.numpy(), probabilities.numpy()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trained network and its recipe to a safetensors file."""
        check_is_fitted(self, "model_")
        own = {"own_backbone": self.backbone is not None, "own_pretext": self.pretext is not None}
        save_network(self.model_, self.recipe_, path, **own)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        device: str = "auto",
        backbone: torch.nn.Module | None = None,
    ) -> Self:
        """Return the estimator that `save` wrote, ready to predict, without `labels_`.

        One that was trained with a `backbone` of your own needs such a module again.
        """
        model, recipe = load_network(path, backbone)
        estimator = cls(model.n_clusters, recipe=recipe, device=device, backbone=backbone)
        estimator.model_, estimator.recipe_ = model.eval(), recipe
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: without a plan, which has the images."""
        return super().__getstate__() | {"_planned": None}

    def _out(self) -> Path | None:
        return None if self.out_dir is None else Path(self.out_dir)

    def _seed(self) -> int:
        """Return the seed: of the run in `out_dir` unless `random_state` is an int."""
        out = None if isinstance(self.random_state, Integral) else self._out()
        saved = read_checkpoint(out / "checkpoints") if out else None
        return int(saved.description["identity"]["seed"]) if saved else draw_seed(self.random_state)


@dataclasses.dataclass(frozen=True)
class FitPlan:
    """What is decided before training, from the images, known labels and parameters given.

    Network and fingerprint are computed when first needed.
    """

    given: dict[str, Any]
    data: ImageSet
    known: np.ndarray | None
    recipe: Recipe
    device: torch.device
    seed: int

    @cached_property
    def model(self) -> Model:
        """Return the network before training."""
        own = {name: self.given[name] for name in ("backbone", "pretext")}
        return build_model(self.recipe, int(self.given["n_clusters"]), seed=self.seed, **own)

    @cached_property
    def stages(self) -> tuple[type[NetworkStage], ...]:
        """Return the stages to train."""
        given = self.given["stages"]
        if given is None:
            return recipe_stages(self.recipe)
        names = [getattr(stage, "name", None) for stage in given]
        if len(set(names)) < len(names) or not {*names} <= {"pretrain", "cluster", "self_label"}:
            raise InputError(
                f"stages have the names {names}, but different ones of pretrain, cluster and "
                "self_label are needed, the recipe's tables. Give each class one as `name`."
            )
        return tuple(given)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must share with a run that resumes it."""
        if self.given["out_dir"] is None:
            return {}
        data, extra = self.data, self.data.extra
        identity = {
            "recipe": dataclasses.asdict(self.recipe),
            "data": data.fingerprint(),
            "extra": None if extra is None else extra.fingerprint(),
            "n_clusters": int(self.given["n_clusters"]),
            "seed": self.seed,
            **{name: _name(self.given[name]) for name in OWN if self.given[name] is not None},
        }
        if self.known is not None:
            identity["known_labels"] = fingerprint([self.known.tobytes()])
        return json.loads(json.dumps(identity))  # as it will be read: lists, not tuples


def recipe_stages(recipe: Recipe) -> tuple[type[NetworkStage], ...]:
    """Return the stages that a recipe asks for."""
    pretraining = PrototypeStage if recipe.pretext.prototypes else PretrainStage
    return pretraining, ClusterStage, VARIANTS[recipe.self_label.labels]


def _name(part: Any) -> str | list[str]:
    """Return the name of a user's class or function, of a module its class's."""
    if isinstance(part, list | tuple):
        return [str(_name(one)) for one in part]
    return getattr(part, "__qualname__", type(part).__qualname__)


def open_for(images: Any, recipe: Recipe) -> ImageSet:
    """Return images as a recipe reads them; an image set that is open already stays as it is."""
    data = open_images(images)
    return data if isinstance(images, ImageSet) else decoded_for(data, recipe)


def decoded_for(data: ImageSet, recipe: Recipe) -> ImageSet:
    """Return photo files decoded to a recipe's size and channels, and other images as they are."""
    if data.paths is None:
        return data
    return converted(data, recipe.decode_size, recipe.channels)
