"""A labeller as a safetensors file: its weights, and beside them all that rebuilds it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from probagg.dpac.model import build_model
from probagg.dpac.recipe import Recipe
from probagg.embed.networks import Pooled
from probagg.embed.opening import LITE
from probagg.embed.pretrained import SIZES
from probagg.errors import InputError
from probagg.export.heads import OPANetwork, PACHead
from probagg.export.inputs import Input
from probagg.export.labeller import Labeller, labeller_of_network, steps_of
from probagg.storage import read_safetensors, write_safetensors

FORMAT = "probagg.labeller/1"
TOLERANCE = 1e-4  # of features, beside the largest


def export_safetensors(
    labeller: Labeller, path: str | PathLike[str], *, names: Sequence[str], description: str
) -> None:
    """Write the labeller's weights and, as JSON beside them, names, preprocessing and architecture.

    `names` are the columns', one for each of `labeller.clusters`. `load_exported` reads the file;
    a network that could not be built again there is an error here.
    """
    facts = labeller.describe(names, description)
    weights = labeller.state_dict()
    _check_features(labeller, _filled(facts, weights), facts)
    write_safetensors(path, FORMAT, {k: t.numpy() for k, t in weights.items()}, facts)


def _check_features(labeller: Labeller, again: Labeller, facts: dict[str, Any]) -> None:
    """That a network of the same name and weights does the same to a picture."""
    batch = labeller.examples(1)
    with torch.inference_mode():
        expected, found = labeller.steps[:-1](batch), again.steps[:-1](batch)
    difference = float((found - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise _misfit(facts, f"its features differ by {100 * difference:.2g} %")


def load_exported(path: str | PathLike[str]) -> tuple[Labeller, dict[str, Any]]:
    """The labeller that `export_safetensors` wrote, and what the file says: "names" and others.

    Networks are rebuilt by name and filled from the file; nothing is downloaded.
    """
    arrays, facts = read_safetensors(path, FORMAT)
    weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return _filled(facts, weights), facts


def _filled(facts: dict[str, Any], weights: dict[str, Tensor]) -> Labeller:
    """The labeller of these facts and weights."""
    with torch.random.fork_rng(devices=[]):  # for weights that are replaced at once
        labeller = _rebuilt(facts["model"], facts["input"])
    try:
        labeller.load_state_dict(weights)
    except RuntimeError as error:
        raise _misfit(facts, str(error).splitlines()[1].strip()) from error
    return labeller


def _misfit(facts: dict[str, Any], problem: str) -> ValueError:
    name = facts["model"].get("backbone", {}).get("name", "DPAC")
    return ValueError(
        f"The network that is built for {name} is another one here, by its version or its options "
        f"({problem}). Export as ONNX, which holds the network too."
    )


def _rebuilt(model: dict[str, Any], values: dict[str, Any]) -> Labeller:
    """A labeller without its weights."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    takes = Input(**values)
    settings = dict(model["head"])
    kind, groups = settings.pop("kind"), model["groups"]
    if kind == "dpac":
        recipe = Recipe.from_toml(model["recipe"], saved=True)
        blank = recipe.override(["cluster.targets=online", "network.pretrained=false"])
        network = build_model(blank, settings["n_clusters"])
        network.self_labelled.fill_(settings["self_labelled"])
        return labeller_of_network(takes, network, recipe, groups)
    head = PACHead(**settings) if kind == "pac" else OPANetwork(**settings)
    steps: dict[str, nn.Module] = {"head": head}
    if "backbone" in model:
        steps = steps_of(takes, Pooled(_network(model["backbone"])), head)
    facts = {k: v for k, v in model.items() if k != "groups"}
    return Labeller(takes, steps, len(groups), groups, facts)


def _network(backbone: dict[str, Any]) -> nn.Module:
    """A backbone's network by its architecture, without weights."""
    name, architecture = backbone["name"], backbone["architecture"]
    if architecture is None:
        raise InputError(
            f"The backbone {name} is code of its own, which a file of weights cannot hold. Export "
            "as ONNX, which holds the network too."
        )
    if architecture == LITE:
        network = _package("efficientnet_lite_pytorch", "lite").EfficientNet.from_name(LITE)
        network._fc = nn.Identity()
        return network
    timm = _package("timm", "deep")
    if not timm.is_model(architecture):  # nor a name that would make timm look in the hub
        raise InputError(f"The timm that is installed has no {architecture}. Install a newer one.")
    options = {"img_size": SIZES[architecture]} if architecture in SIZES else {}
    return timm.create_model(architecture, pretrained=False, num_classes=0, **options)


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"This model needs {name}, which is not installed: pip install 'probagg[{extra}]'"
        ) from error
