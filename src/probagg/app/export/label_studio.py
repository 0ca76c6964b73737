"""The clusters of a run of photos for Label Studio: tasks with predictions, and the interface."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from probagg.app.assignments import Assignments
from probagg.errors import NoData
from probagg.storage import write_file

TASKS, CONFIG = "tasks.json", "config.xml"
ENABLED, ROOT = (
    f"LABEL_STUDIO_LOCAL_FILES_{name}" for name in ("SERVING_ENABLED", "DOCUMENT_ROOT")
)


def write_label_studio(
    run: str,
    table: Assignments,
    names: Sequence[str],
    photos: Path,
    files: Sequence[Path],
    folder: Path,
) -> list[str]:
    """Write tasks.json and config.xml of a run into a folder; return what to say to the user.

    `names` are those of the clusters by number, all different. The absolute `files` of the samples
    lie in `photos` and stay where they are: a task names its file relative to the document root,
    which is the folder above that of the photos.
    """
    if gone := next((file for file in files if not file.is_file()), None):
        raise NoData(
            f"{gone} of the run {run} is gone. Put the photos back where they were clustered, or "
            "cluster them again."
        )
    root = photos.parent
    tasks = [_task(run, table, names, row, f.relative_to(root)) for row, f in enumerate(files)]
    write_file(folder / TASKS, json.dumps(tasks, indent=1).encode())
    used = np.unique([*table.cluster, *table.second_cluster])
    choices = "\n".join(f"    <Choice value={quoteattr(names[k])}/>" for k in used if k >= 0)
    config = (
        "<View>\n"
        '  <Image name="image" value="$image"/>\n'
        '  <Choices name="cluster" toName="image" choice="single" showInline="true">\n'
        f"{choices}\n"
        "  </Choices>\n"
        "</View>\n"
    )
    write_file(folder / CONFIG, config.encode())
    return [
        f"Start Label Studio with {ENABLED}=true and {ROOT}={root}",
        f"In a new project paste {CONFIG} as the labelling interface, add {photos} as a source "
        f"storage of local files, and import {TASKS}.",
    ]


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
