"""Checkpoints: written whole or not at all, checked when read, the last two kept."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probagg.errors import InputError
from probagg.progress import logger

KEPT = 2
_TENSORS, _DESCRIPTION = "state.safetensors", "state.json"
_PARTS = "weights-*-of-*.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a moment of training, and what they belong to."""

    tensors: dict[str, Tensor]
    description: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix`, without it."""
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


def save_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write `folder/step-N` and drop all but the last two."""
    from safetensors.torch import save

    path, temporary = folder / f"step-{step}", folder / f".step-{step}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    data = save({name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()})
    (temporary / _TENSORS).write_bytes(data)
    sealed = {**checkpoint.description, "sha256": hashlib.sha256(data).hexdigest()}
    (temporary / _DESCRIPTION).write_text(json.dumps(sealed, indent=2))
    if path.exists():  # a stage may end at a step that was saved: keep that until this is in place
        before = folder / f"step-{step}~"
        shutil.rmtree(before, ignore_errors=True)
        os.replace(path, before)
    os.replace(temporary, path)
    for old in [*_newest_first(folder)[KEPT:], *folder.glob("*~"), *folder.glob(".step-*.tmp")]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None. A damaged one is passed over, and said."""
    from safetensors.torch import load

    for path in _newest_first(folder):
        try:
            description = json.loads((path / _DESCRIPTION).read_text())
            data = (path / _TENSORS).read_bytes()
            if hashlib.sha256(data).hexdigest() != description.pop("sha256"):
                raise InputError("its checksum is wrong")
            return Checkpoint(load(data), description)
        except (OSError, ValueError, KeyError) as error:
            logger.warning("%s is damaged (%s); the one before it is used.", path, error)
    return None


def _newest_first(folder: Path) -> list[Path]:
    """By step; of two with one step the one with "~" is the older."""

    def age(path: Path) -> tuple[int, bool]:
        number = path.name.removeprefix("step-")
        return int(number.rstrip("~")), not number.endswith("~")

    found = [p for p in folder.glob("step-*") if p.name.removeprefix("step-").rstrip("~").isdigit()]
    return sorted(found, key=age, reverse=True)


def read_description(folder: Path) -> dict[str, Any] | None:
    """What the newest checkpoint belongs to, without its tensors."""
    for path in _newest_first(folder):
        try:
            return json.loads((path / _DESCRIPTION).read_text())
        except (OSError, ValueError):
            continue
    return None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimiser's state as named tensors: "3.momentum_buffer" of the third parameter."""
    states = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": value
        for index, state in states.items()
        for name, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave, laid out in memory as the parameters are."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition(".")
        parameter = parameters[int(index)]
        if value.shape == parameter.shape:  # fused optimisers refuse other strides
            value = torch.empty_like(parameter).copy_(value)
        states.setdefault(int(index), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def weights_hash(module: nn.Module) -> str:
    """A digest of every weight and buffer: equal only if all bits are."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def export_compact(tensors: dict[str, Tensor], folder: Path, part_mib: float = 15.0) -> list[Path]:
    """Weights rounded to bfloat16 in files of at most `part_mib`: small enough to carry about.

    Integers stay what they are. One tensor larger than that has a file to itself.
    """
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(_PARTS):
        old.unlink()
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        floating = tensor.is_floating_point()
        tensor = tensor.detach().cpu().to(torch.bfloat16 if floating else tensor.dtype)
        size += tensor.nbytes
        if size > part_mib * 2**20 and parts[-1]:
            parts.append({})
            size = tensor.nbytes
        parts[-1][name] = tensor.contiguous()
    paths = [folder / f"weights-{i + 1}-of-{len(parts)}.safetensors" for i in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(save(part))  # save_file would let only the owner read it
    return paths


def load_compact(folder: Path) -> dict[str, Tensor]:
    """Read back an export; every part must be there."""
    from safetensors.torch import load_file

    paths = sorted(folder.glob(_PARTS))
    wanted = paths[0].stem.rpartition("-of-")[2] if paths else "the"
    if str(len(paths)) != wanted:
        raise InputError(
            f"{folder} holds {len(paths)} of {wanted} weights files. Copy all of one export there."
        )
    return {name: tensor for path in paths for name, tensor in load_file(path).items()}
