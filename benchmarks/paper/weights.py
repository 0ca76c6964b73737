"""Weights of a network in bfloat16, in files of 15 MiB at most: small enough to copy and keep."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from probagg.dpac.model import Model
from probagg.dpac.recipe import Recipe

PART = 15 * 2**20  # bytes of a file, unless a single tensor has more
FILES = "weights-*-of-*.safetensors"


def write_weights(model: Model, recipe: Recipe, folder: Path, part: int = PART) -> None:
    """Write the weights, rounded to bfloat16, and the recipe; integers stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(FILES):
        old.unlink()
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in model.state_dict().items():
        kind = torch.bfloat16 if tensor.is_floating_point() else tensor.dtype
        tensor = tensor.detach().cpu().to(kind).contiguous()
        size += tensor.nbytes
        if size > part and parts[-1]:
            parts.append({})
            size = tensor.nbytes
        parts[-1][name] = tensor
    for i, tensors in enumerate(parts, start=1):
        (folder / f"weights-{i}-of-{len(parts)}.safetensors").write_bytes(save(tensors))
    description = {"n_clusters": model.n_clusters, "recipe": recipe.to_toml()}
    (folder / "model.json").write_text(json.dumps(description))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights that `write_weights` wrote; a missing file is an error."""
    paths = sorted(folder.glob(FILES))
    if not paths or len(paths) != int(paths[0].stem.rpartition("-")[2]):
        raise ValueError(f"{folder} holds {len(paths)} files of weights, which are not all.")
    return {name: tensor for path in paths for name, tensor in load_file(path).items()}
