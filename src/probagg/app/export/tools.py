"""The clusters of a run for other tools: Label Studio and AnnData.

Each `write_...` returns what to say to the user, with PATH for the file or folder.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from probagg.app.assignments import Assignments
from probagg.errors import NoData, import_optional
from probagg.storage import write_file

TASKS, CONFIG = "tasks.json", "config.xml"
ENABLED, ROOT = (
    f"LABEL_STUDIO_LOCAL_FILES_{name}" for name in ("SERVING_ENABLED", "DOCUMENT_ROOT")
)


@dataclass(frozen=True)
class Labelled:
    """The samples of a run with their clusters, after the review.

    `run` is its name, `names` are those of the clusters by number, all different. `folder` holds
    all `files`, which are absolute; both are None for rows and arrays.
    """

    run: str
    assigned: Assignments
    names: list[str]
    folder: Path | None = None
    files: Sequence[Path] | None = None

    def name_of(self, cluster: int) -> str | None:
        """Return the name of a cluster; None for -1, which is no cluster."""
        return self.names[cluster] if cluster >= 0 else None

    @property
    def used(self) -> list[str]:
        """The names of the clusters that the table has, by number."""
        numbers = np.unique([*self.assigned.cluster, *self.assigned.second_cluster])
        return [self.names[k] for k in numbers if k >= 0]

    def photos(self) -> tuple[Path, Sequence[Path]]:
        """Return the folder of the photos and their files, which must be there."""
        if self.folder is None or self.files is None:
            raise NoData(
                f"Label Studio shows image files, but the run {self.run} was made from rows or "
                "from images in memory. Cluster a folder of photos, or export as anndata."
            )
        for file in self.files:
            if not file.is_file():
                raise NoData(
                    f"{file} of the run {self.run} is gone. Put the photos back where they were "
                    "clustered, or cluster them again."
                )
        return self.folder, self.files


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names of clusters, by number, with the number after those that occur twice.

    >>> unique_names(["cats", "dogs", "cats"])
    ['cats (0)', 'dogs', 'cats (2)']
    """
    twice = {name for name in names if names.count(name) > 1}
    return [f"{name} ({k})" if name in twice else name for k, name in enumerate(names)]


def write_label_studio(labelled: Labelled, folder: Path) -> list[str]:
    """Write tasks.json and config.xml, for a folder of photos.

    Photos stay where they are: a task names its file relative to the document root, which is the
    folder above that of the photos.
    """
    photos, files = labelled.photos()
    root = photos.parent
    tasks = [_task(labelled, row, file.relative_to(root)) for row, file in enumerate(files)]
    write_file(folder / TASKS, json.dumps(tasks, indent=1).encode())
    write_file(folder / CONFIG, _config(labelled.used).encode())
    return [
        f"Start Label Studio with {ENABLED}=true and {ROOT}={root}",
        f"In a new project paste {CONFIG} as the labelling interface, add {photos} as a source "
        f"storage of local files, and import {TASKS}.",
    ]


def _task(labelled: Labelled, row: int, place: Path) -> dict[str, Any]:
    """Return the task of one photo, with the cluster as a prediction; a discarded one has none."""
    table = labelled.assigned
    score = round(float(table.probability[row]), 6)
    choice = labelled.name_of(table.cluster[row])
    second = labelled.name_of(table.second_cluster[row])
    result = {
        "from_name": "cluster",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": [choice]},
        "score": score,
    }
    prediction = {"model_version": f"probagg {labelled.run}", "score": score, "result": [result]}
    return {
        "data": {
            "image": f"/data/local-files/?d={quote(os.fsencode(place))}",
            "path": table.names[row],
            "second_cluster": second or "",
            "flag": str(table.flag[row]),
        },
        "predictions": [prediction] if choice else [],
    }


def _config(names: list[str]) -> str:
    """Return the labelling interface: a photo, and one cluster to choose."""
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in names)
    return (
        "<View>\n"
        '  <Image name="image" value="$image"/>\n'
        '  <Choices name="cluster" toName="image" choice="single" showInline="true">\n'
        f"{choices}\n"
        "  </Choices>\n"
        "</View>\n"
    )


def write_anndata(
    labelled: Labelled, path: Path, *, X: Any, P: np.ndarray | None, source: Path | None
) -> list[str]:
    """Write an .h5ad file: that of `source`, or the features X, with the clusters added.

    `obs["probagg"]` are the names of the clusters, as a category, `obsm["X_probagg"]` is P (n, K).
    """
    anndata = import_optional("anndata", "Exporting to anndata", "anndata")
    data = _of_features(anndata, labelled, X) if source is None else anndata.read_h5ad(source)
    if list(data.obs_names) != labelled.assigned.names:
        raise NoData(
            f"The observations of {source} are no longer those of the run {labelled.run}. Cluster "
            "it again."
        )
    for name, values in _observations(labelled).items():
        data.obs[name] = values
    if P is not None:
        data.obsm["X_probagg"] = np.asarray(P, np.float32)
    data.uns["probagg"] = {"run": labelled.run, "names": np.array(labelled.names, object)}
    # From pandas 3 on all text is of this type, also the names that anndata itself has read.
    with anndata.settings.override(allow_write_nullable_strings=True):
        data.write_h5ad(path)
    return [
        'obs["probagg"] has the clusters'
        + (', obsm["X_probagg"] their probabilities' if P is not None else "")
        + '. Load it: anndata.read_h5ad("PATH")'
    ]


def _of_features(anndata: Any, labelled: Labelled, X: Any) -> Any:
    """Return the features of the run as AnnData; without them, nothing but its samples."""
    import pandas

    names = pandas.Index(labelled.assigned.names, dtype=object)
    X = np.array(X) if isinstance(X, np.memmap) else X  # anndata cannot write a memory map
    return anndata.AnnData(X=X, obs=pandas.DataFrame(index=names))


def _observations(labelled: Labelled) -> dict[str, Any]:
    """Return what goes into `obs`, by name."""
    import pandas

    table = labelled.assigned

    def categories(clusters: np.ndarray) -> Any:
        return pandas.Categorical.from_codes(clusters, labelled.names).remove_unused_categories()

    return {
        "probagg": categories(table.cluster),
        "probagg_probability": table.probability,
        "probagg_second": categories(table.second_cluster),
        "probagg_second_probability": table.second_probability,
        "probagg_flag": pandas.Categorical(table.flag.tolist()),
    }
