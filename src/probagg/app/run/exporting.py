"""A run for others: its model as a file or as a small folder to carry, its clusters for a tool."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probagg.app.run.compact import PLACE, check_place, write_compact
from probagg.app.run.folder import add_to_run
from probagg.app.run.handover import TOOLS, cluster_names, write_handover
from probagg.app.run.model import RunModel
from probagg.app.run.monitor import Monitor
from probagg.app.run.output import Output
from probagg.app.run.preparation import FILE
from probagg.errors import InputError

if TYPE_CHECKING:
    from probagg.app.run.opened import Run

MODELS = {"onnx": "model.onnx", "safetensors": "exported.safetensors", "compact": PLACE}
FORMATS = (*MODELS, *TOOLS)


def write_export(
    run: Run,
    format: str,
    out: str | PathLike[str] | None,
    *,
    features: bool,
    overwrite: bool = False,
    monitor: Monitor,
) -> dict[str, Any]:
    """Write a run for others (see `Run.export`); return its file or folder, size and names."""
    if format not in FORMATS:
        raise InputError(f"The format is {format!r}; possible are {', '.join(FORMATS)}.")
    if features and format in TOOLS:
        raise InputError(f"features is for models, but the format is {format}. Drop it.")
    if format in TOOLS:
        return write_handover(run, format, out, overwrite=overwrite, monitor=monitor)
    if features and "embed" not in run.config:
        raise InputError(
            f"features leaves out the backbone, but the run in {run.path} has none. Drop it."
        )
    home = run.path / MODELS[format]
    path = home if out is None else Path(out)
    in_run = path.resolve() == home.resolve()  # part of the run, which goes when that is replaced
    review = run.review
    names = cluster_names(review, review.n_numbers(run.n_clusters))
    facts: dict[str, Any] = {"run": str(run.path), "format": format, "names": names}
    if format == "compact":
        return facts | _write_folder(run, path, monitor, overwrite=overwrite or in_run)
    output = None if in_run else Output(path, overwrite).check()
    return facts | _write_file(run, output, format, features, names, monitor)


def _write_folder(
    run: RunModel, folder: Path, monitor: Monitor, *, overwrite: bool
) -> dict[str, Any]:
    """Write the network in small parts, with what predict needs beside it."""
    if (method := run.config["method"]) != "dpac":
        raise InputError(
            f"The format compact is for networks that DPAC trained, but {run.path} is of "
            f"{method.upper()}. Use safetensors or onnx."
        )
    check_place(folder, overwrite=overwrite)
    files = write_compact(run.model("cpu"), run.path, folder)
    size = sum(files.values())
    monitor.say(
        f"written to {folder} ({size / 1e6:.1f} MB, {len(files)} files, weights in bfloat16)"
    )
    monitor.say(f"It needs nothing else of the run: probagg predict {folder} images/")
    return {"folder": str(folder), "files": files, "bytes": size}


def _write_file(
    run: RunModel,
    output: Output | None,
    format: str,
    features: bool,
    names: list[str],
    monitor: Monitor,
) -> dict[str, Any]:
    """Write one file that maps pixels or features to probabilities, by default into the run."""
    from probagg.app.export import export_onnx, export_safetensors, labeller_of

    size = run.config.get("image_size")  # of a set that is not a folder of photos
    labeller = labeller_of(
        run.model("cpu"),
        backbone=None if features else run.backbone("cpu"),
        groups=run.review.groups(run.n_clusters),
        splits=run.review.splits,
        size=size and tuple(size),
    )
    description = f"probagg export of {run.path}"
    path = output.path if output else run.path / MODELS[format]
    facts: dict[str, Any] = {"file": str(path)}
    if format == "onnx":
        data, facts["difference"] = export_onnx(labeller, names=names, description=description)
        monitor.say(f"onnxruntime and PyTorch agree to {facts['difference']:.1e}")
    else:
        data = export_safetensors(labeller, names=names, description=description)
    if output:
        output.write(data)
    else:
        add_to_run(run.path, path.name, data)
    facts["bytes"] = len(data)
    monitor.say(f"{labeller.takes.name}: {labeller.takes.words}.")
    if (preparation := run.preparation) is not None:
        monitor.say(f"features are prepared columns ({FILE}): {', '.join(preparation.outputs)}")
    monitor.say(f"column k is cluster k: {', '.join(f'{k} {names[k]}' for k in labeller.clusters)}")
    if merged := sorted(set(range(len(names))) - set(labeller.clusters)):
        monitor.say(
            f"merged, split or made of moved samples, so always 0: {', '.join(map(str, merged))}"
        )
    monitor.say(f"written to {path} ({len(data) / 1e6:.1f} MB, {len(names)} clusters)")
    return facts
