"""A labeller as a safetensors file: its weights, with all that rebuilds it as metadata."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from probagg.app.embed.backbone import LITE
from probagg.app.embed.networks import Pooled
from probagg.app.embed.pretrained import SIZES
from probagg.app.export.heads import HEADS
from probagg.app.export.inputs import Input
from probagg.app.export.labeller import Labeller, labeller_of_network, steps_of
from probagg.app.export.reviewed import Division
from probagg.dpac.model import build_model
from probagg.dpac.recipe import Recipe
from probagg.errors import InputError, import_optional, reading
from probagg.storage import RESTORE, read_safetensors, to_safetensors

FORMAT = "probagg.labeller/2"
TOLERANCE = 1e-4  # of features, relative to the largest


def export_safetensors(labeller: Labeller, *, names: Sequence[str], description: str) -> bytes:
    """Return the bytes of a safetensors file: the labeller's weights and, as JSON, its metadata.

    `names[k]` is of cluster k and of column k. `load_exported` reads the file; a network that it
    could not rebuild is an error here.
    """
    facts = labeller.describe(names, description)
    weights = labeller.state_dict()
    _check_features(labeller, _filled(facts, weights), facts)
    return to_safetensors(FORMAT, {k: t.numpy() for k, t in weights.items()}, facts)


def _check_features(labeller: Labeller, again: Labeller, facts: dict[str, Any]) -> None:
    """Raise an error if the rebuilt network computes other features of a picture."""
    batch = labeller.examples(1)
    with torch.inference_mode():
        expected, found = labeller.steps[:-1](batch), again.steps[:-1](batch)
    difference = float((found - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise _misfit(facts, f"its features differ by {100 * difference:.2g} %")


def load_exported(path: str | PathLike[str]) -> tuple[Labeller, dict[str, Any]]:
    """Return the labeller that `export_safetensors` made, and its metadata ("names" and others).

    Networks are rebuilt by name, with the weights of the file; nothing is downloaded.
    """
    arrays, facts = read_safetensors(path, FORMAT)
    with reading(path, RESTORE):
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return _filled(facts, weights), facts


def _filled(facts: dict[str, Any], weights: dict[str, Tensor]) -> Labeller:
    """Return the labeller rebuilt from its metadata and weights."""
    with torch.random.fork_rng(devices=[]):  # the initial weights are replaced
        labeller = _rebuilt(facts["model"], facts["input"])
    try:
        labeller.load_state_dict(weights)
    except RuntimeError as error:
        raise _misfit(facts, str(error).splitlines()[1].strip()) from error
    return labeller


def _misfit(facts: dict[str, Any], problem: str) -> InputError:
    name = facts["model"].get("backbone", {}).get("name", "DPAC")
    return InputError(
        f"The network built here for {name} is a different one, because of its version or options "
        f"({problem}). Export as ONNX, which contains the network too."
    )


def _rebuilt(model: dict[str, Any], values: dict[str, Any]) -> Labeller:
    """Return a labeller without its weights."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    takes = Input(**values)
    if len(takes.shape) != {"images": 3, "features": 1}.get(takes.name):
        raise ValueError(f"its input is {takes.name!r:.40} of shape {takes.shape!r:.40}")
    settings = dict(model["head"])
    kind, groups = settings.pop("kind"), model["groups"]
    splits = [_blank(Division, split) for split in model["splits"]]
    if kind == "dpac":
        recipe = Recipe.from_toml(model["recipe"])
        blank = recipe.override(["network.pretrained=false"])
        network = build_model(blank, settings["n_clusters"])
        network.self_labelled.fill_(settings["self_labelled"])
        return labeller_of_network(takes, network, recipe, groups, splits)
    head = _blank(HEADS[kind], settings)
    steps: dict[str, nn.Module] = {"head": head}
    if "backbone" in model:
        steps = steps_of(takes, Pooled(_network(model["backbone"])), head)
    facts = {k: v for k, v in model.items() if k not in ("groups", "splits", "n_clusters")}
    return Labeller(takes, steps, model["n_clusters"], groups, facts, splits)


def _blank(kind: Any, settings: dict[str, Any]) -> Any:
    """Return a module without weights; a size that the file does not have is not written to."""
    with torch.device("meta"):
        module = kind(**settings)
    return module.to_empty(device="cpu")


def _network(backbone: dict[str, Any]) -> nn.Module:
    """Return a backbone's network by its architecture, without weights."""
    name, architecture = backbone["name"], backbone["architecture"]
    if architecture is None:
        raise InputError(
            f"The backbone {name} is a user's own code, which a file of weights cannot contain. "
            "Export as ONNX, which contains the network too."
        )
    if architecture == LITE:
        library = import_optional("efficientnet_lite_pytorch", "This model", "lite")
        network = library.EfficientNet.from_name(LITE)
        network._fc = nn.Identity()
        return network
    timm = import_optional("timm", "This model", "deep")
    if not timm.is_model(architecture):  # so that timm does not look in the hub
        raise InputError(f"The timm that is installed has no {architecture}. Install a newer one.")
    options = {"img_size": SIZES[architecture]} if architecture in SIZES else {}
    return timm.create_model(architecture, pretrained=False, num_classes=0, **options)
