"""A run for other programs: the model as an ONNX file, the clusters for tools."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.export.tools import Labelled, write_anndata, write_label_studio
from probagg.app.run.folder import add_to_run
from probagg.app.run.opened import OpenedRun
from probagg.app.run.output import Output, check_target
from probagg.errors import InputError, warn_user
from probagg.progress import Monitor
from probagg.storage import whole_folder

# The model, and its place in the run where no other is given.
ONNX, MODEL = "onnx", "model.onnx"
# Formats for tools: a folder for Label Studio, a file for AnnData.
LABEL_STUDIO, ANNDATA, SUFFIX = "label-studio", "anndata", ".h5ad"
TOOLS = (LABEL_STUDIO, ANNDATA)
FORMATS = (ONNX, *TOOLS)


def write_export(
    run: OpenedRun,
    format: str,
    out: str | PathLike[str] | None,
    *,
    overwrite: bool = False,
    monitor: Monitor,
) -> dict[str, Any]:
    """Write a run for others (see `Run.export`); return its file or folder, size and names."""
    if format not in FORMATS:
        raise InputError(f"The format is {format!r}; possible are {', '.join(FORMATS)}.")
    if format in TOOLS:
        return write_handover(run, format, out, overwrite=overwrite, monitor=monitor)
    home = run.path / MODEL
    path = home if out is None else Path(out)
    # At its own place it is part of the run, and an earlier one is replaced without asking.
    output = None if path.resolve() == home.resolve() else Output(path, overwrite).check()
    facts = {"run": str(run.path), "format": format, "names": run.cluster_names}
    return facts | _write_onnx(run, output, monitor)


def _write_onnx(run: OpenedRun, output: Output | None, monitor: Monitor) -> dict[str, Any]:
    """Write one file that maps pixels to probabilities, by default into the run."""
    from probagg.app.export.onnx import export_onnx, labeller_of

    names = run.cluster_names
    # A set that is not a folder of photos has images of one size.
    size = run.config.get("image_size")
    labeller = labeller_of(
        run.model("cpu"),
        backbone=run.backbone("cpu"),
        groups=run.review.groups(run.n_clusters),
        splits=run.review.splits,
        size=size and tuple(size),
    )
    description = f"probagg export of {run.path}"
    path = output.path if output else run.path / MODEL
    data, difference = export_onnx(labeller, names=names, description=description)
    monitor.say(f"onnxruntime and PyTorch agree to {difference:.1e}")
    if output:
        output.write(data)
    else:
        add_to_run(run.path, path.name, data)
    monitor.say(f"images: {labeller.takes.words}.")
    monitor.say(f"column k is cluster k: {', '.join(f'{k} {names[k]}' for k in labeller.clusters)}")
    if merged := sorted(set(range(len(names))) - set(labeller.clusters)):
        monitor.say(
            f"merged, split or made of moved samples, so always 0: {', '.join(map(str, merged))}"
        )
    monitor.say(f"written to {path} ({len(data) / 1e6:.1f} MB, {len(names)} clusters)")
    return {"file": str(path), "difference": difference, "bytes": len(data)}


def write_handover(
    run: OpenedRun,
    format: str,
    out: str | PathLike[str] | None,
    *,
    overwrite: bool,
    monitor: Monitor,
    table: Assignments | None = None,
) -> dict[str, Any]:
    """Write the clusters of a run for a tool (see `Run.export`); return path, size and names.

    A folder may be of some samples only, those of `table`.
    """
    if out is None:
        raise InputError(
            f"The format {format} has no place in a run. Name one: --out NAME"
            f"{SUFFIX if format == ANNDATA else '/'} (out)."
        )
    path = Path(out)
    facts: dict[str, Any] = {"run": str(run.path), "format": format}
    if format == LABEL_STUDIO:
        check_target(path)
        labelled = labelled_of(run, table)
        with whole_folder(path.resolve()) as folder:
            lines = write_label_studio(labelled, folder)
        facts |= {"folder": str(path), "bytes": sum(p.stat().st_size for p in path.iterdir())}
    else:
        if path.suffix.lower() != SUFFIX:
            raise InputError(
                f"--out {path} is to be a file of AnnData, whose name ends in {SUFFIX}. Name it "
                f"so: {path.with_suffix(SUFFIX)}"
            )
        source = run.config.get("source")
        output = Output(path, overwrite, () if source is None else (Path(source),)).check()
        labelled = labelled_of(run)
        with output.whole() as file:
            lines = _write_anndata(run, labelled, file)
        facts |= {"file": str(path), "bytes": path.stat().st_size}
    for line in lines:
        monitor.say(line.replace("PATH", str(path)))
    monitor.say(f"written to {path} ({facts['bytes'] / 1e6:.1f} MB)")
    return facts | {"names": labelled.names}


def _write_anndata(run: OpenedRun, labelled: Labelled, file: Path) -> list[str]:
    """Write the clusters and their probabilities; return what to say about it."""
    X = run.clustered_rows(len(labelled.assigned))
    if X is None:
        warn_user(
            "The file has no probabilities of all clusters: the rows of this run were in memory "
            "and are not in its folder. Export in the program that clusters them, or cluster a "
            "file."
        )
    source = Path(run.config.get("source", ""))
    return write_anndata(
        labelled,
        file,
        X=X,
        P=None if X is None else probabilities_of_run(run, X),
        source=source if source.suffix.lower() == ".h5ad" else None,
    )


def labelled_of(run: OpenedRun, table: Assignments | None = None) -> Labelled:
    """Return what a tool is given of a run, or of the samples of a table of it."""
    assigned = run.assignments if table is None else table
    folder, files = run.photos(assigned.names) if assigned.heading == "path" else (None, None)
    return Labelled(
        run=run.path.resolve().name,
        assigned=assigned,
        names=run.cluster_names,
        folder=folder,
        files=files,
    )


def probabilities_of_run(run: OpenedRun, X: Any) -> np.ndarray:
    """Return P (n, numbers) of the model for the run's own features, after merges and splits."""
    model = run.model("cpu")
    if run.config["method"] == "dpac":
        from probagg.app.export.onnx import head_probabilities  # torch is slow to import

        P = head_probabilities(model, X)
    else:
        P = model.predict_proba(X)
    review = run.review
    found = np.zeros((len(P), review.n_numbers(run.n_clusters)))
    np.add.at(found, (np.arange(len(P))[:, None], review.regions(run.n_clusters, X)), P)
    return found
