"""The clusters of a run or a table, compared with known classes."""

from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import COLUMNS, Assignments
from probagg.app.review import Review
from probagg.app.run.contents import MAX_CLUSTERS
from probagg.app.run.samples import classes_of
from probagg.data.labels import Classes, read_pairs
from probagg.errors import NoData
from probagg.metrics import evaluate
from probagg.storage import open_regular


def compare_with_classes(
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
    # Discarded samples do not count.
    known = classes.known & (assigned.cluster >= 0)
    if not known.any():
        raise NoData(
            f"No class is known of any of the {len(known):,} samples that were not discarded. Give "
            "labels that name them as assignments.csv does (--labels truth.csv with lines of "
            "path,class or row,class), or one class per sample."
        )
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
    """Compare a table with known classes, as a run's.

    It is one that `probagg predict --out` wrote, or a CSV file of names and clusters.
    """
    if labels is None:
        raise NoData(
            f"{path} is a table without known classes. Give them as labels (--labels truth.csv "
            "with lines of path,class or row,class)."
        )
    with open_regular(path) as file:
        is_ours = ",".join(COLUMNS).encode() in file.readline(10_000)
    if is_ours:
        assigned = Assignments.read(path, MAX_CLUSTERS)
    else:
        names, found = zip(*read_pairs(path), strict=True)
        clusters = Classes.of_text(found)
        assigned = Assignments.given(names, clusters.y, clusters.names)
    K, review = int(assigned.cluster.max()) + 1, Review(names=assigned.cluster_names)
    return {"run": str(path), **compare_with_classes(assigned, labels, n_clusters=K, review=review)}
