"""probagg export: the model of a run for other programs, or to carry about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from probagg.cli.compact import PLACE, write_compact
from probagg.cli.errors import guarded
from probagg.cli.opened_run import OpenedRun
from probagg.cli.options import AsJson, Run, TrustCode, example
from probagg.cli.terminal import Voice
from probagg.errors import InputError
from probagg.run.folder import add_to_run
from probagg.storage import write_atomically

EXAMPLE = example(
    "probagg export runs/photos --format onnx",
    "Writes runs/photos/model.onnx, which takes pixels and gives probabilities; it is checked "
    "against PyTorch first. Names and merges of probagg report --serve are in it. Of a DPAC run, "
    "--format compact writes a folder for probagg predict: weights of half the size, in files of "
    "15 MiB at most.",
)
FORMATS = {"onnx": "model.onnx", "safetensors": "exported.safetensors", "compact": PLACE}


def export(
    run: Run,
    how: Annotated[str, typer.Option("--format", help="onnx, safetensors or compact.")] = "onnx",
    features: Annotated[
        bool,
        typer.Option("--features", help="Without the backbone: features in, probabilities out."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where. [default: in RUN: model.onnx, exported.safetensors, compact]"),
    ] = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Write the model of a RUN: one ONNX or safetensors file, or a compact folder for predict."""
    voice = Voice(aside=as_json)
    with guarded(voice, as_json=as_json) as give:
        if how not in FORMATS:
            raise InputError(f"--format is {how!r}; possible are {', '.join(FORMATS)}.")
        opened = OpenedRun.of(run, trust_code=trust_code)
        if features and "embed" not in opened.config:
            raise InputError(f"--features leaves out the backbone, but {run} has none. Drop it.")
        path = out or run / FORMATS[how]
        if how == "compact":
            result = _write_folder(voice, opened, path)
        else:
            data, result = _exported(voice, opened, how, features)
            if out is None:  # part of the run: it goes when the run is replaced
                add_to_run(run, path.name, data)
            else:
                write_atomically(path, data)
            result |= {"file": str(path), "bytes": len(data)}
            voice.say(f"written to {path} ({len(data) / 1e6:.1f} MB)")
        give({"run": str(run), "format": how, "names": _names(opened), **result})


def _names(opened: OpenedRun) -> list[str]:
    """What the clusters that merges left are called."""
    groups = opened.review.groups(opened.n_clusters)
    return [opened.review.name_of(k) for k in np.unique(groups)]


def _write_folder(voice: Voice, opened: OpenedRun, folder: Path) -> dict[str, Any]:
    """The network in small parts and what predict needs beside it."""
    if (method := opened.config["method"]) != "dpac":
        raise InputError(
            f"--format compact is for networks that DPAC trained, but {opened.path} is of "
            f"{method.upper()}. Use --format safetensors or onnx."
        )
    files = write_compact(opened.model("cpu"), opened.path, folder)
    size = sum(files.values())
    voice.say(f"written to {folder} ({size / 1e6:.1f} MB, {len(files)} files, weights in bfloat16)")
    voice.say(f"It needs nothing else of the run: probagg predict {folder} images/")
    return {"folder": str(folder), "files": files, "bytes": size}


def _exported(
    voice: Voice, opened: OpenedRun, how: str, features: bool
) -> tuple[bytes, dict[str, Any]]:
    """Return the file that maps pixels or features to probabilities, and its difference."""
    from probagg.export import export_onnx, export_safetensors, labeller_of

    size = opened.config.get("image_size")  # of a set that is no folder of photos
    labeller = labeller_of(
        opened.model("cpu"),
        backbone=None if features else opened.backbone("cpu"),
        groups=opened.review.groups(opened.n_clusters),
        size=size and tuple(size),
    )
    names, said = _names(opened), f"probagg export of {opened.path}"
    result = {}
    if how == "onnx":
        data, result["difference"] = export_onnx(labeller, names=names, description=said)
        voice.say(f"onnxruntime and PyTorch agree to {result['difference']:.1e}")
    else:
        data = export_safetensors(labeller, names=names, description=said)
    voice.say(f"{labeller.takes.name}: {labeller.takes.words}.")
    columns = ", ".join(f"{k} {name}" for k, name in zip(labeller.clusters, names, strict=True))
    voice.say(f"probabilities: one column for each of {columns}")
    return data, result
