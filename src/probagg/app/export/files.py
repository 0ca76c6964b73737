"""Files of a labeller: ONNX, compared with PyTorch, and safetensors, from which it is rebuilt."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from probagg.app.embed.backbone import LITE
from probagg.app.embed.networks import Pooled, lite_network, timm_options
from probagg.app.export.heads import HEADS, Division, SmoothedHead
from probagg.app.export.labeller import Input, Labeller, labeller_of_network, steps_of
from probagg.dpac.model import build_model
from probagg.dpac.recipe import Recipe
from probagg.errors import InputError, ProbaggError, first_line, import_optional, reading
from probagg.storage import RESTORE, read_safetensors, to_safetensors

FORMAT = "probagg.labeller/2"
# Differences of probabilities in ONNX, and of features relative to the largest one.
TOLERANCE = 1e-4
OPSET = 18  # torch's exporter writes it without conversion since 2.6
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
            warnings.simplefilter("ignore")
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

    It is the largest of a few inputs (NaN if there is one); the median where probabilities are not
    continuous.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
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
    return float(rows.median() if isinstance(labeller.steps[-1], SmoothedHead) else rows.max())


def export_safetensors(labeller: Labeller, *, names: Sequence[str], description: str) -> bytes:
    """Return the bytes of a safetensors file: the labeller's weights and, as JSON, its metadata.

    `names[k]` is of cluster k and of column k. `load_exported` reads the file; a network that it
    could not rebuild is an error here.
    """
    facts = labeller.describe(names, description)
    weights = labeller.state_dict()
    again, batch = _filled(facts, weights), labeller.examples(1)
    with torch.inference_mode():
        expected, found = labeller.steps[:-1](batch), again.steps[:-1](batch)
    difference = float((found - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise _misfit(facts, f"its features differ by {100 * difference:.2g} %")
    return to_safetensors(FORMAT, {k: t.numpy() for k, t in weights.items()}, facts)


def load_exported(path: str | PathLike[str]) -> tuple[Labeller, dict[str, Any]]:
    """Return the labeller that `export_safetensors` made, and its metadata ("names" and others).

    Networks are rebuilt by name, with the weights of the file; nothing is downloaded.
    """
    arrays, facts = read_safetensors(path, FORMAT)
    with reading(path, RESTORE):
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return _filled(facts, weights), facts


def _filled(facts: dict[str, Any], weights: dict[str, Tensor]) -> Labeller:
    """Return the labeller rebuilt from its metadata and weights."""
    with torch.random.fork_rng(devices=[]):
        labeller = _rebuilt(facts["model"], facts["input"])
    try:
        labeller.load_state_dict(weights)
    except RuntimeError as error:
        raise _misfit(facts, str(error).splitlines()[1].strip()) from error
    return labeller


def _misfit(facts: dict[str, Any], problem: str) -> InputError:
    name = facts["model"].get("backbone", {}).get("name", "DPAC")
    return InputError(
        f"The network built here for {name} is a different one, because of its version or options "
        f"({problem}). Export as ONNX, which contains the network too."
    )


def _rebuilt(model: dict[str, Any], values: dict[str, Any]) -> Labeller:
    """Return a labeller without its weights."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    takes = Input(**values)
    if len(takes.shape) != {"images": 3, "features": 1}.get(takes.name):
        raise ValueError(f"its input is {takes.name!r:.40} of shape {takes.shape!r:.40}")
    settings = dict(model["head"])
    kind, groups = settings.pop("kind"), model["groups"]
    splits = [_blank(Division, split) for split in model["splits"]]
    if kind == "dpac":
        recipe = Recipe.from_toml(model["recipe"])
        blank = recipe.override(["network.pretrained=false"])
        network = build_model(blank, settings["n_clusters"])
        network.self_labelled.fill_(settings["self_labelled"])
        return labeller_of_network(takes, network, recipe, groups, splits)
    head = _blank(HEADS[kind], settings)
    steps: dict[str, nn.Module] = {"head": head}
    if "backbone" in model:
        steps = steps_of(takes, Pooled(_network(model["backbone"])), head)
    facts = {k: v for k, v in model.items() if k not in ("groups", "splits", "n_clusters")}
    return Labeller(takes, steps, model["n_clusters"], groups, facts, splits)


def _blank(kind: Any, settings: dict[str, Any]) -> Any:
    """Return a module without weights; a size that the file does not have is not written to."""
    with torch.device("meta"):
        module = kind(**settings)
    return module.to_empty(device="cpu")


def _network(backbone: dict[str, Any]) -> nn.Module:
    """Return a backbone's network by its architecture, without weights."""
    name, architecture = backbone["name"], backbone["architecture"]
    if architecture is None:
        raise InputError(
            f"The backbone {name} is a user's own code, which a file of weights cannot contain. "
            "Export as ONNX, which contains the network too."
        )
    if architecture == LITE:
        return lite_network()
    timm = import_optional("timm", "This model", "deep")
    if not timm.is_model(architecture):  # else timm would look in the hub
        raise InputError(f"The timm that is installed has no {architecture}. Install a newer one.")
    options = timm_options(architecture)
    return timm.create_model(architecture, pretrained=False, num_classes=0, **options)
