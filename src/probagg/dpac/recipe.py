"""A recipe: everything that decides a training run, as frozen and typed data. TOML in and out.

The named recipes are the files in `recipes/`. Reading them needs no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

import tomli_w

from probagg.dpac.settings import RecipeError, merge, parse_setting, parse_toml, replace_all
from probagg.dpac.view_settings import ViewSettings
from probagg.errors import did_you_mean, reading
from probagg.storage import read_bytes

TASKS = ("wcl", "simclr", "moco", "byol", "autoencoder", "none")
TARGETS = ("online", "kmeans", "fcm", "pac")
FOLDER = Path(__file__).parent / "recipes"
NAMES = tuple(
    sorted(f"{p.parent.name}/{p.stem}" for p in FOLDER.glob("*/*.toml") if p.parent.name != "parts")
)
PARTS = tuple(f"parts/{p.stem}" for p in FOLDER.glob("parts/*.toml"))
REMOVED = {"self_label": ("start", "keep_losses")}  # keys of earlier versions, in saved recipes
SMALL = 64  # pixels; SimCLR does not blur views up to this size


def _one_of(value: str, choices: tuple[str, ...], what: str) -> None:
    if value not in choices:
        raise RecipeError(f"{what} is {value!r}, but must be one of {', '.join(choices)}.")


def _at_least(value: float, least: float, what: str) -> None:
    if not value >= least:
        raise RecipeError(f"{what} is {value}, but must be at least {least}.")


def _within(value: float, low: float, high: float, what: str) -> None:
    if not low <= value <= high:
        raise RecipeError(f"{what} is {value}, but {low:g} to {high:g} is needed.")


def _widths(values: tuple[int, ...], what: str) -> None:
    if not all(width >= 1 for width in values):
        raise RecipeError(f"{what} is {list(values)}, but widths of at least 1 are needed.")


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
        _one_of(self.norm, ("batch", "group"), "norm")
        _at_least(self.width, 1, "width")
        _widths(self.layers, "layers")
        _widths(self.classifier, "classifier")


@dataclass(frozen=True)
class Pretext:
    """The self-supervised task of pre-training, kept during clustering (Tables 5a and 5b)."""

    task: str = "wcl"
    views: tuple[str, ...] = ("weak", "strong")  # of one image; the first one learns the targets
    weight: float = 1.0  # of its loss relative to the clustering loss
    temperature: float = 0.5
    head: tuple[int, ...] = (512, 128)  # the projector's layers, or the decoder's hidden ones
    queue_size: int = 4096  # MoCo's keys
    key_momentum: float = 0.99  # of the moving average: MoCo's key network, BYOL's target network

    def __post_init__(self) -> None:
        _one_of(self.task, TASKS, "task")
        for view in self.views:
            _one_of(view, ("weak", "strong", "clean"), "views")
        pair = self.task in ("wcl", "simclr", "moco", "byol")
        if pair and not self.head:
            raise RecipeError("head is empty, but the projector needs a width, as [128].")
        if not self.temperature > 0.0:
            raise RecipeError(f"temperature is {self.temperature}; try 0.5.")
        _widths(self.head, "head")
        _at_least(self.queue_size, 1, "queue_size")
        _within(self.key_momentum, 0.0, 1.0, "key_momentum")
        if len(self.views) != 2 if pair else len(self.views) not in (1, 2):
            raise RecipeError(
                f"views is {self.views}, but the task {self.task!r} compares "
                f"{'two views' if pair else 'one or two views'}."
            )


@dataclass(frozen=True)
class Training:
    """Length, batches and optimiser of a stage."""

    epochs: int = 200
    batch_size: int = 240
    optimizer: str = "adam"  # adam or sgd
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    momentum: float = 0.9  # of SGD
    schedule: str = "constant"  # constant or cosine
    warmup_epochs: int = 0  # at most half of the epochs are used
    accumulate: int = 1  # parts of a batch whose gradients are summed for one update

    def __post_init__(self) -> None:
        _one_of(self.optimizer, ("adam", "sgd"), "optimizer")
        _one_of(self.schedule, ("constant", "cosine"), "schedule")
        _at_least(self.epochs, 0, "epochs")
        _at_least(self.warmup_epochs, 0, "warmup_epochs")
        _at_least(self.batch_size, 2, "batch_size")
        _at_least(self.accumulate, 1, "accumulate")
        _at_least(self.learning_rate, 0.0, "learning_rate")
        _at_least(self.weight_decay, 0.0, "weight_decay")
        _within(self.momentum, 0.0, 1.0, "momentum")


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
    start: str = "random"  # of the classifier; "pac" fits it to PAC's clusters of the features
    backbone_gradient: float = 1.0  # factor of this loss's gradient with respect to the features
    stratify: bool = False  # batches take their share of each cluster, so that masses are stable
    targets: str = "online"  # or kmeans, fcm, pac of all images every refresh_epochs (Table 7)
    refresh_epochs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of(self.objective, ("opa", "pac"), "objective")
        _one_of(self.start, ("random", "pac"), "start")
        _one_of(self.metric, ("sqeuclidean", "cosine"), "metric")
        _one_of(self.targets, TARGETS, "targets")
        _at_least(self.refresh_epochs, 1, "refresh_epochs")
        _at_least(self.backbone_gradient, 0.0, "backbone_gradient")
        _within(self.balance, 0.0, 2.0, "balance")
        if self.objective == "pac" and self.targets != "online":
            raise RecipeError(
                f"targets is {self.targets!r}, but the objective pac has no targets. Set "
                "cluster.objective to opa or cluster.targets to online."
            )
        if not self.m > 1.0:
            raise RecipeError(f"m is {self.m}, but a number above 1 is needed (1.03).")


@dataclass(frozen=True)
class SelfLabel(Training):
    """The third stage: confident pseudo-labels train a linear head on strong views.

    `labels` says whose they are: "classifier" takes those of the classifier on the weak view, as
    the paper does; "neighbours" takes the linear head's probabilities, smoothed over the kNN graph
    of the features every `refresh_epochs`.
    """

    confidence: float = 0.95
    labels: str = "classifier"
    refresh_epochs: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of(self.labels, ("classifier", "neighbours"), "labels")
        _at_least(self.refresh_epochs, 1, "refresh_epochs")
        _within(self.confidence, 0.0, 1.0, "confidence")


@dataclass(frozen=True)
class Recipe:
    """A complete recipe; `Recipe.of("cifar10/fast")` returns a named one.

    >>> recipe = Recipe.of("digits/fast").override(["cluster.m=1.05", "pretrain.epochs=3"])
    >>> recipe.cluster.m, recipe.pretrain.epochs
    (1.05, 3)
    >>> Recipe.from_toml(recipe.to_toml()) == recipe
    True
    >>> recipe.override(["cluster.mm=1.05"])
    Traceback (most recent call last):
        ...
    probagg.dpac.settings.RecipeError: There is no key 'cluster.mm'. Did you mean 'cluster.m'?
    """

    name: str = "own"
    channels: int = 3
    decode_size: int = 32  # pixels of the shorter side at which photos are read
    network: Architecture = field(default_factory=Architecture)
    views: ViewSettings = field(default_factory=ViewSettings)
    pretext: Pretext = field(default_factory=Pretext)
    pretrain: Pretrain = field(default_factory=Pretrain)
    cluster: Cluster = field(default_factory=Cluster)
    self_label: SelfLabel = field(default_factory=SelfLabel)

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise RecipeError(f"channels is {self.channels}, but 1 or 3 is needed.")
        _at_least(self.decode_size, 1, "decode_size")

    @classmethod
    def of(cls, name: str | PathLike[str]) -> Self:
        """Return a recipe by its name ("cifar10" is "cifar10/fast") or from a TOML file."""
        return cls.from_toml(_read(name))

    @classmethod
    def from_toml(cls, text: str, *, saved: bool = False) -> Self:
        """Return the recipe of a TOML text; a key that is left out keeps its default.

        The key `base` names a recipe to start from instead of the defaults, or several, each of
        which replaces keys of those before it. `saved` ignores keys that only earlier versions
        had, which a model saved by one of them may contain.
        """
        values = parse_toml(text)
        for table, keys in REMOVED.items() if saved else ():
            values[table] = {k: v for k, v in values.get(table, {}).items() if k not in keys}
        return _extend(cls(), values, [])

    def to_toml(self) -> str:
        """Return the recipe with every key."""
        return tomli_w.dumps(dataclasses.asdict(self))

    def override(self, settings: Iterable[str]) -> Self:
        """Return the recipe with settings such as "cluster.m=1.05"; of a repeated key the last.

        They are applied together, so that keys which depend on each other need no order.
        """
        if isinstance(settings, str):
            raise RecipeError(f"{settings!r} is one setting. Pass a list: [{settings!r}].")
        values: dict[str, Any] = {}
        for setting in settings:
            merge(values, parse_setting(setting))
        return replace_all(self, values)

    def adapt(self, channels: int, size: tuple[int, int]) -> Self:
        """Return the recipe for images of this format.

        Grey images have one mean and no colours to change. `own` recipes make views no larger
        than the images.
        """
        changes: dict[str, Any] = {}
        if channels != self.channels:
            mean, std = self.views.mean, self.views.std
            changes = {
                "mean": [sum(mean) / len(mean)] * channels,
                "std": [sum(std) / len(std)] * channels,
                **({"grayscale": 0.0} if channels == 1 else {}),
            }
        if self.name.partition("/")[0] == "own" and max(size) < self.views.size:
            changes["size"] = max(size)
            if max(size) <= SMALL:
                changes["blur"] = 0.0
        return replace_all(self, {"channels": channels, "views": changes})


def _read(name: str | PathLike[str]) -> str:
    """Return the text of a TOML file or of a named recipe."""
    path = Path(name)
    if path.suffix == ".toml":
        with reading(path, "Name a TOML file with a recipe.", RecipeError):
            return read_bytes(path).decode()
    full = str(name) if "/" in str(name) else f"{name}/fast"
    if full in NAMES or full in PARTS:
        return (FOLDER / f"{full}.toml").read_text()
    raise RecipeError(
        f"There is no recipe {str(name)!r}.{did_you_mean(full, NAMES)} Name a .toml file or one of "
        f"{', '.join(NAMES)}."
    )


def _extend(recipe: Any, values: dict[str, Any], within: list[str]) -> Any:
    """Return the recipe with the bases that the values name, then the values, applied to it.

    `within` names the recipes that led here.
    """
    base = values.pop("base", [])
    names = [base] if isinstance(base, str) else base
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RecipeError(f"base is {base!r}, but a name or a list of names is needed.")
    for name in names:
        if name in within:
            raise RecipeError(f"The recipe {name!r} is its own base. Remove base from it.")
        recipe = _extend(recipe, parse_toml(_read(name)), [*within, name])
    return replace_all(recipe, values)
