"""Backbones in ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.embed.backbone import Backbone, BackboneError, pool, try_out
from probagg.app.embed.preprocessing import Preprocessing
from probagg.errors import first_line, import_optional
from probagg.storage import file_fingerprint, fingerprint


def onnx_backbone(path: Path, device: str) -> Backbone:
    """Return the first output of an ONNX file as a backbone.

    The file takes ImageNet-normalised images (n, 3, H, H).
    """
    path = path.resolve()
    session = _session(path, device)
    size = _size(path, session)
    view = Preprocessing(size, round(size / 0.875))  # the usual ratio for ImageNet, 224 of 256
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
    options.intra_op_num_threads = 1  # of each run: `embed` has one on every core
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
