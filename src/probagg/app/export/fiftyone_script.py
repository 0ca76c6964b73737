"""Make a FiftyOne dataset of the files beside this script, which probagg wrote: python load.py.

Then look at it: fiftyone app launch. From Python: load_dataset() returns the dataset.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def load_dataset(folder: str | Path = Path(__file__).parent) -> Any:
    """Return a new persistent dataset with labels, confidences and embeddings of the samples.

    An earlier dataset of the same name is replaced.
    """
    import fiftyone

    folder = Path(folder)
    content = json.loads((folder / "samples.json").read_text(encoding="utf-8"))
    embeddings = folder / "embeddings.npy"
    rows = np.load(embeddings) if embeddings.is_file() else None
    dataset = fiftyone.Dataset(content["name"], persistent=True, overwrite=True)
    dataset.default_classes = content["classes"]
    dataset.add_samples(
        [
            _sample(fiftyone, facts, None if rows is None else rows[row])
            for row, facts in enumerate(content["samples"])
        ]
    )
    return dataset


def _sample(fiftyone: Any, facts: dict[str, Any], embedding: np.ndarray | None) -> Any:
    """Return a sample: the cluster, the second one if there is one, a tag for the flag."""
    sample = fiftyone.Sample(filepath=facts["filepath"], tags=[facts["flag"]] * bool(facts["flag"]))
    for name in ("", "second_"):
        if (label := facts[f"{name}cluster"]) is not None:
            confidence = facts[f"{name}confidence"]
            sample[f"{name}cluster"] = fiftyone.Classification(label=label, confidence=confidence)
    if embedding is not None:
        sample["embedding"] = embedding
    return sample


if __name__ == "__main__":
    made = load_dataset()
    sys.stdout.write(f"{made.name}: {len(made)} samples. Look at them: fiftyone app launch\n")
