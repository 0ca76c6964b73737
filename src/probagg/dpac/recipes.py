"""The named recipes: NAME/paper as printed, NAME/fast as we would run it. PAPER.md says why."""

from __future__ import annotations

import difflib
from typing import Any

from probagg.dpac.recipe import Recipe, RecipeError, replace_all

# Mean and deviation of the 0..1 pixels of each set, over all its images.
_PIXELS: dict[str, dict[str, tuple[float, ...]]] = {
    "cifar10": {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)},
    "cifar100-20": {"mean": (0.5071, 0.4865, 0.4409), "std": (0.2673, 0.2564, 0.2762)},
    "stl10": {"mean": (0.4467, 0.4398, 0.4066), "std": (0.2603, 0.2566, 0.2713)},
    "mnist": {"mean": (0.1309,), "std": (0.3084,)},
    "digits": {"mean": (0.3053,), "std": (0.3761,)},
}
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

_SIZES = {  # pixels of a view: the paper's, ours
    "cifar10": (32, 32),
    "cifar100-20": (32, 32),
    "stl10": (224, 96),
    "imagenet10": (224, 96),
    "imagenet-dogs": (224, 96),
    "mnist": (28, 28),
    "digits": (8, 8),
    "own": (224, 96),
}
SMALL = 64  # pixels; below, SimCLR has no blur, and images are stored as small as views
NAMES = tuple(f"{name}/{kind}" for name in _SIZES for kind in ("paper", "fast"))

_GREY = {"channels": 1, "views": {"flip": False, "grayscale": 0.0, "jitter": [0.0] * 4}}
_HANDWRITING = {
    "views": {
        "crop": [1.0, 1.0],
        "rotate": 15.0,
        "translate": 0.1,
        "scale": [0.8, 1.2],
        "shear": 15.0,
        "operations": ["Identity", "Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"],
        "clean_scale": 1.0,
    }
}
_AUTOENCODER = {
    "network": {"backbone": "mlp", "classifier": []},
    "pretext": {"task": "autoencoder", "views": ["weak"], "head": [2000, 500, 500]},
}
_FAST = {
    "network": {"backbone": "resnet18"},
    "views": {"grayscale": 0.1},
    "pretext": {"head": [1024, 128]},
    "pretrain": {
        "epochs": 500,
        "batch_size": 512,
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "weight_decay": 5e-4,
        "schedule": "cosine",
        "warmup_epochs": 10,
    },
    "cluster": {
        "epochs": 60,
        "batch_size": 1024,
        "optimizer": "sgd",
        "learning_rate": 0.005,
        "weight_decay": 5e-4,
        "schedule": "cosine",
        "metric": "cosine",
        "m": 1.02,
    },
    "self_label": {
        "epochs": 60,
        "batch_size": 1024,
        "optimizer": "sgd",
        "learning_rate": 0.005,
        "weight_decay": 5e-4,
        "schedule": "cosine",
    },
}
_CALM = {  # PAC's clusters of good features are refined; docs/cifar10.md has the measurements
    "cluster": {"start": "pac", "stratify": True, "balance": 0.5, "backbone_gradient": 0.01},
    "self_label": {"start": "classifier", "labels": "neighbours", "confidence": 0.98},
}
_FEW = {"pretrain": {"epochs": 800, "batch_size": 256}}  # 13,000 photos: 40,000 steps, not 12,500
_BY_DATA: dict[str, dict[str, Any]] = {  # otherwise than the other fast recipes
    "cifar10": {"network": {"backbone": "resnet34"}, "pretrain": {"epochs": 380}},
    "imagenet10": _FEW,
    "imagenet-dogs": _FEW,
    "own": _FEW,
}
_DIGITS_FAST: dict[str, Any] = {
    "network": {"backbone": "convnet", "width": 32, "classifier": [128]},
    "pretext": {"views": ["weak", "weak"], "head": [128, 64]},
    "pretrain": {
        "epochs": 100,
        "batch_size": 256,
        "optimizer": "adam",
        "learning_rate": 3e-3,
        "weight_decay": 0.0,
        "warmup_epochs": 2,
    },
    "cluster": {
        "epochs": 60,
        "batch_size": 256,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
    },
    "self_label": {
        "epochs": 40,
        "batch_size": 256,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
    },
}
_MNIST_FAST: dict[str, Any] = {
    "pretext": {"weight": 10.0},
    "pretrain": {
        "epochs": 30,
        "batch_size": 256,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "warmup_epochs": 1,
    },
    "cluster": {
        "epochs": 30,
        "batch_size": 512,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "metric": "sqeuclidean",
        "m": 1.03,
    },
    "self_label": {"epochs": 0},
}


def named(name: str) -> Recipe:
    """A recipe by its name; without /paper or /fast the fast one.

    >>> named("stl10/paper").network.backbone, named("stl10").network.backbone
    ('resnet34', 'resnet18')
    """
    full = name if "/" in name else f"{name}/fast"
    if full not in NAMES:
        close = difflib.get_close_matches(full, NAMES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        known = ", ".join(NAMES)
        raise RecipeError(f"There is no recipe {name!r}.{hint} There are {known}, or a .toml file.")
    data, _, kind = full.partition("/")
    size = _SIZES[data][kind == "fast"]
    recipe = Recipe(name=full, decode_size=size + size // 7 if size > SMALL else size)
    layers: list[dict[str, Any]] = [{"views": {"size": size, **_PIXELS.get(data, _IMAGENET)}}]
    if size > SMALL:
        layers.append({"views": {"blur": 0.5}})
    if kind == "fast":
        layers.append(_FAST)
    if data in ("mnist", "digits"):
        layers += [_GREY, _HANDWRITING]
    if data == "mnist":
        layers.append(_AUTOENCODER)
    if kind == "fast":
        layers.append({"mnist": _MNIST_FAST, "digits": _DIGITS_FAST}.get(data, _CALM))
        layers.append(_BY_DATA.get(data, {}))
    for layer in layers:
        recipe = replace_all(recipe, layer)
    return recipe


def adapt(recipe: Recipe, channels: int, size: tuple[int, int]) -> Recipe:
    """The recipe for images of another kind: their channels, and for `own` their size if smaller.

    A grey image has no colours to change and one mean.
    """
    changes: dict[str, Any] = {}
    if channels != recipe.channels:
        grey = channels == 1
        mean, std = recipe.views.mean, recipe.views.std
        changes["channels"] = channels
        changes["views"] = {
            "mean": [sum(mean) / len(mean)] * channels,
            "std": [sum(std) / len(std)] * channels,
            **({"grayscale": 0.0} if grey else {}),
        }
    if recipe.name.partition("/")[0] == "own" and max(size) < recipe.views.size:
        changes.setdefault("views", {})["size"] = max(size)
        if max(size) <= SMALL:
            changes["views"]["blur"] = 0.0
    return replace_all(recipe, changes)
