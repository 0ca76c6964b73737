"""A recipe: everything that decides a training run, as frozen and typed data. TOML in and out."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

import tomli_w

from probagg.dpac.views import ViewSettings

TASKS = ("wcl", "simclr", "moco", "byol", "autoencoder", "none")
TARGETS = ("online", "kmeans", "fcm", "pac")


class RecipeError(ValueError):
    """A recipe that cannot be; the message names the key and what is needed."""


def _one_of(value: str, choices: tuple[str, ...], what: str) -> None:
    if value not in choices:
        raise RecipeError(f"{what} is {value!r}, but {', '.join(choices)} are possible.")


def _at_least(value: float, least: float, what: str) -> None:
    if not value >= least:
        raise RecipeError(f"{what} is {value}, but at least {least} is needed.")


@dataclass(frozen=True)
class Architecture:
    """The network f with its classifier h."""

    backbone: str = "resnet34"  # resnet18, resnet34, resnet50, convnet, mlp, or any name timm knows
    pretrained: bool = False  # the weights that come with a timm or torchvision name
    width: int = 64  # of convnet's first layer
    layers: tuple[int, ...] = (500, 500, 2000, 10)  # of mlp
    classifier: tuple[int, ...] = (512, 512)  # hidden layers between f and the K logits
    norm: str = "batch"  # of convnet and of the heads: batch or group

    def __post_init__(self) -> None:
        _one_of(self.norm, ("batch", "group"), "network.norm")


@dataclass(frozen=True)
class Pretext:
    """The self-supervised task of pre-training, kept during clustering (Tables 5a and 5b)."""

    task: str = "wcl"
    views: tuple[str, ...] = ("weak", "strong")  # of one image; the first one learns the targets
    weight: float = 1.0  # of its loss beside the clustering loss
    temperature: float = 0.5
    head: tuple[int, ...] = (512, 128)  # the projector's layers, or the decoder's hidden ones
    queue_size: int = 4096  # MoCo's keys
    key_momentum: float = 0.99  # of the moving average: MoCo's key network, BYOL's target network

    def __post_init__(self) -> None:
        _one_of(self.task, TASKS, "pretext.task")
        for view in self.views:
            _one_of(view, ("weak", "strong", "clean"), "pretext.views")
        pair = self.task in ("wcl", "simclr", "moco", "byol")
        if pair and not self.head:
            raise RecipeError("pretext.head is empty, but the projector needs a width, as [128].")
        if not self.temperature > 0.0:
            raise RecipeError(f"pretext.temperature is {self.temperature}; try 0.5.")
        if not 0.0 <= self.key_momentum <= 1.0:
            raise RecipeError(f"pretext.key_momentum is {self.key_momentum}, but 0 to 1 is needed.")
        if len(self.views) != 2 if pair else len(self.views) not in (1, 2):
            raise RecipeError(
                f"pretext.views is {self.views}, but the task {self.task!r} compares "
                f"{'two views' if pair else 'one or two views'}."
            )


@dataclass(frozen=True)
class Training:
    """What every stage decides about its optimiser."""

    epochs: int = 200
    batch_size: int = 240
    optimizer: str = "adam"  # adam or sgd
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    momentum: float = 0.9  # of SGD
    schedule: str = "constant"  # constant or cosine
    warmup_epochs: int = 0  # at most half of the epochs are taken
    accumulate: int = 1  # parts of a batch, each with its own loss, for one update

    def __post_init__(self) -> None:
        _one_of(self.optimizer, ("adam", "sgd"), "optimizer")
        _one_of(self.schedule, ("constant", "cosine"), "schedule")
        _at_least(self.epochs, 0, "epochs")
        _at_least(self.warmup_epochs, 0, "warmup_epochs")
        _at_least(self.batch_size, 2, "batch_size")
        _at_least(self.accumulate, 1, "accumulate")
        _at_least(self.learning_rate, 0.0, "learning_rate")


@dataclass(frozen=True)
class Pretrain(Training):
    """The first stage."""

    epochs: int = 1000


@dataclass(frozen=True)
class Cluster(Training):
    """The second stage: Eq. 12 (`objective="opa"`) or Eq. 13 (`"pac"`)."""

    objective: str = "opa"
    m: float = 1.03
    metric: str = "sqeuclidean"
    balance: float = 1.0
    regularization: float = 0.0  # weight of the entropy of the mean assignment (Table 5c)
    start: str = "random"  # of the classifier; "pac" teaches it PAC's clusters of the features
    backbone_gradient: float = 1.0  # share of this loss's gradient that goes on into the backbone
    stratify: bool = False  # batches take their share of each cluster, so that masses hold still
    targets: str = "online"  # or computed for all images every refresh_epochs (Table 7)
    refresh_epochs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of(self.objective, ("opa", "pac"), "cluster.objective")
        _one_of(self.start, ("random", "pac"), "cluster.start")
        _one_of(self.metric, ("sqeuclidean", "cosine"), "cluster.metric")
        _one_of(self.targets, TARGETS, "cluster.targets")
        _at_least(self.refresh_epochs, 1, "cluster.refresh_epochs")
        _at_least(self.backbone_gradient, 0.0, "cluster.backbone_gradient")
        if self.objective == "pac" and self.targets != "online":
            raise RecipeError(
                f"cluster.targets is {self.targets!r}, but the objective pac has no targets. Set "
                "cluster.objective to opa or cluster.targets to online."
            )
        if not self.m > 1.0:
            raise RecipeError(f"cluster.m is {self.m}, but a number above 1 is needed (1.03).")


@dataclass(frozen=True)
class SelfLabel(Training):
    """The third stage: the classifier's confident labels train a linear head on strong views."""

    confidence: float = 0.95
    labels: str = "classifier"  # or "neighbours": what the nearest images say, as probabilities
    refresh_epochs: int = 5  # between two questions to the neighbours
    keep_losses: bool = True  # go on with the losses of the second stage beside it
    start: str = "random"  # of the linear head; "classifier" teaches it, as neighbours always do

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of(self.start, ("random", "classifier"), "self_label.start")
        _one_of(self.labels, ("classifier", "neighbours"), "self_label.labels")
        _at_least(self.refresh_epochs, 1, "self_label.refresh_epochs")
        if not 0.0 <= self.confidence <= 1.0:
            raise RecipeError(f"self_label.confidence is {self.confidence}, but 0 to 1 is needed.")


@dataclass(frozen=True)
class Recipe:
    """A complete recipe; `Recipe.of("cifar10/fast")` gives a named one.

    >>> recipe = Recipe.of("digits/fast").override(["cluster.m=1.05", "pretrain.epochs=3"])
    >>> recipe.cluster.m, recipe.pretrain.epochs
    (1.05, 3)
    >>> Recipe.from_toml(recipe.to_toml()) == recipe
    True
    >>> recipe.override(["cluster.epoch=3"])
    Traceback (most recent call last):
        ...
    probagg.dpac.recipe.RecipeError: There is no key cluster.epoch. Did you mean cluster.epochs?
    """

    name: str = "own"
    channels: int = 3
    decode_size: int = 32  # the shorter side that photos of a folder are brought to
    network: Architecture = field(default_factory=Architecture)
    views: ViewSettings = field(default_factory=ViewSettings)
    pretext: Pretext = field(default_factory=Pretext)
    pretrain: Pretrain = field(default_factory=Pretrain)
    cluster: Cluster = field(default_factory=Cluster)
    self_label: SelfLabel = field(default_factory=SelfLabel)

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise RecipeError(f"channels is {self.channels}, but 1 or 3 is needed.")

    @classmethod
    def of(cls, name: str | PathLike[str]) -> Recipe:
        """A recipe by name ("cifar10" is "cifar10/fast"), or from a TOML file."""
        from probagg.dpac.recipes import named

        path = Path(name)
        if path.suffix == ".toml":
            try:
                return cls.from_toml(path.read_text())
            except OSError as error:
                raise RecipeError(f"{path} cannot be read ({error.strerror}).") from error
        return named(str(name))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read what `to_toml` wrote, or a part of it: what is left out keeps its default.

        The key `base` names a recipe to start from instead of the defaults.
        """
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RecipeError(f"The recipe is not TOML: {error}.") from error
        base = values.pop("base", None)
        return replace_all(cls.of(base) if base else cls(), values)

    def to_toml(self) -> str:
        """The whole recipe, every key."""
        return tomli_w.dumps(dataclasses.asdict(self))

    def override(self, settings: Iterable[str]) -> Self:
        """With settings such as "cluster.m=1.05" applied, in order."""
        recipe = self
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals:
                raise RecipeError(f"{setting!r} is no setting: write key=value, as cluster.m=1.05.")
            *parents, last = key.strip().split(".")
            values: dict[str, Any] = {last: _parse(text.strip())}
            for parent in reversed(parents):
                values = {parent: values}
            recipe = replace_all(recipe, values)
        return recipe


def _parse(text: str) -> Any:
    """A TOML value; a bare word is a string, as on a command line."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def replace_all(instance: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """`dataclasses.replace` all the way down, with keys and types checked."""
    hints = get_type_hints(type(instance))
    changes = {}
    for key, value in values.items():
        if key not in hints:
            raise RecipeError(_unknown(prefix + key, [prefix + name for name in hints]))
        current = getattr(instance, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, dict):
                raise RecipeError(f"{prefix}{key} is {value!r}, but a table of keys is needed.")
            changes[key] = replace_all(current, value, f"{prefix}{key}.")
        else:
            changes[key] = _convert(value, hints[key], prefix + key)
    try:
        return dataclasses.replace(instance, **changes)
    except RecipeError:
        raise
    except ValueError as error:
        raise RecipeError(str(error)) from error


def _unknown(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    return f"There is no key {key}. Did you mean {close[0]}?"


def _convert(value: Any, hint: Any, key: str) -> Any:
    """The value as the field's type, where nothing is lost by it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        arguments = tuple(a for a in arguments if a is not type(None))
        return _convert(value, arguments[0], key)
    if origin is tuple and isinstance(value, list | tuple):
        many = len(arguments) == 2 and arguments[1] is Ellipsis
        if many or len(value) == len(arguments):
            inner = [arguments[0]] * len(value) if many else list(arguments)
            return tuple(_convert(v, h, key) for v, h in zip(value, inner, strict=True))
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    wanted = str(hint) if origin else hint.__name__
    raise RecipeError(f"{key} is {value!r}, but {wanted} is needed.")
