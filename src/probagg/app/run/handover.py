"""A run for other programs: the model as an ONNX file, the clusters for Label Studio."""

from os import PathLike
from pathlib import Path
from typing import Any

from probagg.app.assignments import Assignments
from probagg.app.export.label_studio import write_label_studio
from probagg.app.run.folder import add_to_run
from probagg.app.run.opened import OpenedRun
from probagg.app.run.output import Output, check_target
from probagg.errors import InputError, NoData
from probagg.progress import Monitor
from probagg.storage import whole_folder

# The model, and its place in the run where no other is given.
ONNX, MODEL = "onnx", "model.onnx"
LABEL_STUDIO = "label-studio"
FORMATS = (ONNX, LABEL_STUDIO)
Target = str | PathLike[str] | None


def write_export(
    run: OpenedRun, format: str, out: Target, *, overwrite: bool, monitor: Monitor
) -> dict[str, Any]:
    """Write a run for others (see `Run.export`); return its file or folder, size and names."""
    if format not in FORMATS:
        raise InputError(f"The format is {format!r}; possible are {', '.join(FORMATS)}.")
    if format == LABEL_STUDIO:
        found = write_tasks(run, run.assignments, out, monitor)
    else:
        found = _write_onnx(run, out, overwrite, monitor)
    return {"run": str(run.path), "format": format, "names": run.cluster_names, **found}


def _write_onnx(run: OpenedRun, out: Target, overwrite: bool, monitor: Monitor) -> dict[str, Any]:
    """Write one file that maps pixels to probabilities, by default into the run."""
    from probagg.app.export.onnx import export_onnx, labeller_of

    home = run.path / MODEL
    path = home if out is None else Path(out)
    # At its own place it is part of the run, and an earlier one is replaced without asking.
    output = None if path.resolve() == home.resolve() else Output(path, overwrite).check()
    # A set that is not a folder of photos has images of one size.
    names, size = run.cluster_names, run.config.get("image_size")
    labeller = labeller_of(
        run.model("cpu"),
        backbone=run.backbone("cpu"),
        groups=run.review.groups(run.n_clusters),
        splits=run.review.splits,
        size=size and tuple(size),
    )
    description = f"probagg export of {run.path}"
    data, difference = export_onnx(labeller, names=names, description=description)
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


def write_tasks(
    run: OpenedRun, table: Assignments, out: Target, monitor: Monitor
) -> dict[str, Any]:
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
    photos, files = run.photos(table.names)
    with whole_folder(path.resolve()) as folder:
        lines = write_label_studio(name, table, run.cluster_names, photos, files, folder)
    size = sum(p.stat().st_size for p in path.iterdir())
    for line in (*lines, f"written to {path} ({size / 1e6:.1f} MB)"):
        monitor.say(line)
    return {"folder": str(path), "bytes": size}
