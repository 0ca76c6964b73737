"""A run for FiftyOne: its table as JSON, its features, and a script that makes a dataset of them.

The script needs fiftyone, which starts a database; writing the files does not.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from probagg.app.tools import fiftyone_script
from probagg.app.tools.labelled import Labelled

SAMPLES, EMBEDDINGS, SCRIPT = "samples.json", "embeddings.npy", "load.py"
FILES = (SAMPLES, EMBEDDINGS, SCRIPT)


def write_fiftyone(labelled: Labelled, folder: Path) -> list[str]:
    """Write samples.json, embeddings.npy and load.py.

    Returns how to load them, with PATH for the folder.
    """
    _, files = labelled.photos("FiftyOne")
    table = labelled.assigned
    samples = [
        {
            "filepath": str(file),
            "cluster": labelled.name_of(table.cluster[row]),
            "confidence": round(float(table.probability[row]), 6),
            "second_cluster": labelled.name_of(table.second_cluster[row]),
            "second_confidence": round(float(table.second_probability[row]), 6),
            "flag": str(table.flag[row]),
        }
        for row, file in enumerate(files)
    ]
    content = {"name": f"probagg-{labelled.run}", "classes": labelled.used, "samples": samples}
    (folder / SAMPLES).write_text(json.dumps(content, indent=1))
    if labelled.features is not None:
        np.save(folder / EMBEDDINGS, np.asarray(labelled.features, np.float32))
    (folder / SCRIPT).write_bytes(Path(fiftyone_script.__file__).read_bytes())
    return [f"Load it where fiftyone is installed: python PATH/{SCRIPT}"]
