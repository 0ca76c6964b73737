"""Names for clusters of photos, suggested by the ImageNet classifier that came with a backbone."""

import functools

import numpy as np

from probagg.app.embed.backbone import Backbone
from probagg.arrays import chunks

CLASSES = 1000
# Suggestions per cluster, and how much more probable a class must be in it than elsewhere.
MOST, LEAST = 3, 0.05


def suggest_names(
    backbone: Backbone, X: np.ndarray, labels: np.ndarray, n_clusters: int
) -> list[tuple[int, str, float]]:
    """Return (cluster, name of a class, difference), the best first; none without a classifier.

    The difference is that of the mean probability of the class in the cluster and elsewhere.
    """
    head, names = backbone.read_head(), _class_names()
    if head is None or names is None:
        return []
    weight, bias = head
    if weight.shape != (CLASSES, X.shape[1]):
        return []
    sums, sizes = np.zeros((n_clusters, CLASSES)), np.bincount(labels, minlength=n_clusters)
    for rows in chunks(len(X), 4096):
        logits = X[rows] @ weight.T + bias
        P = np.exp(logits - logits.max(1, keepdims=True))
        np.add.at(sums, labels[rows], P / P.sum(1, keepdims=True))
    found = []
    for k in np.flatnonzero(sizes):
        rest = (sums.sum(0) - sums[k]) / max(len(X) - sizes[k], 1)
        difference = sums[k] / sizes[k] - rest
        best = [j for j in np.argsort(-difference)[:MOST] if difference[j] >= LEAST]
        found += [(int(k), names[j], float(difference[j])) for j in best]
    return found


@functools.cache
def _class_names() -> list[str] | None:
    """Return the first name of each class of ImageNet, from timm; None where it is missing."""
    try:
        from timm.data import ImageNetInfo
    except ImportError:
        return None
    info = ImageNetInfo()
    return [info.index_to_description(k).partition(",")[0] for k in range(CLASSES)]
