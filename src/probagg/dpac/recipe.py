"""A recipe: everything that decides a training run, as frozen and typed data. TOML in and out.

The named recipes are the files in `recipes/`. Reading them needs no torch. A comment beside a field
documents its key.
"""

import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_origin, get_type_hints

import tomli_w

from probagg.errors import InputError, closest, did_you_mean, first_line, reading
from probagg.storage import SETTINGS, parse_toml, read_bytes

# Pretext tasks, of which the first four compare two views.
PAIR_TASKS = ("wcl", "simclr", "moco", "byol")
TASKS = (*PAIR_TASKS, "autoencoder", "none")
# In which distances can be measured. Saved models have one by its place: add more at the end.
SPACES = ("features", "hidden", "projections")
FOLDER = Path(__file__).parent / "recipes"
NAMES = tuple(
    sorted(f"{p.parent.name}/{p.stem}" for p in FOLDER.glob("*/*.toml") if p.parent.name != "parts")
)
PARTS = tuple(f"parts/{p.stem}" for p in FOLDER.glob("parts/*.toml"))
SMALL = 64  # pixels; SimCLR does not blur views up to this size
MAX_SIZE = 1024  # pixels of a view; a batch of larger ones takes tens of gigabytes

# The strong view's operations and the range of the magnitude of each, as in the released code.
RANGES: dict[str, tuple[float, float]] = {
    "Identity": (0.0, 0.0),
    "AutoContrast": (0.0, 0.0),
    "Equalize": (0.0, 0.0),
    "Rotate": (-30.0, 30.0),  # degrees, counter-clockwise
    "Solarize": (0.0, 256.0),  # grey levels from here on are inverted
    "Color": (0.05, 0.95),  # 0 is grey, 1 the image
    "Contrast": (0.05, 0.95),  # 0 is the mean grey level
    "Brightness": (0.05, 0.95),  # 0 is black
    "Sharpness": (0.05, 0.95),  # 0 is smoothed
    "ShearX": (-0.1, 0.1),  # columns per row
    "TranslateX": (-0.1, 0.1),  # share of the width, to the left
    "TranslateY": (-0.1, 0.1),  # share of the height, upwards
    "Posterize": (4.0, 8.0),  # bits kept, rounded down
    "ShearY": (-0.1, 0.1),  # rows per column
}


class RecipeError(InputError):
    """A recipe that cannot be used; the message names the key and what is needed."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RecipeError(message)


# Types that state the limits of a key: its least value, or the least and the largest.
Count = Annotated[int, 1]
Epochs = Annotated[int, 0]
Share = Annotated[float, 0, 1]
NotNegative = Annotated[float, 0.0]
Widths = Annotated[tuple[int, ...], 1]


@dataclass(frozen=True)
class RecipeTable:
    """A table of a recipe, whose values must fit the limits or choices that their types state."""

    def __post_init__(self) -> None:
        for key in dataclasses.fields(self):
            value, limits = getattr(self, key.name), getattr(key.type, "__metadata__", ())
            for one in value if isinstance(value, tuple) else [value]:
                match limits:
                    case (str(), *_):
                        is_right, needed = one in limits, f"must be one of {', '.join(limits)}"
                    case (low, high):
                        is_right, needed = low <= one <= high, f"{low:g} to {high:g} is needed"
                    case (least,):
                        is_right, needed = one >= least, f"must be at least {least}"
                    case _:
                        break
                _require(is_right, f"{key.name} is {one!r}, but {needed}.")


@dataclass(frozen=True)
class ViewSettings(RecipeTable):
    """What the views do to an image."""

    size: Annotated[int, 1, MAX_SIZE] = 32  # height and width of a view in pixels
    crop: tuple[float, float] = (0.2, 1.0)  # range of a crop's area; [1, 1] does not crop
    flip: bool = True
    # The strengths of brightness, contrast, saturation and hue.
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
    jitter_probability: Share = 0.8
    grayscale: Share = 0.2  # probability
    blur: Share = 0.0  # probability; the kernel is as wide as a tenth of the view
    # The weak view's affine map, for digits: at most so many degrees, and shares of the size.
    rotate: float = 0.0
    translate: Share = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    shear: float = 0.0
    operations: tuple[str, ...] = tuple(RANGES)  # those that the strong view draws from
    n_operations: int = 4  # drawn per sample, with replacement
    cutout: Share = 0.5  # largest side of the square erased in a strong view, share of the size
    strong_crop: bool = False  # whether the strong view is cropped like the weak one
    # The multiple of `size` that an image is resized to before its crop.
    clean_scale: Annotated[float, 1] = 1.25
    # Mean and deviation of pixels in 0..1, one per channel or one for all; here CIFAR-10's.
    mean: tuple[float, ...] = (0.4914, 0.4822, 0.4465)
    std: tuple[float, ...] = (0.2470, 0.2435, 0.2616)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(
            len(self.crop) == 2 and 0 < self.crop[0] <= self.crop[1] <= 1,
            f"crop is {self.crop}; needed: 0 < smallest area <= largest area <= 1.",
        )
        _require(
            len(self.scale) == 2 and 0 < self.scale[0] <= self.scale[1],
            f"scale is {self.scale}; needed: 0 < smallest <= largest.",
        )
        _require(
            len(self.jitter) == 4 and min(self.jitter) >= 0 and self.jitter[3] <= 0.5,
            f"jitter is {self.jitter}; needed: brightness, contrast, saturation and hue, none "
            "negative, hue at most 0.5.",
        )
        _require(0 <= self.shear < 90, f"shear is {self.shear}; it must lie in 0..90 degrees.")
        _require(
            self.n_operations == 0 or (self.n_operations > 0 and len(self.operations) > 0),
            f"n_operations is {self.n_operations} of {len(self.operations)} operations; 0 switches "
            "them off, a larger number needs operations to draw from.",
        )
        _require(
            len(set(self.operations)) == len(self.operations),
            f"operations names one twice: {', '.join(self.operations)}.",
        )
        for name in self.operations:
            hint = did_you_mean(name, tuple(RANGES))
            known = f"Known: {', '.join(RANGES)}."
            _require(name in RANGES, f"operations: there is no {name!r}.{hint} {known}")
        _require(
            len(self.mean) == len(self.std) in (1, 3) and min(self.std) > 0,
            f"mean is {self.mean} and std {self.std}; needed: one value each, or three, std above "
            "zero.",
        )

    @property
    def crops(self) -> bool:
        """Whether a crop is ever smaller than the image."""
        return self.crop[0] < 1

    @property
    def moves(self) -> bool:
        """Whether the weak view has a random affine map."""
        return bool(self.rotate or self.translate or self.shear) or self.scale != (1, 1)


@dataclass(frozen=True)
class Architecture(RecipeTable):
    """The network f with its classifier h."""

    backbone: str = "resnet34"  # resnet18, resnet34, resnet50, convnet, mlp, or any name timm knows
    pretrained: bool = False  # whether to load the weights that a timm or torchvision name has
    width: Count = 64  # channels of convnet's first layer
    layers: Widths = (500, 500, 2000, 10)  # widths of mlp
    classifier: Widths = (512, 512)  # hidden layers between f and the K logits
    norm: Annotated[str, "batch", "group"] = "batch"  # in convnet and in the heads


@dataclass(frozen=True)
class Pretext(RecipeTable):
    """The self-supervised task of pre-training, kept during clustering (Tables 5a and 5b).

    After BYOL, clustering keeps Eq. 11 of its projections.
    """

    task: Annotated[str, *TASKS] = "wcl"
    # The first one learns the targets of clustering.
    views: Annotated[tuple[str, ...], "weak", "strong", "clean"] = ("weak", "strong")
    weight: float = 1.0  # weight of this loss beside the clustering loss
    temperature: float = 0.5
    head: Widths = (512, 512, 128)  # the projector's layers, or the decoder's hidden ones
    queue_size: Count = 4096  # number of MoCo's keys
    key_momentum: Share = 0.99  # momentum of MoCo's key network and BYOL's target network
    # Weight of a contrast between PAC's clusters beside BYOL, after a fifth of pre-training.
    prototypes: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = self.task in PAIR_TASKS
        _require(
            bool(self.head) or not pair, "head is empty, but the projector needs a width, as [128]."
        )
        _require(self.temperature > 0.0, f"temperature is {self.temperature}; try 0.5.")
        _require(
            len(self.views) == 2 or (len(self.views) == 1 and not pair),
            f"views is {self.views}, but the task {self.task!r} compares "
            f"{'two views' if pair else 'one or two views'}.",
        )
        _require(
            not self.prototypes or self.task == "byol",
            f"prototypes is {self.prototypes:g}, but the task {self.task!r} has no target network "
            "to compare clusters with. Set pretext.task to byol, or pretext.prototypes to 0.",
        )


@dataclass(frozen=True)
class Training(RecipeTable):
    """Length, batches and optimiser of a stage."""

    epochs: Epochs = 200
    batch_size: Annotated[int, 2] = 240
    optimizer: Annotated[str, "adam", "sgd"] = "adam"
    learning_rate: NotNegative = 1e-4
    weight_decay: NotNegative = 1e-4
    momentum: Share = 0.9  # SGD's
    schedule: Annotated[str, "constant", "cosine"] = "constant"
    warmup_epochs: Epochs = 0  # at most half of the epochs
    accumulate: Count = 1  # parts of a batch whose gradients are summed for one update


@dataclass(frozen=True)
class PretrainSettings(Training):
    """The first stage."""

    epochs: Epochs = 1000


@dataclass(frozen=True)
class ClusterSettings(Training):
    """The second stage: Eq. 12 (`objective="opa"`) or Eq. 13 (`"pac"`)."""

    objective: Annotated[str, "opa", "pac"] = "opa"
    m: float = 1.03
    metric: Annotated[str, "sqeuclidean", "cosine"] = "sqeuclidean"
    balance: Annotated[float, 0, 2] = 1.0
    # Where PAC's start and the loss measure distances: among the features, in the hidden layer or
    # at the end of the pretext's projector (where the task has none, among the features), or in the
    # one of these that PAC's start finds best.
    space: Annotated[str, *SPACES, "best"] = "features"
    # "pac" fits the classifier to PAC's clusters.
    start: Annotated[str, "random", "pac"] = "random"
    # The factor of this loss's gradient with respect to the features.
    backbone_gradient: NotNegative = 1.0
    stratify: bool = False  # batches take their share of each cluster, so that masses are stable

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.m > 1.0, f"m is {self.m}, but a number above 1 is needed (1.03).")
        _require(
            self.space != "best" or self.start == "pac",
            f"space is 'best', which compares PAC's clusters, but start is {self.start!r}. Set "
            f"cluster.start to pac, or cluster.space to one of {', '.join(SPACES)}.",
        )


@dataclass(frozen=True)
class SelfLabelSettings(Training):
    """The third stage: confident pseudo-labels train a linear head on strong views.

    `labels` says whose they are: "memory" keeps the classifier's most confident ones of clean
    views, as TCL, which the paper follows; "classifier" takes those of the weak view at each step;
    "neighbours" takes the linear head's probabilities, smoothed over the kNN graph of the features
    every `refresh_epochs`.
    """

    confidence: Share = 0.95
    labels: Annotated[str, "memory", "classifier", "neighbours"] = "memory"
    refresh_epochs: Count = 5


@dataclass(frozen=True)
class Recipe(RecipeTable):
    """A complete recipe; `Recipe.of("cifar10/fast")` returns a named one.

    >>> recipe = Recipe.of("digits/fast").override(["cluster.m=1.05", "pretrain.epochs=3"])
    >>> recipe.cluster.m, recipe.pretrain.epochs
    (1.05, 3)
    >>> Recipe.from_toml(recipe.to_toml()) == recipe
    True
    >>> recipe.override(["cluster.mm=1.05"])
    Traceback (most recent call last):
        ...
    probagg.dpac.recipe.RecipeError: There is no key 'cluster.mm'. Did you mean 'cluster.m'?
    """

    name: str = "own"
    channels: int = 3
    decode_size: Count = 32  # pixels of the shorter side that photos are decoded to
    network: Architecture = field(default_factory=Architecture)
    views: ViewSettings = field(default_factory=ViewSettings)
    pretext: Pretext = field(default_factory=Pretext)
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    self_label: SelfLabelSettings = field(default_factory=SelfLabelSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.channels in (1, 3), f"channels is {self.channels}, but 1 or 3 is needed.")

    @classmethod
    def of(cls, name: str | PathLike[str]) -> Self:
        """Return a recipe by its name ("cifar10" is "cifar10/fast") or from a TOML file."""
        return cls.from_toml(_read(name))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Return the recipe of a TOML text; a key that is left out keeps its default.

        The key `base` names a recipe to start from instead of the defaults, or several, each of
        which replaces keys of those before it.
        """
        return _extend(cls(), _parse(text), [])

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
            return read_bytes(path, SETTINGS).decode()
    full = str(name) if "/" in str(name) else f"{name}/fast"
    if full in NAMES or full in PARTS:
        return read_bytes(FOLDER / f"{full}.toml").decode()
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
        recipe = _extend(recipe, _parse(_read(name)), [*within, name])
    return replace_all(recipe, values)


def _parse(text: str) -> dict[str, Any]:
    """Return the values of the text of a recipe."""
    try:
        return parse_toml(text)
    except ValueError as error:
        raise RecipeError(f"The recipe is not TOML: {first_line(error)}.") from error


def parse_setting(setting: str) -> dict[str, Any]:
    """Return "cluster.m=1.05" as nested values; a bare word is a string, as on a command line.

    >>> parse_setting("cluster.m=1.05"), parse_setting("pretext.task=moco")
    ({'cluster': {'m': 1.05}}, {'pretext': {'task': 'moco'}})
    """
    key, equals, text = setting.partition("=")
    if not equals:
        raise RecipeError(f"{setting!r} is not a setting: write key=value, as cluster.m=1.05.")
    try:
        value: Any = parse_toml(f"value = {text.strip()}")["value"]
    except ValueError:
        value = text.strip()
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return value


def merge(values: dict[str, Any], more: dict[str, Any]) -> None:
    """Add nested values in place.

    >>> values = {"cluster": {"m": 1.05}}
    >>> merge(values, {"cluster": {"epochs": 3}, "channels": 1})
    >>> values
    {'cluster': {'m': 1.05, 'epochs': 3}, 'channels': 1}
    """
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            merge(values[key], value)
        else:
            values[key] = value


def replace_all(instance: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """Return the dataclass with nested values replaced, their keys and types checked.

    What the dataclass itself refuses it names by the key alone; the prefix is added here.
    """
    hints = get_type_hints(type(instance))
    changes = {}
    for key, value in values.items():
        if key not in hints:
            meant = closest(key, list(hints))
            hint = (
                f"Did you mean {prefix + meant!r}?"
                if meant
                else f"The keys are {', '.join(hints)}."
            )
            raise RecipeError(f"There is no key {prefix + key!r}. {hint}")
        current = getattr(instance, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, dict):
                raise RecipeError(f"{prefix}{key} is {value!r}, but a table of keys is needed.")
            changes[key] = replace_all(current, value, f"{prefix}{key}.")
        else:
            changes[key] = _convert(value, hints[key], prefix + key)
    try:
        return dataclasses.replace(instance, **changes)
    except ValueError as error:
        raise RecipeError(f"{prefix}{error}") from error


def _convert(value: Any, hint: Any, key: str) -> Any:
    """Return the value as the field's type, where the conversion is exact."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and isinstance(value, list | tuple):
        many = len(arguments) == 2 and arguments[1] is Ellipsis
        if many or len(value) == len(arguments):
            inner = [arguments[0]] * len(value) if many else list(arguments)
            return tuple(_convert(v, h, key) for v, h in zip(value, inner, strict=True))
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= sys.float_info.max:  # an int may be larger
            return float(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    wanted = str(hint) if origin else hint.__name__
    raise RecipeError(f"{key} is {value!r}, but {wanted} is needed.")
