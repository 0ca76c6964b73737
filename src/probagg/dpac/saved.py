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
from probagg.errors import InputError, reading
from probagg.storage import (
    RESTORE,
    checksum,
    read_bytes,
    read_safetensors,
    seal,
    unseal,
    write_atomically,
    write_safetensors,
)

FORMAT = "probagg.dpac/1"
AGAIN = "Copy the whole model there again."


def save_model(
    model: Model, recipe: Recipe, path: str | PathLike[str], *, compact: bool = False
) -> None:
    """Write a model to a file, or with `compact` to a folder of weights in bfloat16."""
    description: dict[str, Any] = {"n_clusters": model.n_clusters, "recipe": recipe.to_toml()}
    tensors = model.state_dict()
    if compact:
        parts = export_compact(tensors, Path(path))
        description["weights"] = {part.name: checksum(part) for part in parts}
        write_atomically(Path(path) / "model.json", json.dumps(seal(description)).encode())
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
    with reading(path, RESTORE):
        recipe = Recipe.from_toml(description["recipe"], saved=True)
        blank, n_clusters = recipe.override(["network.pretrained=false"]), description["n_clusters"]
        with torch.device("meta"):  # which takes no memory, however large the sizes are
            expected = build_model(blank, n_clusters).state_dict()
        _check_sizes(expected, tensors, path)
        model = build_model(blank, n_clusters)
        load_weights(model, tensors, path)
    return model, recipe


def _check_sizes(expected: dict[str, Tensor], tensors: dict[str, Tensor], path: Any) -> None:
    """Raise unless the tensors have the names and sizes of a network, and finite values."""
    for name in sorted({*expected, *tensors}):
        sizes = [tuple(t[name].shape) if name in t else None for t in (expected, tensors)]
        if sizes[0] != sizes[1]:
            raise _misfit(path, f"{name} is of size {sizes[1]}, not {sizes[0]}")
        if not torch.isfinite(tensors[name]).all():
            raise _misfit(path, f"{name} has values that are not finite")


def _misfit(path: Any, reason: str) -> InputError:
    return InputError(
        f"The weights in {path} do not fit its recipe ({reason}). If files of two models were "
        "mixed, copy one whole model there again."
    )


def load_weights(model: Model, tensors: dict[str, Tensor], path: str | PathLike[str]) -> None:
    """Load saved weights into a model; every one must be there and fit."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise _misfit(path, str(error).strip().splitlines()[-1].strip()) from error


def _read_compact(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    path = folder / "model.json"
    if not path.is_file():
        raise InputError(f"{path} is missing. {AGAIN}")
    with reading(path, AGAIN):
        description = unseal(json.loads(read_bytes(path)))
        expected = dict(description.pop("weights", {}))  # earlier versions had no checksums
    return load_compact(folder, expected), description
