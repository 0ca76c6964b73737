"""Checkpoints: written whole or not at all, verified when read, the last two kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from probagg.environment import package_versions
from probagg.errors import InputError, ProbaggError
from probagg.progress import logger
from probagg.storage import find_files, read_safetensors, remove_files, write_safetensors

KEPT = 2
FORMAT = "probagg.checkpoint/1"
# All that is ever removed from a folder of checkpoints; of the second kind is what a kill leaves.
CHECKPOINT_FILES = ("step-*.safetensors", ".step-*.safetensors.*.tmp")


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
    """Write `folder/step-N.safetensors`, delete all but the last two, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step}.safetensors"
    arrays = {name: t.detach().cpu().numpy() for name, t in checkpoint.tensors.items()}
    write_safetensors(path, FORMAT, arrays, checkpoint.description)
    old = [path.name for path in _newest_first(folder)[KEPT:]]
    remove_files(folder, (*old, *CHECKPOINT_FILES[1:]))
    return path


def read_checkpoint(folder: Path) -> TrainingState | None:
    """Return the newest undamaged checkpoint, or None where there is none.

    A damaged one is logged and skipped. Where all are damaged, training would start from the
    beginning and replace them: that is an error, so that a person decides.
    """
    damaged = []
    for path in _newest_first(folder):
        try:
            arrays, description = read_safetensors(path, FORMAT)
        except (InputError, OSError) as error:
            damaged.append(str(error))
            logger.warning("%s", error)
        else:
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            return TrainingState(tensors, description)
    if damaged:
        raise CannotResume(
            f"No checkpoint can be used. {damaged[0]} Or start from the beginning with --resume "
            "never."
        )
    return None


def _newest_first(folder: Path) -> list[Path]:
    """Return checkpoints by step, but no links: a folder from others may have one to another."""
    found = (folder / name for name in find_files(folder, CHECKPOINT_FILES[:1]))
    steps = {path: path.stem.removeprefix("step-") for path in found if not path.is_symlink()}
    steps = {path: step for path, step in steps.items() if step.isdecimal()}
    return sorted(steps, key=lambda path: int(steps[path]), reverse=True)


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
