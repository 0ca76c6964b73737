"""Labeller: the whole computation of a run, from pixels or rows to clusters, as a torch module."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from probagg.app.embed.backbone import LITE, Backbone
from probagg.app.embed.joint import JointBackbone
from probagg.app.export.heads import Head, head_of
from probagg.app.export.inputs import BICUBIC, CleanView, Input, Normalised, filter_of
from probagg.app.export.reviewed import Division, Reviewed, checked_groups
from probagg.app.review import Split
from probagg.dpac.dpac import DPAC
from probagg.dpac.model import Model
from probagg.dpac.recipe import Recipe
from probagg.environment import environment
from probagg.errors import InputError
from probagg.opa.head import OPAHead
from probagg.pac.pac import PAC
from probagg.smoothing import Smoothing

FAR = 2.0**10  # spreads from zero, beyond which float32 keeps under four digits of a difference


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
        groups: Any,
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
    model: PAC | OPAHead | Smoothing | DPAC,
    backbone: Backbone | JointBackbone | None = None,
    groups: Any = None,
    splits: Sequence[Split] = (),
    *,
    size: tuple[int, int] | None = None,
) -> Labeller:
    """Return the labeller of a fitted or loaded model.

    Parameters
    ----------
    model : PAC, OPAHead, Smoothing or DPAC
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
    if not isinstance(model, PAC | OPAHead | Smoothing):
        raise InputError(
            f"The model is of type {type(model).__name__}; PAC, OPAHead, Smoothing and DPAC can be "
            "exported."
        )
    if size is not None:
        raise InputError("size is for DPAC only; others use the backbone's. Leave it out.")
    head = head_of(model)
    facts: dict[str, Any] = {"head": {"kind": head.kind, **head.settings}}
    if isinstance(backbone, JointBackbone):
        raise InputError(
            f"The run has {len(backbone.parts)} backbones ({backbone.name}), which cannot become "
            "part of one model. Export the clusters alone (--features): that model takes their "
            "features, each of length 1, side by side."
        )
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
    _warn_if_far(head)
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


def _pictures(backbone: Backbone) -> Input:
    """Return the input of a frozen backbone."""
    return Input(
        "images",
        (backbone.size, backbone.size, 3),
        backbone.resize,
        filter_of(backbone.transform),
        backbone.mean,
        backbone.std,
    )


def steps_of(takes: Input, body: nn.Module, head: nn.Module) -> dict[str, nn.Module]:
    """Return the steps of a labeller with a frozen backbone."""
    assert takes.mean is not None
    assert takes.std is not None
    return {"pixels": Normalised(takes.mean, takes.std), "backbone": body, "head": head}


def labeller_of_network(
    takes: Input, model: Model, recipe: Recipe, groups: Any, splits: Sequence[Division] = ()
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


def classify(model: DPAC, features: np.ndarray) -> np.ndarray:
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


def _warn_if_far(head: Head) -> None:
    if head.offset > FAR:
        warnings.warn(
            f"A column is {head.offset:.0f} times the data's spread away from zero, and the "
            "exported model takes float32, which rounds such values. Subtract a typical value from "
            "it and cluster again if small differences matter.",
            stacklevel=3,
        )
