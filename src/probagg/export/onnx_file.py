"""A labeller as an ONNX file, compared with PyTorch before it is written."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from probagg.errors import ProbaggError, first_line
from probagg.export.labeller import Labeller
from probagg.storage import write_atomically

OPSET = 18  # what torch's exporter writes since 2.6 without converting
TOLERANCE = 1e-4  # of probabilities, between onnxruntime and PyTorch
BATCHES = (1, 5)
MOST_BYTES = 2_000_000_000  # one ONNX file is one protobuf message, below 2 GiB


class ExportError(ProbaggError, RuntimeError):
    """A model that ONNX cannot express or does not reproduce; the message says what to do."""


class _WithLabels(nn.Module):
    """What the graph gives: probabilities, and the run's number of the most probable cluster."""

    clusters: Tensor

    def __init__(self, labeller: Labeller) -> None:
        super().__init__()
        self.labeller = labeller
        self.register_buffer("clusters", torch.tensor(labeller.clusters))

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        P = self.labeller(batch)
        return P, self.clusters[P.argmax(1)]


def export_onnx(
    labeller: Labeller, path: str | PathLike[str], *, names: Sequence[str], description: str
) -> float:
    """Write the labeller as one ONNX file; returns how far it is from PyTorch at most.

    Input "images" or "features", outputs "probabilities" and "labels" (numbers as in the run);
    `names` are the columns', one for each of `labeller.clusters`. The graph is run by onnxruntime
    on a few inputs first, and a difference above 1e-4 is an `ExportError` and no file.
    """
    _check_packages()
    facts = labeller.describe(names, description)
    size = sum(t.nbytes for t in labeller.state_dict().values())
    if size > MOST_BYTES:
        raise ExportError(
            f"The model has {size / 1e9:.1f} GB, but one ONNX file holds at most 2. Export it as "
            "safetensors instead."
        )
    model = _graph(labeller)
    _describe(model, facts)
    data = model.SerializeToString()
    difference = _difference(labeller, data)
    if not difference <= TOLERANCE:
        raise ExportError(
            f"The ONNX model's probabilities differ by {difference:.2g} from PyTorch's, more than "
            f"{TOLERANCE:g}, and were not written. Export as safetensors instead, or try other "
            "versions of torch and onnxruntime."
        )
    write_atomically(path, data)
    return difference


def _check_packages() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"Exporting to ONNX needs {name}, which is not installed: "
                "pip install 'probagg[onnx]'"
            ) from error


def _graph(labeller: Labeller) -> Any:
    """The ONNX model, its first axis free."""
    example = labeller.examples(2)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they speak of torch's own code
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
    except Exception as error:  # torch raises nearly anything on a network it cannot trace
        backbone = labeller.facts.get("backbone", {}).get("name", "the network")
        raise ExportError(
            f"PyTorch cannot express {backbone} in ONNX ({first_line(error)}). Export as "
            "safetensors instead."
        ) from error
    return found.model_proto


def _describe(model: Any, facts: dict[str, Any]) -> None:
    """What the file says of itself; torch's notes, which hold paths of this machine, go."""
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
    """The largest difference of probabilities between onnxruntime and PyTorch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is wrong is raised
    gaps = []
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        for n in BATCHES:
            batch = labeller.examples(n)
            P, _ = session.run(None, {labeller.takes.name: batch.numpy()})
            with torch.inference_mode():
                gaps.append((torch.from_numpy(P) - labeller(batch)).abs().max())
    except Exception as error:  # onnxruntime's own kinds, which have no common parent
        raise ExportError(
            f"onnxruntime cannot run the exported model ({first_line(error)}), which was not "
            "written. Export as safetensors instead."
        ) from error
    return float(torch.stack(gaps).max())  # NaN where there is one
