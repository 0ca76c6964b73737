"""Open a backbone by name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from probagg.app.embed.backbone import DEFAULT, LITE, Backbone, BackboneError
from probagg.app.embed.graphs import onnx_backbone
from probagg.app.embed.joint import JointBackbone
from probagg.environment import keep_memory
from probagg.errors import missing

_WEIGHTS = {".safetensors", ".pth", ".pt", ".bin", ".ckpt"}
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def open_backbone(
    name: str = DEFAULT, weights: str | Path | None = None, device: str = "auto"
) -> Backbone | JointBackbone:
    """Return the frozen network of that name, ready to turn pictures into features.

    A name is any timm model, "efficientnet-lite0" (weights from a package), the path of an .onnx
    file or of a folder in the format of timm's hub, or "module:function". `weights` is a file for a
    timm model instead of the download. `device` is auto, cpu, cuda, cuda:1 or mps. Several names
    with commas are one backbone of joined features.

    >>> backbone = open_backbone("efficientnet-lite0", device="cpu")
    >>> backbone.n_features, backbone.size
    (1280, 224)
    """
    keep_memory()
    names = names_in(name)
    if len(names) == 1:
        return _open_one(name, weights, device)
    if weights is not None:
        raise BackboneError(
            f"{name} are {len(names)} backbones, and --weights {weights} is a file for one. Leave "
            "it out, or name one backbone."
        )
    if len(set(names)) < len(names):
        raise BackboneError(f"{name} has the same backbone twice. Name each once.")
    return JointBackbone(tuple(_open_one(part, None, device) for part in names))


def names_in(name: str) -> list[str]:
    """Return the names of several backbones, with commas between them; a file may have one."""
    if "," not in name or Path(name).expanduser().exists():
        return [name]
    names = [part.strip() for part in name.split(",")]
    if not all(names):
        raise BackboneError(f"{name!r} has an empty name. Write --backbone NAME,NAME.")
    return names


def _open_one(name: str, weights: str | Path | None, device: str) -> Backbone:
    path = Path(name).expanduser()
    if path.suffix.lower() in _WEIGHTS:
        raise BackboneError(
            f"{name} is a file of weights, which does not name its network. Pass both: "
            f"--backbone NAME --weights {name}"
        )
    if weights is not None and (name == LITE or path.suffix == ".onnx" or _is_function(name)):
        raise BackboneError(f"{name} has its own weights. Leave out --weights {weights}.")
    if path.suffix.lower() == ".onnx":
        return onnx_backbone(path, device)
    if name == LITE:
        return _import("pretrained").lite_backbone(device)
    if _is_function(name):
        return _import("functions").function_backbone(name, device)
    if _is_folder(path):
        name = f"local-dir:{path.resolve()}"
    return _import("pretrained").timm_backbone(name, weights, device)


def reopen_backbone(
    spec: Mapping[str, str], device: str = "auto", *, trust_code: bool = False
) -> Backbone | JointBackbone:
    """Return the backbone that `spec()` described, or raise where it has changed since.

    A spec is read from a file that a stranger may have written, so a "module:function" in it is
    imported and called, and a model of a folder or of somebody's hub page loaded, only with
    `trust_code`.
    """
    if not trust_code:
        for name in names_in(spec["backbone"]):
            _check_trusted(name)
    backbone = open_backbone(spec["backbone"], spec.get("weights"), device)
    if backbone.identity != spec.get("identity", backbone.identity):
        raise BackboneError(
            f"{backbone.name} has changed since the run was made: the digest of its weights and "
            f"preprocessing is {backbone.identity}, not {spec['identity']}. Restore the old ones, "
            "or cluster again."
        )
    return backbone


def _check_trusted(name: str) -> None:
    """Raise unless a name that a run gives is that of a known network or of an ONNX file."""
    if _is_function(name):
        what = "which is Python code that would be imported and run"
    elif Path(name).suffix.lower() != ".onnx" and _is_place(name):
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


def _import(name: str) -> ModuleType:
    """Import a module of this package that needs PyTorch, only when it is used."""
    try:
        return importlib.import_module(f"probagg.app.embed.{name}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing("A backbone", "torch", "deep") from error
