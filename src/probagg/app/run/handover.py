"""A run for other programs: the model as an ONNX file, the clusters for Label Studio."""

import json
import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.run.folder import add_to_run
from probagg.app.run.opened import OpenedRun
from probagg.app.run.output import Output, check_target
from probagg.errors import InputError, NoData
from probagg.progress import Monitor
from probagg.storage import whole_folder, write_file

# The model, and its place in the run where no other is given.
ONNX, MODEL = "onnx", "model.onnx"
LABEL_STUDIO = "label-studio"
FORMATS = (ONNX, LABEL_STUDIO)
TASKS, CONFIG = "tasks.json", "config.xml"
ENABLED, ROOT = (
    f"LABEL_STUDIO_LOCAL_FILES_{name}" for name in ("SERVING_ENABLED", "DOCUMENT_ROOT")
)
LABELLING = """<View>
  <Image name="image" value="$image"/>
  <Choices name="cluster" toName="image" choice="single" showInline="true">
{}
  </Choices>
</View>
"""
Target = str | PathLike[str] | None


def write_export(
    run: OpenedRun, format: str, out: Target, overwrite: bool, half: bool
) -> dict[str, Any]:
    """Write a run for others (see `Run.export`); return its file or folder, size and names."""
    if format not in FORMATS:
        raise InputError(f"The format is {format!r}; possible are {', '.join(FORMATS)}.")
    if half and format != ONNX:
        raise InputError(
            f"--half (half) stores the weights of a model in float16, but the format {format} has "
            f"no weights. Leave it out, or write the model: --format {ONNX}."
        )
    if format == LABEL_STUDIO:
        found = write_tasks(run, run.assignments, out)
    else:
        found = _write_onnx(run, out, overwrite, half)
    return {"run": str(run.path), "format": format, "names": run.cluster_names, **found}


def _write_onnx(run: OpenedRun, out: Target, overwrite: bool, half: bool) -> dict[str, Any]:
    """Write one file that maps pixels to probabilities, by default into the run."""
    from probagg.app.export import export_onnx, labeller_of

    home, monitor = run.path / MODEL, run.monitor or Monitor()
    path = home if out is None else Path(out)
    # At its own place it is part of the run, and an earlier one is replaced without asking.
    output = None if path.resolve() == home.resolve() else Output(path, overwrite).check()
    # A set that is not a folder of photos has images of one size.
    names, size = run.cluster_names, run.config.get("image_size")
    labeller = labeller_of(
        run.model("cpu"),
        run.backbone("cpu"),
        run.review,
        size=size and tuple(size),
    )
    description = f"probagg export of {run.path}"
    data, difference = export_onnx(labeller, names=names, description=description, half=half)
    monitor.say(f"onnxruntime and PyTorch agree to {difference:.1e}")
    if output:
        output.write(data)
    else:
        path = add_to_run(run.path, MODEL, data)
    monitor.say(f"images: {labeller.takes.words}.")
    monitor.say(f"column k is cluster k: {', '.join(f'{k} {names[k]}' for k in labeller.clusters)}")
    if merged := sorted(set(range(len(names))) - set(labeller.clusters)):
        monitor.say(
            f"merged, split or made of moved samples, so always 0: {', '.join(map(str, merged))}"
        )
    monitor.say(f"written to {path} ({len(data) / 1e6:.1f} MB, {len(names)} clusters)")
    return {"file": str(path), "difference": difference, "bytes": len(data)}


def write_tasks(run: OpenedRun, table: Assignments, out: Target) -> dict[str, Any]:
    """Write the samples of a table of a run as tasks of Label Studio; return folder and size."""
    if out is None:
        raise InputError(
            f"The format {LABEL_STUDIO} has no place in a run. Name one: --out NAME/ (out)."
        )
    path, name = Path(out), run.path.resolve().name
    check_target(path)
    if table.heading != "path":
        raise NoData(
            f"Label Studio shows image files, but the run {name} was made from rows or from images "
            "in memory. Cluster a folder of photos."
        )
    # A task names its file, which stays where it is, relative to the folder above the photos.
    photos, files = run.photos(table.names)
    if gone := next((file for file in files if not file.is_file()), None):
        raise NoData(
            f"{gone} of the run {name} is gone. Put the photos back where they were clustered, or "
            "cluster them again."
        )
    names, root = run.cluster_names, photos.parent
    tasks = [_task(name, table, names, row, f.relative_to(root)) for row, f in enumerate(files)]
    used = np.unique([*table.cluster, *table.second_cluster])
    choices = "\n".join(f"    <Choice value={quoteattr(names[k])}/>" for k in used if k >= 0)
    with whole_folder(path.resolve()) as folder:
        write_file(folder / TASKS, json.dumps(tasks, indent=1).encode())
        write_file(folder / CONFIG, LABELLING.format(choices).encode())
    size = sum(p.stat().st_size for p in path.iterdir())
    for line in (
        f"Start Label Studio with {ENABLED}=true and {ROOT}={root}",
        f"In a new project paste {CONFIG} as the labelling interface, add {photos} as a source "
        f"storage of local files, and import {TASKS}.",
        f"written to {path} ({size / 1e6:.1f} MB)",
    ):
        (run.monitor or Monitor()).say(line)
    return {"folder": str(path), "bytes": size}


def _task(
    run: str, table: Assignments, names: Sequence[str], row: int, place: Path
) -> dict[str, Any]:
    """Return the task of one photo, with the cluster as a prediction; a discarded one has none."""
    score = round(float(table.probability[row]), 6)
    first, second = table.cluster[row], table.second_cluster[row]
    result = {
        "from_name": "cluster",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": [names[first]]},
        "score": score,
    }
    prediction = {"model_version": f"probagg {run}", "score": score, "result": [result]}
    return {
        "data": {
            "image": f"/data/local-files/?d={quote(os.fsencode(place))}",
            "path": table.names[row],
            "second_cluster": names[second] if second >= 0 else "",
            "flag": str(table.flag[row]),
        },
        "predictions": [prediction] if first >= 0 else [],
    }
