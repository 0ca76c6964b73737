"""Checkpoints: written whole or not at all, verified when read, the last two kept."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from probagg.environment import package_versions
from probagg.errors import InputError, ProbaggError, first_line, reading
from probagg.progress import logger
from probagg.storage import (
    SETTINGS,
    find_files,
    move,
    read_bytes,
    remove_files,
    seal,
    sync_all,
    unseal,
    write_file,
)

KEPT = 2
_TENSORS, _DESCRIPTION = "state.safetensors", "state.json"
CHECKPOINT_FILES = tuple(  # all that is ever removed from a folder of checkpoints
    f"{step}/{file}" for step in ("step-*", ".step-*.tmp") for file in (_TENSORS, _DESCRIPTION)
)


class CannotResume(ProbaggError, RuntimeError):
    """A checkpoint belongs to another run."""

    exit_code = 2


@dataclass(frozen=True)
class TrainingState:
    """The tensors of a step of training, and a description of the run they belong to."""

    tensors: dict[str, Tensor]
    description: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `prefix`, by the rest of their names."""
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


def save_checkpoint(folder: Path, step: int, checkpoint: TrainingState) -> Path:
    """Write `folder/step-N`, delete all but the last two, and return its path."""
    from safetensors.torch import save

    path, temporary = folder / f"step-{step}", folder / f".step-{step}.tmp"
    _remove(temporary)
    temporary.mkdir(parents=True, exist_ok=True)
    data = save({name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()})
    write_file(temporary / _TENSORS, data)
    digest = hashlib.sha256(data).hexdigest()
    sealed = seal({**checkpoint.description, "sha256": digest})
    write_file(temporary / _DESCRIPTION, json.dumps(sealed, indent=2).encode())
    sync_all(temporary)
    if path.exists():  # a stage may end at a saved step: keep it until the new one is there
        before = folder / f"step-{step}~"
        _remove(before)
        move(path, before)
    move(temporary, path)
    for old in [*_newest_first(folder)[KEPT:], *folder.glob("*~"), *folder.glob(".step-*.tmp")]:
        _remove(old)
    return path


def _remove(path: Path) -> None:
    """Remove a checkpoint, but no other file that somebody put there."""
    files = (f"{path.name}/{file}" for file in (_TENSORS, _DESCRIPTION))
    remove_files(path.parent, find_files(path.parent, files))


def read_checkpoint(folder: Path) -> TrainingState | None:
    """Return the newest undamaged checkpoint, or None where there is none.

    A damaged one is logged and skipped. Where all are damaged, training would start from the
    beginning and replace them: that is an error, so that a person decides.
    """
    from safetensors.torch import load

    damaged = []
    for path in _newest_first(folder):
        try:
            with reading(path, "Remove it."):
                description = _description(path)
                data = read_bytes(path / _TENSORS)
                if hashlib.sha256(data).hexdigest() != description.pop("sha256"):
                    raise InputError("its checksum is wrong")
                return TrainingState(load(data), description)
        except (InputError, OSError) as error:
            damaged.append(f"{path} is damaged ({first_line(error)})")
            logger.warning("%s.", damaged[-1])
    if damaged:
        raise CannotResume(
            f"No checkpoint can be used: {damaged[0]}. Restore one from a copy, or start from the "
            "beginning with --resume never."
        )
    return None


def _description(path: Path) -> dict[str, Any]:
    """Return the checked description of a checkpoint."""
    return unseal(json.loads(read_bytes(path / _DESCRIPTION, SETTINGS)))


def _newest_first(folder: Path) -> list[Path]:
    """Return checkpoints by step; of two with the same step, the one with "~" is the older."""

    def age(path: Path) -> tuple[int, bool]:
        number = path.name.removeprefix("step-")
        return int(number.rstrip("~")), not number.endswith("~")

    found = {folder / name.partition("/")[0] for name in find_files(folder, CHECKPOINT_FILES)}
    found = {p for p in found if p.name.removeprefix("step-").rstrip("~").isdecimal()}
    return sorted(found, key=age, reverse=True)


def read_description(folder: Path) -> dict[str, Any] | None:
    """Return the description of the newest checkpoint, without its tensors, or None."""
    for path in _newest_first(folder):
        try:
            with reading(path, "Remove it."):
                return _description(path)
        except (InputError, OSError):
            continue
    return None


def check_identity(description: dict[str, Any], now: dict[str, Any], out: Path | None) -> None:
    """Raise unless a checkpoint's description belongs to this run."""
    differences = _differences(description["identity"], now)
    if differences:
        raise CannotResume(
            f"The checkpoint in {out} belongs to another run: {'; '.join(differences)}. Use the "
            "same recipe, images and seed, another folder, or delete its checkpoints "
            "(--resume never)."
        )


def versions() -> dict[str, str]:
    """Return the versions that a checkpoint is written by."""
    packages = package_versions()
    return {name: packages[name] for name in ("probagg", "torch") if name in packages}


def warn_of_versions(description: dict[str, Any]) -> None:
    """Log which versions differ from those that wrote a checkpoint."""
    if changed := _differences(description.get("versions", {}), versions()):
        logger.warning("The run is resumed by other versions: %s.", "; ".join(changed))


def _differences(saved: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """Return where two descriptions differ, key by key."""
    found = []
    for key in sorted({*saved, *now}):
        a, b = saved.get(key), now.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key} was {a!r} and is {b!r}")
    return found


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimiser's state as named tensors: "3.momentum_buffer" is of parameter 3."""
    states = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": value
        for index, state in states.items()
        for name, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore what `optimizer_tensors` returned, with the memory layout of the parameters."""
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
