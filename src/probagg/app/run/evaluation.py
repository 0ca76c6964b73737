"""Clusters compared with known classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.review import Review
from probagg.app.run.samples import classes_of
from probagg.errors import NoData
from probagg.metrics import evaluate

MOST_CLUSTERS = 2**17  # in a table, whose numbers anybody may have written


def compare(
    assigned: Assignments,
    labels: Any,
    *,
    n_clusters: int,
    review: Review,
    folder: str | None = None,
) -> dict[str, Any]:
    """Return ACC, NMI, ARI, the confusion and the main class of each cluster.

    `review` names the clusters; `labels` and `folder` are as for `classes_of`.
    """
    classes = classes_of(labels, assigned.names, folder)
    known = classes.known & (assigned.cluster >= 0)  # discarded samples do not count
    clusters, y = assigned.cluster[known], classes.y[known]
    counts = np.zeros((review.n_numbers(n_clusters), len(classes.names)), int)
    np.add.at(counts, (clusters, y), 1)
    return {
        "n_samples": len(known),
        "n_labelled": int(known.sum()),
        **evaluate(y, clusters),
        "classes": classes.names,
        "clusters": [
            {
                "cluster": k,
                "name": review.name_of(k),
                "size": int(row.sum()),
                "class": classes.names[row.argmax()],
                "purity": float(row.max() / row.sum()),
            }
            for k, row in enumerate(counts)
            if row.sum()
        ],
        "confusion": counts.tolist(),
    }


def evaluate_table(path: Path, labels: Any) -> dict[str, Any]:
    """Compare the table that `probagg predict --out` wrote with known classes (see `compare`)."""
    if labels is None:
        raise NoData(
            f"{path} is a table without known classes. Give them as labels (--labels truth.csv "
            "with lines of path,class or row,class)."
        )
    assigned = Assignments.read(path, MOST_CLUSTERS)
    K, review = int(assigned.cluster.max()) + 1, Review(names=assigned.cluster_names)
    return {"run": str(path), **compare(assigned, labels, n_clusters=K, review=review)}
