"""Labeller: the whole computation of a run, from pixels or rows to clusters, as a torch module.

>>> from sklearn.datasets import load_digits
>>> X = load_digits().data
>>> labeller = labeller_of(PAC(10, random_state=0).fit(X))
>>> labeller(torch.tensor(X[:2], dtype=torch.float32)).shape
torch.Size([2, 10])
"""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from probagg.app.embed.backbone import LITE, Backbone
from probagg.app.export.heads import Division, Groups, Reviewed, checked_groups, head_of
from probagg.app.review import Split
from probagg.dpac.dpac import DPAC
from probagg.dpac.model import Model
from probagg.dpac.recipe import Recipe, ViewSettings
from probagg.dpac.views import Views
from probagg.environment import environment
from probagg.errors import InputError
from probagg.neighbours.smoothing import Smoothing
from probagg.pac.pac import PAC

# Spreads from zero: further away, float32 keeps less than four digits of a difference.
FAR = 2.0**10
BICUBIC = "bicubic"  # Pillow's, which does not alias


@dataclass(frozen=True)
class Input:
    """The input of a labeller: "images" (n, height, width, channels) or "features" (n, D).

    `shape` is that of one sample. The shorter side of a photo is scaled to `resize` by the
    resampling `filter` before the centre is cropped. `mean` and `std`, of pixels in 0..1, are
    applied by the model itself. `columns` are the names of the features, where known.
    """

    name: str
    shape: tuple[int, ...]
    resize: int | None = None
    filter: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    columns: tuple[str, ...] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The type: uint8 for images, float32 for features."""
        return torch.uint8 if self.name == "images" else torch.float32

    @property
    def words(self) -> str:
        """Description of the input, for users of the exported model."""
        if self.name == "features":
            columns = f": {', '.join(self.columns)}" if self.columns else ""
            return f"float32 rows (n, {self.shape[0]}), the columns that were clustered{columns}"
        height, width, channels = self.shape
        colours = "RGB" if channels == 3 else "grey"
        fitted = (
            f"fit it to {height} x {width} exactly as the run did"
            if self.resize is None
            else f"scale its shorter side to {self.resize} pixels ({self.filter}), crop the "
            f"central {height} x {width}"
        )
        return (
            f"uint8 {colours} pixels 0 to 255, (n, {height}, {width}, {channels}): turn a photo "
            f"upright (EXIF), {fitted}. The model itself normalises"
        )


class Labeller(nn.Module):
    """Probabilities (n, numbers) of a batch: normalisation, backbone, head, a person's review.

    Made by `labeller_of` or `load_exported`. It is on the CPU and shares no memory with the run's
    model. Column k is cluster k, of the run or added by the review. `clusters` are the numbers of
    those that a sample can be in; the columns of others, merged or split, are zero. `facts` and the
    weights are enough to rebuild it.
    """

    def __init__(
        self,
        takes: Input,
        steps: dict[str, nn.Module],
        n_clusters: int,
        groups: Groups,
        facts: dict[str, Any],
        splits: Sequence[Division] = (),
    ) -> None:
        super().__init__()
        groups = checked_groups(groups, n_clusters)
        self.takes = takes
        self.facts = {
            **facts,
            "n_clusters": n_clusters,
            "groups": groups.tolist(),
            "splits": [split.settings for split in splits],
        }
        self.steps = nn.Sequential(OrderedDict(steps))
        self.review = Reviewed(n_clusters, groups, splits)
        self.clusters = self.review.clusters
        self.eval().requires_grad_(False)

    def forward(self, batch: Tensor) -> Tensor:
        """Return the probability of each sample in each cluster, float32."""
        if batch.dtype != self.takes.dtype or batch.shape[1:] != self.takes.shape:
            raise InputError(
                f"The model got {batch.dtype} of shape {tuple(batch.shape)}; needed: "
                f"{self.takes.words}."
            )
        features = self.steps[:-1](batch)
        return self.review(self.steps[-1](features).float(), features)

    def examples(self, n: int) -> Tensor:
        """Return inputs to compare models on: smooth random pictures, or random rows."""
        generator = torch.Generator().manual_seed(n)
        if self.takes.name == "features":
            head: Any = self.steps.head
            return head.examples(n, generator)
        *size, channels = self.takes.shape
        coarse = torch.rand(n, channels, 5, 5, generator=generator)
        smooth = nn.functional.interpolate(coarse, tuple(size), mode="bilinear")
        return (255.0 * smooth).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()

    def describe(self, names: Sequence[str], description: str) -> dict[str, Any]:
        """Return the metadata of an exported file, ready for JSON; `names` are of all clusters."""
        names, n_clusters = list(names), len(self.facts["groups"])
        if len(names) != n_clusters or not all(isinstance(name, str) for name in names):
            raise InputError(
                f"names is {names}, but {n_clusters} strings are needed: one for each cluster, "
                "merged ones too, by its number."
            )
        return {
            "description": description,
            "names": names,
            "clusters": self.clusters,
            "preprocessing": self.takes.words,
            "input": asdict(self.takes),
            "model": self.facts,
            "versions": environment()["packages"],
        }


def labeller_of(
    model: PAC | Smoothing | DPAC,
    backbone: Backbone | None = None,
    groups: Groups = None,
    splits: Sequence[Split] = (),
    *,
    size: tuple[int, int] | None = None,
) -> Labeller:
    """Return the labeller of a fitted or loaded model.

    Parameters
    ----------
    model : PAC, Smoothing or DPAC
        A labeller takes features, and pixels with `backbone` or of DPAC.
    backbone : Backbone of `probagg.app.embed` or None
        The backbone that computed the features. Not for DPAC, which has its own network.
    groups : (K,) integers or None
        The cluster that each cluster is merged into, or itself, as `Review.groups` returns them
        (more than K where a review added clusters). Probabilities of merged clusters are summed.
    splits : sequence of `probagg.app.review.Split`
        The clusters that are divided into parts, by the features that the head gets.
    size : (height, width) or None
        Of the images passed to DPAC; None is the size that its recipe decodes photos to.
    """
    divisions = list(map(Division.of, splits))
    if isinstance(model, DPAC):
        if backbone is not None:
            raise InputError("DPAC has its own network. Leave the backbone out.")
        check_is_fitted(model, "model_")
        takes = _photos(model.recipe_, size)
        return labeller_of_network(takes, model.model_, model.recipe_, groups, divisions)
    if not isinstance(model, PAC | Smoothing):
        raise InputError(
            f"The model is of type {type(model).__name__}; PAC, Smoothing and DPAC can be exported."
        )
    if size is not None:
        raise InputError("size is for DPAC only; others use the backbone's. Leave it out.")
    head = head_of(model)
    facts: dict[str, Any] = {"head": {"kind": head.kind, **head.settings}}
    if backbone is not None:
        _check_backbone(backbone, model.n_features_in_)
        facts["backbone"] = {
            "name": backbone.name,
            "architecture": _architecture_of(backbone),
            "identity": backbone.identity,
        }
        body = copy.deepcopy(backbone.module).to("cpu", memory_format=torch.contiguous_format)
        takes = _pictures(backbone)
        steps = steps_of(takes, body, head)
        return Labeller(takes, steps, model.n_clusters, groups, facts, divisions)
    if head.offset > FAR:
        warnings.warn(
            f"A column is {head.offset:.0f} times the data's spread away from zero, and the "
            "exported model takes float32, which rounds such values. Subtract a typical value from "
            "it and cluster again if small differences matter.",
            stacklevel=2,
        )
    names = getattr(model, "feature_names_in_", None)
    columns = None if names is None else tuple(map(str, names))
    takes = Input("features", (int(model.n_features_in_),), columns=columns)
    return Labeller(takes, {"head": head}, model.n_clusters, groups, facts, divisions)


def _photos(recipe: Recipe, size: tuple[int, int] | None) -> Input:
    """Return the input of DPAC: photos at the recipe's size, or images of a given size."""
    height, width = size or (recipe.decode_size, recipe.decode_size)
    return Input(
        "images",
        (int(height), int(width), recipe.channels),
        None if size else recipe.decode_size,
        BICUBIC,
        recipe.views.mean,
        recipe.views.std,
    )


def _filter_of(transform: Any) -> str:
    """Return the resampling filter of a backbone's transform: torchvision's, or our bicubic."""
    steps = getattr(transform, "transforms", ())
    found = [step.interpolation for step in steps if hasattr(step, "interpolation")]
    return str(getattr(found[0], "value", found[0])) if found else BICUBIC


def _pictures(backbone: Backbone) -> Input:
    """Return the input of a frozen backbone."""
    return Input(
        "images",
        (backbone.size, backbone.size, 3),
        backbone.resize,
        _filter_of(backbone.transform),
        backbone.mean,
        backbone.std,
    )


class Normalised(nn.Module):
    """Normalise uint8 pixels (n, H, W, C) to a backbone's input (n, C, H, W)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            buffer = torch.tensor(values, dtype=torch.float32)[:, None, None]
            self.register_buffer(name, buffer, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return normalised pixels, float32."""
        return (pixels.permute(0, 3, 1, 2).float() / 255.0 - self.mean) / self.std


class CleanView(nn.Module):
    """DPAC's clean view, as a module."""

    def __init__(self, settings: ViewSettings) -> None:
        super().__init__()
        self.views = Views(settings)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return normalised pixels (n, C, size, size), float32."""
        return self.views.clean(pixels)


def steps_of(takes: Input, body: nn.Module, head: nn.Module) -> dict[str, nn.Module]:
    """Return the steps of a labeller with a frozen backbone."""
    assert takes.mean is not None
    assert takes.std is not None
    return {"pixels": Normalised(takes.mean, takes.std), "backbone": body, "head": head}


def labeller_of_network(
    takes: Input, model: Model, recipe: Recipe, groups: Groups, splits: Sequence[Division] = ()
) -> Labeller:
    """Return the labeller of DPAC's network: clean view, backbone, the head that predicts."""
    head = model.self_labeller if model.self_labelled else model.classifier
    steps = {
        "pixels": CleanView(recipe.views),
        "backbone": copy.deepcopy(model.backbone).cpu(),
        "head": nn.Sequential(copy.deepcopy(head).cpu(), nn.Softmax(1)),
    }
    facts = {
        "head": {
            "kind": "dpac",
            "n_clusters": int(model.n_clusters),
            "self_labelled": bool(model.self_labelled),
        },
        "recipe": recipe.to_toml(),
    }
    return Labeller(takes, steps, model.n_clusters, groups, facts, splits)


def head_probabilities(model: DPAC, features: np.ndarray) -> np.ndarray:
    """Return the probabilities (n, K) of a network from its features (n, D) of images."""
    head: Any = labeller_of(model).steps.head
    with torch.inference_mode():
        return head(torch.tensor(np.asarray(features))).numpy()


def _check_backbone(backbone: Backbone, n_features: int) -> None:
    if backbone.module is None or backbone.mean is None:
        why = "is an ONNX file" if backbone.module is None else "has its own transform"
        raise InputError(
            f"The backbone {backbone.name} {why}, which cannot become part of the model. Export "
            "the clusters alone (--features): that model takes the backbone's features."
        )
    if backbone.n_features != n_features:
        raise InputError(
            f"The backbone {backbone.name} has {backbone.n_features} features, but the clusters "
            f"were found on {n_features}. Pass the backbone of the run."
        )


def _architecture_of(backbone: Backbone) -> str | None:
    """Return the name from which the network can be rebuilt; None for a user's own code."""
    if backbone.name == LITE:
        return LITE
    config = getattr(backbone.module.network, "pretrained_cfg", None) or {}
    return config.get("architecture")
