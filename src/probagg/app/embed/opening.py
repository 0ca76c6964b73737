"""Open a backbone by name; PyTorch is loaded only then, with `networks`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from probagg.app.embed.backbone import DEFAULT, LITE, Backbone, BackboneError
from probagg.environment import keep_memory
from probagg.errors import missing

_WEIGHTS = {".safetensors", ".pth", ".pt", ".bin", ".ckpt"}
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def open_backbone(
    name: str = DEFAULT, weights: str | Path | None = None, device: str = "auto"
) -> Backbone:
    """Return the frozen network of that name, ready to turn pictures into features.

    A name is any timm model, "efficientnet-lite0" (weights from a package), the path of a folder in
    the format of timm's hub, or "module:function". `weights` is a file for a timm model instead of
    the download. `device` is auto, cpu, cuda, cuda:1 or mps.

    >>> backbone = open_backbone("efficientnet-lite0", device="cpu")
    >>> backbone.n_features, backbone.size
    (1280, 224)
    """
    keep_memory()
    path = Path(name).expanduser()
    if path.suffix.lower() in _WEIGHTS:
        raise BackboneError(
            f"{name} is a file of weights, which does not name its network. Pass both: "
            f"--backbone NAME --weights {name}"
        )
    if weights is not None and (name == LITE or _is_function(name)):
        raise BackboneError(f"{name} has its own weights. Leave out --weights {weights}.")
    if name == LITE:
        return _networks().lite_backbone(device)
    if _is_function(name):
        return _networks().function_backbone(name, device)
    if _is_folder(path):
        name = f"local-dir:{path.resolve()}"
    return _networks().timm_backbone(name, weights, device)


def reopen_backbone(
    spec: Mapping[str, str], device: str = "auto", *, trust_code: bool = False
) -> Backbone:
    """Return the backbone that `spec()` described, or raise where it has changed since.

    A spec is read from a file that a stranger may have written, so a "module:function" in it is
    imported and called, and a model of a folder or of somebody's hub page loaded, only with
    `trust_code`.
    """
    if not trust_code:
        _check_trusted(spec["backbone"])
    backbone = open_backbone(spec["backbone"], spec.get("weights"), device)
    if backbone.identity != spec.get("identity", backbone.identity):
        raise BackboneError(
            f"{backbone.name} has changed since the run was made: the digest of its weights and "
            f"preprocessing is {backbone.identity}, not {spec['identity']}. Restore the old ones, "
            "or cluster again."
        )
    return backbone


def _check_trusted(name: str) -> None:
    """Raise unless a name that a run gives is that of a known network."""
    if _is_function(name):
        what = "which is Python code that would be imported and run"
    elif _is_place(name):
        what = "a folder or a page of a hub from which a network would be loaded"
    else:
        return
    raise BackboneError(
        f"The run names {name} as its backbone, {what}. If you trust whoever made the run, pass "
        "--trust-code (trust_code=True)."
    )


def _is_place(name: str) -> bool:
    """Say whether timm would take a network from where the name points: a folder, hf-hub:, ..."""
    return any(sign in name for sign in ":/\\~") or _is_folder(Path(name))


def _is_folder(path: Path) -> bool:
    return (path / "config.json").is_file()


def _is_function(name: str) -> bool:
    return _FUNCTION.fullmatch(name) is not None


def _networks() -> ModuleType:
    """Import the module that needs PyTorch, only when it is used."""
    try:
        return importlib.import_module("probagg.app.embed.networks")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing("A backbone", "torch", "deep") from error
