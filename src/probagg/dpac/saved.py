"""A trained network with its recipe, as one safetensors file or a folder of small ones."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from probagg.dpac.checkpoint import export_compact, load_compact
from probagg.dpac.model import Model, build_model
from probagg.dpac.recipe import Recipe
from probagg.errors import InputError
from probagg.storage import read_safetensors, write_atomically, write_safetensors

FORMAT = "probagg.dpac/1"


def save_model(
    model: Model, recipe: Recipe, path: str | PathLike[str], *, compact: bool = False
) -> None:
    """Write a model to a file, or with `compact` to a folder of weights in bfloat16."""
    description = {"n_clusters": model.n_clusters, "recipe": recipe.to_toml()}
    tensors = model.state_dict()
    if compact:
        export_compact(tensors, Path(path))
        write_atomically(Path(path) / "model.json", json.dumps(description).encode())
    else:
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        write_safetensors(path, FORMAT, arrays, description)


def load_model(path: str | PathLike[str]) -> tuple[Model, Recipe]:
    """Return the model that `save_model` wrote, on the CPU, and its recipe."""
    if Path(path).is_dir():
        tensors, description = _read_compact(Path(path))
    else:
        arrays, description = read_safetensors(path, FORMAT)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    recipe = Recipe.from_toml(description["recipe"], saved=True)
    model = build_model(recipe.override(["network.pretrained=false"]), description["n_clusters"])
    load_weights(model, tensors, path)
    return model, recipe


def load_weights(model: Model, tensors: dict[str, Tensor], path: str | PathLike[str]) -> None:
    """Load saved weights into a model; every one must be there and fit."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise InputError(
            f"The weights in {path} do not fit its recipe ({reason}). If files of two models were "
            "mixed, copy one whole model there again."
        ) from error


def _read_compact(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError

    try:
        found = json.loads((folder / "model.json").read_text())
        description = {"n_clusters": int(found["n_clusters"]), "recipe": str(found["recipe"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder / 'model.json'} is missing or damaged. Copy the whole model there again."
        ) from error
    try:
        return load_compact(folder), description
    except SafetensorError as error:
        raise InputError(
            f"A weights file in {folder} is damaged ({error}). Copy the whole model there again."
        ) from error
