"""A labeller as an ONNX model, compared with PyTorch before it is returned."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from probagg.app.export.heads import SmoothedHead
from probagg.app.export.labeller import Labeller
from probagg.errors import ProbaggError, first_line, import_optional

OPSET = 18  # torch's exporter writes it without conversion since 2.6
TOLERANCE = 1e-4  # of probabilities, between onnxruntime and PyTorch
BATCHES = (1, 5)
MAX_BYTES = 2_000_000_000  # an ONNX file is one protobuf message, which must be below 2 GiB


class ExportError(ProbaggError, RuntimeError):
    """A model that cannot be exported to ONNX; the message says why and what to do."""


class _WithLabels(nn.Module):
    """The outputs of the graph: probabilities, and the number of the most probable cluster."""

    def __init__(self, labeller: Labeller) -> None:
        super().__init__()
        self.labeller = labeller

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        P = self.labeller(batch)
        return P, P.argmax(1)


def export_onnx(
    labeller: Labeller, *, names: Sequence[str], description: str
) -> tuple[bytes, float]:
    """Return the labeller as the bytes of an ONNX file, and its difference from PyTorch.

    The input is "images" or "features", the outputs are "probabilities" and "labels". Clusters have
    their numbers of the run in all three: `names[k]` is of column k and of label k. onnxruntime
    runs the graph on a few inputs, and a difference above 1e-4 raises `ExportError`.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        import_optional(package, "Exporting to ONNX", "onnx")
    facts = labeller.describe(names, description)
    size = sum(t.nbytes for t in labeller.state_dict().values())
    if size > MAX_BYTES:
        raise ExportError(
            f"The model has {size / 1e9:.1f} GB, but an ONNX file can have at most 2. Export it as "
            "safetensors instead."
        )
    model = _graph(labeller)
    _describe(model, facts)
    data = model.SerializeToString()
    difference = _difference(labeller, data)
    if not difference <= TOLERANCE:
        raise ExportError(
            f"The ONNX model's probabilities differ by {difference:.2g} from PyTorch's, more than "
            f"{TOLERANCE:g}, so it was not exported. Export as safetensors instead, or try other "
            "versions of torch and onnxruntime."
        )
    return data, difference


def _graph(labeller: Labeller) -> Any:
    """Return the ONNX model, with a dynamic batch axis."""
    example = labeller.examples(2)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own code
            program = torch.export.export(
                _WithLabels(labeller),
                (example,),
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                strict=False,
            )
            found: Any = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[labeller.takes.name],
                output_names=["probabilities", "labels"],
            )
    except Exception as error:  # torch raises nearly anything for a network it cannot trace
        backbone = labeller.facts.get("backbone", {}).get("name", "the network")
        raise ExportError(
            f"PyTorch cannot express {backbone} in ONNX ({first_line(error)}). Export as "
            "safetensors instead."
        ) from error
    return found.model_proto


def _describe(model: Any, facts: dict[str, Any]) -> None:
    """Replace torch's notes, which contain paths of this machine, with our metadata."""
    graph = model.graph
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    model.doc_string = facts["description"]
    model.producer_name = "probagg"
    model.producer_version = facts["versions"].get("probagg", "")
    del model.metadata_props[:]
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        model.metadata_props.add(key=f"probagg.{key}", value=text)


def _difference(labeller: Labeller, data: bytes) -> float:
    """Return the difference in probability between onnxruntime and PyTorch.

    It is the largest of a few inputs; the median where probabilities are not continuous.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    gaps = []
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        for n in BATCHES:
            batch = labeller.examples(n)
            P, _ = session.run(None, {labeller.takes.name: batch.numpy()})
            with torch.inference_mode():
                gaps.append((torch.from_numpy(P) - labeller(batch)).abs().amax(1))
    except Exception as error:  # onnxruntime's exceptions have no common base class
        raise ExportError(
            f"onnxruntime cannot run the ONNX model ({first_line(error)}). Export as safetensors "
            "instead."
        ) from error
    rows = torch.cat(gaps)
    # A rounding error in a backbone may exchange one of the nearest rows of a picture for another.
    largest = rows.median() if isinstance(labeller.steps[-1], SmoothedHead) else rows.max()
    return float(largest)  # NaN if there is one
