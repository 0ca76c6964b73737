"""The clusters of a run for another tool: which files it gets, and where they go."""

from __future__ import annotations

import os
import warnings
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.app.run.monitor import Monitor
from probagg.app.run.output import Output, OutputFolder
from probagg.app.run.samples import is_in_file
from probagg.app.tools import fiftyone, label_studio
from probagg.app.tools.anndata import write_anndata
from probagg.app.tools.datasets import write_datasets
from probagg.app.tools.fiftyone import write_fiftyone
from probagg.app.tools.label_studio import write_label_studio
from probagg.app.tools.labelled import Labelled, unique_names
from probagg.data.photos import FolderImages
from probagg.errors import InputError, NoData
from probagg.storage import whole_file, whole_folder

if TYPE_CHECKING:
    from probagg.app.review import Review
    from probagg.app.run.opened import Run

FOLDERS: dict[str, Any] = {  # formats that are a folder: what writes it, and its files
    "label-studio": (write_label_studio, label_studio.FILES),
    "fiftyone": (write_fiftyone, fiftyone.FILES),
}
SUFFIXES = {"datasets": ".parquet", "anndata": ".h5ad"}  # of formats that are a file
TOOLS = (*FOLDERS, *SUFFIXES)


def write_handover(
    run: Run, format: str, out: str | PathLike[str] | None, *, overwrite: bool, monitor: Monitor
) -> dict[str, Any]:
    """Write the clusters of a run for a tool (see `Run.export`); return path, size and names."""
    if out is None:
        raise InputError(
            f"The format {format} has no place in a run. Name one: --out NAME"
            f"{SUFFIXES.get(format, '/')} (out)."
        )
    path = Path(out)
    facts: dict[str, Any] = {"run": str(run.path), "format": format}
    if format in FOLDERS:
        write, names = FOLDERS[format]
        place = OutputFolder(path, names, overwrite).check()
        labelled = labelled_of(run)
        with whole_folder(place.path) as folder:
            lines = write(labelled, folder)
        facts |= {"folder": str(path), "bytes": sum(p.stat().st_size for p in path.iterdir())}
    else:
        _check_suffix(path, format)
        output = Output(path, overwrite, sources=_sources(run)).check()
        labelled = labelled_of(run)
        with whole_file(output.path) as file:
            lines = _write_file(run, labelled, format, file)
        facts |= {"file": str(path), "bytes": path.stat().st_size}
    for line in lines:
        monitor.say(line.replace("PATH", str(path)))
    monitor.say(f"written to {path} ({facts['bytes'] / 1e6:.1f} MB)")
    return facts | {"names": labelled.names}


def _write_file(run: Run, labelled: Labelled, format: str, file: Path) -> list[str]:
    """Write a format that is one file; return what to say about it."""
    if format == "datasets":
        return write_datasets(labelled, file)
    X = _features(run, len(labelled.assigned))
    if X is None:
        warnings.warn(
            "The file has no probabilities of all clusters: the rows of this run were in memory "
            "and are not in its folder. Export in the program that clusters them, or cluster a "
            "file.",
            stacklevel=4,
        )
    source = Path(run.config.get("source", ""))
    return write_anndata(
        labelled,
        file,
        X=X,
        P=None if X is None else probabilities(run, X),
        source=source if source.suffix.lower() == ".h5ad" else None,
    )


def _check_suffix(path: Path, format: str) -> None:
    if path.suffix.lower() != SUFFIXES[format]:
        raise InputError(
            f"--out {path} is to be a file of {format}, whose name ends in {SUFFIXES[format]}. "
            f"Name it so: {path.with_suffix(SUFFIXES[format])}"
        )


def _sources(run: Run) -> tuple[Path, ...]:
    source = run.config.get("source")
    return () if source is None else (Path(source),)


def labelled_of(run: Run) -> Labelled:
    """Return what a tool is given of a run."""
    assigned = run.assignments
    folder, files = _photos(run, assigned.names) if assigned.heading == "path" else (None, None)
    return Labelled(
        run=run.path.resolve().name,
        assigned=assigned,
        names=cluster_names(run.review, run.review.n_numbers(run.n_clusters)),
        folder=folder,
        files=files,
        features=run.embeddings,
    )


def cluster_names(review: Review, n_clusters: int) -> list[str]:
    """Return the name of each cluster, by number, merged ones too; all are different.

    >>> from probagg.app.review import Review
    >>> cluster_names(Review(names={0: "cats"}, merged={2: 0}), 3)
    ['cats', 'cluster 1', 'cluster 2']
    """
    return unique_names([review.name_of(k) for k in range(n_clusters)])


def _photos(run: Run, names: list[str]) -> tuple[Path, list[Path]]:
    """Return the folder of the photos and the path of each."""
    if isinstance(run._images, FolderImages):
        folder = run._images.folder.resolve()
    elif "source" in run.config:
        source = Path(run.config["source"])
        folder = source if source.is_dir() else source.parent
    elif all(os.path.isabs(name) for name in names):
        folder = Path("/")
    else:
        raise InputError(
            f"The run in {run.path} was made from a list of paths in memory, which are relative to "
            "a folder that is not known. Cluster the folder, or export in the same program."
        )
    files = [folder / name for name in names]
    if not all(file.is_relative_to(folder) for file in files) or folder == Path("/"):
        folder = Path(os.path.commonpath([file.parent for file in files]))
    return folder, files


def _features(run: Run, n_samples: int) -> Any:
    """Return the features of images, or the rows as they were clustered; None where unknown."""
    X = run._rows if run.embeddings is None else run.embeddings
    if X is None and "source" in run.config:
        X = run._open_rows(run.config["source"], Monitor()).features
    if X is not None and X.shape[0] != n_samples:
        raise NoData(
            f"{run.config.get('source')} now has {X.shape[0]:,} rows, but {n_samples:,} were "
            "clustered. Cluster it again."
        )
    return X.load() if is_in_file(X) else X


def probabilities(run: Run, X: Any) -> np.ndarray:
    """Return P (n, numbers) of the model for the run's own features, after merges and splits."""
    model = run.model("cpu")
    if run.config["method"] == "dpac":
        from probagg.app.export.labeller import classify  # which loads torch

        P = classify(model, X)
    else:
        P = model.predict_proba(X)
    review = run.review
    found = np.zeros((len(P), review.n_numbers(run.n_clusters)))
    np.add.at(found, (np.arange(len(P))[:, None], review.regions(run.n_clusters, X)), P)
    return found
