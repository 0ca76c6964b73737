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

from probagg.dpac.estimator import DPAC
from probagg.dpac.model import Model
from probagg.dpac.recipe import Recipe
from probagg.embed.backbone import LITE, Backbone
from probagg.environment import environment
from probagg.errors import InputError
from probagg.export.heads import OPANetwork, PACHead
from probagg.export.inputs import BICUBIC, CleanView, Input, Normalised, filter_of
from probagg.opa.head import OPAHead
from probagg.pac.estimator import PAC

FAR = 2.0**10  # spreads from zero, beyond which float32 keeps under four digits of a difference


class Labeller(nn.Module):
    """Probabilities (n, K) of a batch: normalisation, backbone, head, merged clusters.

    Made by `labeller_of` or `load_exported`. It is on the CPU and shares no memory with the run's
    model. Column k is cluster k of the run; the column of a cluster that is merged into another is
    zero. `clusters` are the numbers of those that remain. `facts` and the weights are enough to
    rebuild it.
    """

    merge: Tensor

    def __init__(
        self,
        takes: Input,
        steps: dict[str, nn.Module],
        n_clusters: int,
        groups: Any,
        facts: dict[str, Any],
    ) -> None:
        super().__init__()
        groups = checked_groups(groups, n_clusters)
        self.takes = takes
        self.clusters: list[int] = np.unique(groups).tolist()
        self.facts = {**facts, "groups": groups.tolist()}
        self.steps = nn.Sequential(OrderedDict(steps))
        merge = groups[:, None] == np.arange(n_clusters)
        self.register_buffer("merge", torch.tensor(merge, dtype=torch.float32), persistent=False)
        self.eval().requires_grad_(False)

    def forward(self, batch: Tensor) -> Tensor:
        """Return the probability of each sample in each cluster, float32."""
        if batch.dtype != self.takes.dtype or batch.shape[1:] != self.takes.shape:
            raise InputError(
                f"The model got {batch.dtype} of shape {tuple(batch.shape)}; needed: "
                f"{self.takes.words}."
            )
        return self.steps(batch).float() @ self.merge

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
        names, n_clusters = list(names), self.merge.shape[1]
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
    model: PAC | OPAHead | DPAC,
    backbone: Backbone | None = None,
    groups: Any = None,
    *,
    size: tuple[int, int] | None = None,
) -> Labeller:
    """Return the labeller of a fitted or loaded model.

    Parameters
    ----------
    model : PAC, OPAHead or DPAC
        The labeller of PAC or OPAHead takes features; with `backbone` it takes pixels.
    backbone : Backbone of `probagg.embed` or None
        The backbone that computed the features. Not for DPAC, which has its own network.
    groups : (K,) integers or None
        The cluster that each cluster is merged into, or itself, as `Review.groups` returns them.
        Probabilities of merged clusters are summed.
    size : (height, width) or None
        Of the images passed to DPAC; None is the size that its recipe decodes photos to.
    """
    if isinstance(model, DPAC):
        if backbone is not None:
            raise InputError("DPAC has its own network. Leave the backbone out.")
        check_is_fitted(model, "model_")
        takes = _photos(model.recipe_, size)
        return labeller_of_network(takes, model.model_, model.recipe_, groups)
    if not isinstance(model, PAC | OPAHead):
        raise InputError(
            f"The model is of type {type(model).__name__}; PAC, OPAHead and DPAC can be exported."
        )
    if size is not None:
        raise InputError("size is for DPAC only; PAC and OPAHead use the backbone's. Leave it out.")
    head = PACHead.of(model) if isinstance(model, PAC) else OPANetwork.of(model)
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
        return Labeller(takes, steps_of(takes, body, head), model.n_clusters, groups, facts)
    _warn_if_far(head)
    names = getattr(model, "feature_names_in_", None)
    columns = None if names is None else tuple(map(str, names))
    takes = Input("features", (int(model.n_features_in_),), columns=columns)
    return Labeller(takes, {"head": head}, model.n_clusters, groups, facts)


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


def labeller_of_network(takes: Input, model: Model, recipe: Recipe, groups: Any) -> Labeller:
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
    return Labeller(takes, steps, model.n_clusters, groups, facts)


def classify(model: DPAC, features: np.ndarray) -> np.ndarray:
    """Return the probabilities (n, K) of a network from its features (n, D) of images."""
    head: Any = labeller_of(model).steps.head
    with torch.inference_mode():
        return head(torch.tensor(np.asarray(features))).numpy()


def checked_groups(groups: Any, n_clusters: int) -> np.ndarray:
    """Return the cluster each of the K is merged into, itself by default, or raise an error."""
    found = np.arange(n_clusters) if groups is None else np.asarray(groups)
    if (
        found.shape != (n_clusters,)
        or found.dtype.kind not in "iu"
        or not np.isin(found, np.arange(n_clusters)).all()
        or (found[found] != found).any()
    ):
        raise InputError(
            f"groups is {groups}, but {n_clusters} integers are needed: for each cluster the one "
            "it is merged into, or itself. A cluster that others are merged into must remain."
        )
    return found


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


def _warn_if_far(head: PACHead | OPANetwork) -> None:
    if head.offset > FAR:
        warnings.warn(
            f"A column is {head.offset:.0f} times the data's spread away from zero, and the "
            "exported model takes float32, which rounds such values. Subtract a typical value from "
            "it and cluster again if small differences matter.",
            stacklevel=3,
        )
