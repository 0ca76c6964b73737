"""Open a backbone by name: an ONNX file here, a torch network by `networks`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from probagg.app.embed.backbone import (
    DEFAULT,
    LITE,
    Backbone,
    BackboneError,
    Preprocessing,
    pool,
    try_out,
)
from probagg.environment import keep_memory
from probagg.errors import first_line, import_optional, missing
from probagg.storage import file_fingerprint, fingerprint

_WEIGHTS = {".safetensors", ".pth", ".pt", ".bin", ".ckpt"}
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def open_backbone(
    name: str = DEFAULT, weights: str | Path | None = None, device: str = "auto"
) -> Backbone:
    """Return the frozen network of that name, ready to turn pictures into features.

    A name is any timm model, "efficientnet-lite0" (weights from a package), the path of an .onnx
    file or of a folder in the format of timm's hub, or "module:function". `weights` is a file for a
    timm model instead of the download. `device` is auto, cpu, cuda, cuda:1 or mps.

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
    if weights is not None and (name == LITE or path.suffix == ".onnx" or _is_function(name)):
        raise BackboneError(f"{name} has its own weights. Leave out --weights {weights}.")
    if path.suffix.lower() == ".onnx":
        return _onnx_backbone(path, device)
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


def _networks() -> ModuleType:
    """Import the module that needs PyTorch, only when it is used."""
    try:
        return importlib.import_module("probagg.app.embed.networks")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing("A backbone", "torch", "deep") from error


def _onnx_backbone(path: Path, device: str) -> Backbone:
    """Return the first output of an ONNX file as a backbone.

    The file takes ImageNet-normalised images (n, 3, H, H).
    """
    path = path.resolve()
    session = _session(path, device)
    size = _size(path, session)
    # The usual ratio for ImageNet: 224 of 256.
    view = Preprocessing(size, round(size / 0.875))
    entry, exit_ = session.get_inputs()[0].name, session.get_outputs()[0].name

    def run(batch: np.ndarray) -> np.ndarray:
        (features,) = session.run([exit_], {entry: batch})
        return pool(np.asarray(features, np.float32))

    _, n_features = try_out(str(path), view, run)
    provider = session.get_providers()[0]
    return Backbone(
        name=str(path),
        weights=None,
        identity=fingerprint([repr(("onnx", _content_digest(path), view))]),
        transform=view,
        network=run,
        n_features=n_features,
        size=size,
        **view.numbers(),
        device="cuda" if provider.startswith("CUDA") else "cpu",
    )


def _session(path: Path, device: str) -> Any:
    onnxruntime = import_optional("onnxruntime", "An .onnx backbone", "onnx")
    if not path.is_file():
        raise BackboneError(f"{path} does not exist. Pass the path of an .onnx file.")
    wanted = ["CPUExecutionProvider"]
    if device != "cpu":
        wanted.insert(0, "CUDAExecutionProvider")
    options = onnxruntime.SessionOptions()
    # `extract_features` runs the network on every core at once.
    options.intra_op_num_threads = 1
    known = [provider for provider in wanted if provider in onnxruntime.get_available_providers()]
    try:
        return onnxruntime.InferenceSession(path, options, providers=known)
    except Exception as error:  # onnxruntime's exceptions have no common base class
        raise BackboneError(
            f"{path} is not an ONNX model that onnxruntime can run: {first_line(error)}"
        ) from error


def _size(path: Path, session: Any) -> int:
    """Return the height of the graph's input, or 224 where it is free."""
    inputs = session.get_inputs()
    shape = [n if isinstance(n, int) else None for n in inputs[0].shape] if inputs else []
    if len(inputs) == 1 and inputs[0].type == "tensor(float)" and len(shape) == 4:
        batch, channels, height, width = shape
        if batch is None and channels in (3, None) and height == width:
            return height or 224
    given = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
    raise BackboneError(
        f"{path} takes {given or 'nothing'}, but one float32 input (n, 3, H, H) with a free n is "
        "needed. Export it again with a dynamic batch axis."
    )


def _content_digest(path: Path) -> str:
    """Return a digest of the file and of the weights that large models store beside it."""
    parts = [p for p in (path, path.with_name(path.name + ".data")) if p.is_file()]
    return fingerprint((bytes.fromhex(file_fingerprint(part, 64)) for part in parts), 16)
