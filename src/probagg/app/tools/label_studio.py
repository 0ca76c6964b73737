"""A run as tasks of Label Studio: a prediction per photo, and the labelling interface."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from probagg.app.tools.labelled import Labelled

TASKS, CONFIG = "tasks.json", "config.xml"
FILES = (TASKS, CONFIG)
ENABLED, ROOT = (
    f"LABEL_STUDIO_LOCAL_FILES_{name}" for name in ("SERVING_ENABLED", "DOCUMENT_ROOT")
)


def write_label_studio(labelled: Labelled, folder: Path) -> list[str]:
    """Write tasks.json and config.xml; return what Label Studio must be started with.

    Photos stay where they are: a task names its file relative to the document root, which is the
    folder above that of the photos.
    """
    photos, files = labelled.photos("Label Studio")
    root = photos.parent
    tasks = [_task(labelled, row, file.relative_to(root)) for row, file in enumerate(files)]
    (folder / TASKS).write_text(json.dumps(tasks, indent=1))
    (folder / CONFIG).write_text(_config(labelled.used), encoding="utf-8")
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
    return {
        "data": {
            "image": f"/data/local-files/?d={quote(os.fsencode(place))}",
            "path": table.names[row],
            "second_cluster": second or "",
            "flag": str(table.flag[row]),
        },
        "predictions": [_prediction(labelled, choice, score)] if choice else [],
    }


def _prediction(labelled: Labelled, choice: str, score: float) -> dict[str, Any]:
    result = {
        "from_name": "cluster",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": [choice]},
        "score": score,
    }
    return {"model_version": f"probagg {labelled.run}", "score": score, "result": [result]}


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
