"""Table 7: offline targets of k-means, FCM and PAC against OPA's online ones.

The settings are the paper's columns: of 200 epochs of clustering, 200 offline runs are one per
epoch, 20 one every ten epochs, and 1 one before the first epoch. A recipe with fewer epochs has
fewer runs (`offline_runs`) at the same intervals. `seconds` are those of the clustering stage.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from benchmarks.paper.deep import Experiment, Trained, available, images
from benchmarks.paper.offline import OfflineStage
from benchmarks.paper.training import ClusterStageMaker
from benchmarks.record import Cell
from benchmarks.study import DEEP_SIZES, Run, Study
from probagg import opa_targets
from probagg.dpac.engine import effective_batch_size
from probagg.dpac.stages import ClusterStage

NAMES = ("stl10", "cifar10")
OFFLINE = {"offline-k-means": "kmeans", "offline-fcm": "fcm", "offline-pac": "pac"}
INTERVALS = {"200": 1, "20": 10, "1": 0}  # epochs between offline runs; 0: only one run


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table."""
    for data in available(*NAMES, size=size):
        for seed in range(seeds):
            yield Cell(data, "dpac-opa", "online", seed)
            for method in OFFLINE:
                yield from (Cell(data, method, runs, seed) for runs in INTERVALS)


def run(cell: Cell, size: str) -> Run:
    """Train the clustering stage with the cell's targets."""
    experiment, pretrained, end = clustered(cell, size)
    epochs = end.recipe.cluster.epochs
    runs = -(-epochs // refresh_epochs(cell, epochs)) if cell.method in OFFLINE else 0
    return experiment.row(pretrained, end) | {"offline_runs": runs}


def refresh_epochs(cell: Cell, epochs: int) -> int:
    """Return the epochs between the offline runs of a cell."""
    return INTERVALS[cell.setting] or epochs


def clustered(cell: Cell, size: str) -> tuple[Experiment, Trained, Trained]:
    """Return the data set, its pre-training and the clustering stage of a cell."""
    experiment = Experiment.of(cell.data, size, cell.seed)
    clustering: ClusterStageMaker = ClusterStage
    if cell.method in OFFLINE:
        interval = refresh_epochs(cell, experiment.recipe.cluster.epochs)
        clustering = partial(OfflineStage, method=OFFLINE[cell.method], refresh_epochs=interval)
    pretrained = experiment.pretrained()
    errors = Errors(images(cell.data, size).y)
    end = experiment.trained("cluster", pretrained, clustering=clustering, every=1, reveal=errors)
    return experiment, pretrained, end


class Errors:
    """Compares the targets of every epoch with the network as it was before that epoch.

    The network's clusters are matched to classes, and the targets have the network's clusters. An
    error is an image that the network has right and its target has wrong.
    """

    def __init__(self, y: Any) -> None:
        self.y = np.asarray(y)
        self.right: np.ndarray | None = None  # by the network, before the epoch
        self.class_of: np.ndarray | None = None  # of its clusters
        self.online: np.ndarray | None = None  # labels by OPA from the network before the epoch

    def __call__(self, stage: ClusterStage, X: Tensor, P: Tensor) -> dict[str, float]:
        """Return the errors of the epoch that has ended, and the accuracy of its targets."""
        found, labels = {}, self.online
        targets = stage.state.get("targets")  # of an offline stage
        if targets is not None:
            labels = targets.argmax(1).cpu().numpy()
        if self.right is not None and self.class_of is not None and labels is not None:
            known = self.class_of[labels] == self.y
            errors = float((self.right & ~known).mean())
            found = {"errors": errors, "target_acc": float(known.mean())}
        network = P.argmax(1).cpu().numpy()
        self.class_of = matched_classes(self.y, network, P.shape[1])
        self.right = self.class_of[network] == self.y
        self.online = online_labels(stage, X, P) if targets is None else None
        return found


def matched_classes(y: np.ndarray, labels: np.ndarray, K: int) -> np.ndarray:
    """Return the class of each cluster in the matching that has most images right."""
    classes = np.unique(y)
    table = [[(y[labels == k] == c).sum() for c in classes] for k in range(K)]
    clusters, chosen = linear_sum_assignment(-np.array(table))
    class_of = np.full(K, -1)
    class_of[clusters] = classes[chosen]
    return class_of


def online_labels(stage: ClusterStage, X: Tensor, P: Tensor) -> np.ndarray:
    """Return the labels that OPA gives all images in random batches of the stage's size."""
    settings = stage.recipe.cluster
    size = effective_batch_size(settings, len(X))
    order = np.random.default_rng(0).permutation(len(X))
    labels = np.empty(len(X), np.int64)
    for rows in np.array_split(order, max(1, len(X) // size)):
        Q = opa_targets(
            X[rows], P[rows], m=settings.m, metric=settings.metric, balance=settings.balance
        )
        labels[rows] = Q.argmax(1).cpu().numpy()
    return labels


STUDY = Study("table7", cells, run, seeds=1, sizes=DEEP_SIZES)
