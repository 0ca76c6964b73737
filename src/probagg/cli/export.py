"""probagg export: a run as one file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from probagg.cli.errors import guarded
from probagg.cli.opened_run import OpenedRun
from probagg.cli.options import AsJson, Run, example
from probagg.cli.terminal import Voice
from probagg.runs import add_to_run

EXAMPLE = example(
    "probagg export runs/photos --format onnx",
    "Writes runs/photos/model.onnx, which takes pixels and gives probabilities; it is checked "
    "against PyTorch first. Names and merges of probagg report --serve are in it.",
)
FORMATS = {"onnx": "model.onnx", "safetensors": "exported.safetensors"}


def export(
    run: Run,
    how: Annotated[str, typer.Option("--format", help="onnx or safetensors.")] = "onnx",
    features: Annotated[
        bool,
        typer.Option("--features", help="Without the backbone: features in, probabilities out."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The file. [default: model.onnx or exported.safetensors]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the model of a RUN, backbone included, as one ONNX or safetensors file."""
    voice = Voice(aside=as_json)
    with guarded(voice, as_json=as_json) as give:
        if how not in FORMATS:
            raise ValueError(f"--format is {how!r}; possible are {', '.join(FORMATS)}.")
        opened = OpenedRun.of(run)
        if features and "embed" not in opened.config:
            raise ValueError(f"--features leaves out the backbone, but {run} has none. Drop it.")
        from probagg.export import export_onnx, export_safetensors, labeller_of

        backbone = None if features else opened.backbone("cpu")
        size = opened.config.get("image_size")  # of a set that is no folder of photos
        groups = opened.review.groups(opened.n_clusters)
        names = [opened.review.name_of(k) for k in np.unique(groups)]
        labeller = labeller_of(
            opened.model("cpu"), backbone=backbone, groups=groups, size=size and tuple(size)
        )
        path, said = out or run / FORMATS[how], f"probagg export of {run}"
        result: dict[str, Any] = {"run": str(run), "format": how, "file": str(path), "names": names}
        if how == "onnx":
            difference = export_onnx(labeller, path, names=names, description=said)
            voice.say(f"onnxruntime and PyTorch agree to {difference:.1e}")
            result["difference"] = difference
        else:
            export_safetensors(labeller, path, names=names, description=said)
        if out is None:  # part of the run: it goes when the run is replaced
            add_to_run(run, path.name, path.read_bytes())
        size = path.stat().st_size
        voice.say(f"{labeller.takes.name}: {labeller.takes.words}.")
        columns = ", ".join(f"{k} {name}" for k, name in zip(labeller.clusters, names, strict=True))
        voice.say(f"probabilities: one column for each of {columns}")
        voice.say(f"written to {path} ({size / 1e6:.1f} MB, {len(names)} clusters)")
        give(result | {"bytes": size})
