"""How well clusters agree with known classes. Used in reports only, never to choose a result."""

from typing import Any

import numpy as np

from probagg.errors import InputError


def clustering_accuracy(y_true: Any, labels: Any) -> float:
    """Return ACC, the share of samples that the best one-to-one match to classes gets right.

    The numbers of clusters and classes may differ; samples of an unmatched cluster count as wrong.

    >>> clustering_accuracy([0, 0, 1, 1], [7, 7, 3, 7])
    0.75
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    y_true, labels = np.asarray(y_true).ravel(), np.asarray(labels).ravel()
    if len(y_true) != len(labels) or not len(labels):
        raise InputError(
            f"y_true has {len(y_true)} entries and labels has {len(labels)}, but both need one per "
            "sample, and at least one. Pass the classes and the clusters of the same samples."
        )
    counts = contingency_matrix(y_true, labels)
    return float(counts[linear_sum_assignment(-counts)].sum() / len(labels))


def evaluate(y_true: Any, labels: Any) -> dict[str, float]:
    """Return ACC, NMI and ARI in one dictionary.

    >>> evaluate([0, 0, 1, 1], [1, 1, 0, 0])
    {'acc': 1.0, 'nmi': 1.0, 'ari': 1.0}
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    return {
        "acc": clustering_accuracy(y_true, labels),
        "nmi": float(normalized_mutual_info_score(y_true, labels)),
        "ari": float(adjusted_rand_score(y_true, labels)),
    }
