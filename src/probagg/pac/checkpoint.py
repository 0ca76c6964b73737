"""The state of a fit in parts, saved after each sweep so that an interrupted fit can resume."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.aggregation import Array
from probagg.errors import InputError, reading
from probagg.pac.frame import is_tensor
from probagg.storage import read_safetensors, write_safetensors

FORMAT = "probagg.pac-checkpoint/1"


class Checkpoint:
    """One file: the sums of every part, the objectives so far, the seed, and which fit it is of.

    Without a path nothing is saved.
    """

    def __init__(self, path: str | PathLike[str] | None, seed: int) -> None:
        self.path, self.seed = None if path is None else Path(path), seed
        self.state: np.ndarray | None = None
        self.history: list[float] = []
        self.block = 0
        self.identity: dict[str, Any] = {}
        if self.path is not None and self.path.exists():
            tensors, found = read_safetensors(self.path, FORMAT)
            with reading(self.path, "Delete it to start over."):
                self.state, self.history = tensors["state"], [float(J) for J in found["history"]]
                self.block, self.seed = int(found["block"]), int(found["seed"])
                self.identity = dict(found["identity"])

    def match(self, identity: dict[str, Any]) -> None:
        """Raise an error if the file is of a fit with other settings or other data."""
        for name, value in identity.items():
            if self.state is not None and self.identity.get(name) != value:
                raise InputError(
                    f"{self.path} was written by another fit: its {name} is "
                    f"{self.identity.get(name)}, not {value}. Delete it, or pass another path as "
                    "checkpoint."
                )
        self.identity = identity

    def write(self, state: Array, block: int, history: list[float]) -> None:
        """Save the state after a sweep, in place of the one before."""
        if self.path is not None:
            arrays = {"state": state.cpu().numpy() if is_tensor(state) else state}
            description = {"identity": self.identity, "history": history, "seed": self.seed}
            description["block"] = block
            write_safetensors(self.path, FORMAT, arrays, description)

    def delete(self) -> None:
        """Remove the file of a fit that has ended."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
