"""A user's own network, named as module:function."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from probagg.app.embed.backbone import Backbone, BackboneError
from probagg.app.embed.networks import torch_backbone
from probagg.app.embed.preprocessing import Preprocessing
from probagg.errors import first_line
from probagg.storage import fingerprint


def function_backbone(name: str, device: str) -> Backbone:
    """Return the backbone of a function that returns a torch module, or (module, transform)."""
    function, source = _find(name)
    try:
        with torch.random.fork_rng(devices=[]):
            made = function()
    except Exception as error:  # a user's own code
        raise BackboneError(
            f"{name}() fails: {type(error).__name__}: {first_line(error)}"
        ) from error
    network, transform = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(network, nn.Module) or not (transform is None or callable(transform)):
        raise BackboneError(
            f"{name}() returns {_kinds(made)}, but a torch module is needed, or a pair of a module "
            "and a function from a Pillow image to a tensor (3, H, W)."
        )
    if transform is None:
        view = Preprocessing()
        facts = (name, source, view)
        return torch_backbone(name, network, view, facts=facts, device=device, **view.numbers())
    # Without addresses in memory; what a function does is in the digest of the source.
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(transform))
    return torch_backbone(name, network, transform, facts=(name, source, text), device=device)


def _find(name: str) -> tuple[Callable[[], Any], str]:
    """Return the function and a digest of its file; the current folder is searched too."""
    module_name, _, function_name = name.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's own code
        raise BackboneError(
            f"{module_name} of {name} cannot be imported: {type(error).__name__}: "
            f"{first_line(error)}. Install it, or run in the folder where "
            f"{module_name.partition('.')[0]}.py is (now {here})."
        ) from error
    finally:
        sys.path.remove(here)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise BackboneError(
            f"{module_name} has no function {function_name}. Write one without arguments that "
            "returns a torch module."
        )
    file = getattr(module, "__file__", None)
    text = Path(file).read_bytes() if file and file.endswith(".py") else b""
    return function, fingerprint([text], 16)


def _kinds(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in made) or 'nothing'}"
    return f"a {type(made).__name__}"
