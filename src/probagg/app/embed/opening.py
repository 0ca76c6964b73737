"""Open a backbone by its name. PyTorch is loaded only then, with `networks`."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from probagg.app.embed.backbone import LITE, Backbone, BackboneError, unknown_model
from probagg.environment import keep_memory
from probagg.errors import missing
from probagg.storage import read_bytes

# Trained without labels; Apache 2.0.
DEFAULT = "vit_small_patch14_dinov2.lvd142m"
_WEIGHTS = {".safetensors", ".pth", ".pt", ".bin", ".ckpt"}
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def open_backbone(name: str = DEFAULT, device: str = "auto") -> Backbone:
    """Return the frozen network of that name, ready to turn pictures into features.

    A name is any timm model, "efficientnet-lite0" (weights from a package), the path of a folder in
    the format of timm's hub, or "module:function". `device` is auto, cpu, cuda, cuda:1 or mps.

    >>> backbone = open_backbone("efficientnet-lite0", device="cpu")
    >>> backbone.n_features, backbone.size
    (1280, 224)
    """
    keep_memory()
    path = Path(name).expanduser()
    if path.suffix.lower() in _WEIGHTS:
        raise BackboneError(
            f"{name} is a file of weights, which does not name its network. Pass a folder with "
            "its config.json, or module:function that returns the network with these weights."
        )
    if name == LITE:
        return _networks().lite_backbone(device)
    if _is_function(name):
        return _networks().function_backbone(name, device)
    if _is_folder(path):
        name = f"local-dir:{path.resolve()}"
    else:
        _check_model(name)
    return _networks().timm_backbone(name, device)


def is_available(name: str) -> bool:
    """Return whether a backbone can be opened without a download."""
    if name == LITE or _is_function(name) or _is_folder(Path(name)):
        return True
    _check_model(name)
    return _networks().has_weights(name)


def _check_model(name: str) -> None:
    """Raise where timm's files do not contain a name: importing timm and torch takes seconds.

    Where timm is imported already, its registry tells, which may have models of others.
    """
    place = importlib.util.find_spec("timm")
    if place is None or place.origin is None or "timm" in sys.modules or ":" in name:
        return
    files = Path(place.origin).parent.joinpath("models").glob("*.py")
    text = "\n".join(read_bytes(file).decode("utf-8", "replace") for file in files)
    models = re.findall(r"^def ([a-z]\w+)\(pretrained", text, re.MULTILINE)
    if models and not re.search(rf"\b{re.escape(name.partition('.')[0])}\b", text):
        raise unknown_model(name, models)


def reopen_backbone(
    spec: Mapping[str, str], device: str = "auto", *, trust_code: bool = False
) -> Backbone:
    """Return the backbone that `spec()` described, or raise where it has changed since.

    A spec is read from a file that a stranger may have written, so a "module:function" in it is
    imported and called, and a model of a folder or of somebody's hub page loaded, only with
    `trust_code`.
    """
    name, what = spec["backbone"], ""
    if _is_function(name):
        what = "which is Python code that would be imported and run"
    elif any(sign in name for sign in ":/\\~") or _is_folder(Path(name)):
        what = "a folder or a page of a hub from which a network would be loaded"
    if what and not trust_code:
        raise BackboneError(
            f"The run names {name} as its backbone, {what}. If you trust whoever made the run, "
            "pass --trust-code (trust_code=True)."
        )
    backbone = open_backbone(name, device)
    if backbone.identity != spec.get("identity", backbone.identity):
        raise BackboneError(
            f"{backbone.name} has changed since the run was made: the digest of its weights and "
            f"preprocessing is {backbone.identity}, not {spec['identity']}. Restore the old ones, "
            "or cluster again."
        )
    return backbone


def _is_folder(path: Path) -> bool:
    return (path / "config.json").is_file()


def _is_function(name: str) -> bool:
    return _FUNCTION.fullmatch(name) is not None


def _networks() -> ModuleType:
    """Import the module that needs PyTorch, only when it is used."""
    try:
        from probagg.app.embed import networks
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing("A backbone", "torch", "deep") from error
    return networks
