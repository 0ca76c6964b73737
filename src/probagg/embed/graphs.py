"""A network in an ONNX file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from probagg.embed.backbone import Backbone, BackboneError, identity_of, pooled, try_out
from probagg.embed.preprocessing import Preprocessing
from probagg.errors import first_line


def onnx_backbone(path: Path, device: str) -> Backbone:
    """The first output of an ONNX file that takes ImageNet-normalised images (n, 3, H, H)."""
    path = path.resolve()
    session = _session(path, device)
    size = _size(path, session)
    view = Preprocessing(size, round(size / 0.875))  # ImageNet's customary margin: 256 of 224
    entry, exit_ = session.get_inputs()[0].name, session.get_outputs()[0].name

    def run(batch: np.ndarray) -> np.ndarray:
        (features,) = session.run([exit_], {entry: batch})
        return pooled(np.asarray(features, np.float32))

    _, n_features = try_out(str(path), view, run)
    provider = session.get_providers()[0]
    return Backbone(
        name=str(path),
        weights=None,
        identity=identity_of("onnx", _file_digest(path), view),
        transform=view,
        network=run,
        n_features=n_features,
        size=size,
        **view.numbers(),
        device="cuda" if provider.startswith("CUDA") else "cpu",
    )


def _session(path: Path, device: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            "An .onnx backbone needs onnxruntime, which is not installed: "
            "pip install 'probagg[onnx]'"
        ) from error
    if not path.is_file():
        raise BackboneError(f"{path} does not exist. Give the path of an .onnx file.")
    wanted = ["CPUExecutionProvider"]
    if device != "cpu":
        wanted.insert(0, "CUDAExecutionProvider")
    known = [provider for provider in wanted if provider in onnxruntime.get_available_providers()]
    try:
        return onnxruntime.InferenceSession(path, providers=known)
    except Exception as error:  # onnxruntime raises its own kinds, which have no common parent
        raise BackboneError(
            f"{path} is no ONNX model that can be run: {first_line(error)}"
        ) from error


def _size(path: Path, session: Any) -> int:
    """The height the graph wants, or 224 where it takes any."""
    inputs = session.get_inputs()
    shape = [n if isinstance(n, int) else None for n in inputs[0].shape] if inputs else []
    if len(inputs) == 1 and inputs[0].type == "tensor(float)" and len(shape) == 4:
        batch, channels, height, width = shape
        if batch is None and channels in (3, None) and height == width:
            return height or 224
    given = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
    raise BackboneError(
        f"{path} takes {given or 'nothing'}, but one float32 input (n, 3, H, H) with a free n is "
        "needed. Export it again, with a dynamic batch axis."
    )


def _file_digest(path: Path) -> str:
    """A digest of the file, and of the weights that large models keep beside it."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (path, path.with_name(path.name + ".data")):
        if part.is_file():
            with part.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()
