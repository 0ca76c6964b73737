"""Who belongs where: one line a sample, what is far and what is unsure, which clusters overlap."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np

from probagg.storage import read_safetensors, write_safetensors

FORMAT = "probagg.yardstick/1"
COLUMNS = ("cluster", "probability", "second_cluster", "second_probability", "distance", "flag")
BORDERLINE, OUTLIER = "borderline", "outlier"
UNSURE = 0.5  # borderline: the second cluster's probability, in shares of the first one's
FENCE = 1.5  # outlier: Tukey's rule, so many interquartile ranges above the upper quartile,
FEW = 0.025  # but at most this share of a cluster: distances in trained features have long tails
_CHUNK = 1 << 16  # rows whose differences to centres are held at once


@dataclass(frozen=True)
class Yardstick:
    """Where clusters lie, and from which distance on a sample is far from its own.

    Distances are to the mean of a cluster's samples: of unit rows in angle for cosine (1 - cos),
    Euclidean otherwise. It also measures new samples, so that their flags mean the same.
    """

    metric: str
    centers: np.ndarray  # (K, D)
    limits: np.ndarray  # (K,)

    @classmethod
    def of(cls, X: np.ndarray, labels: np.ndarray, n_clusters: int, metric: str) -> Self:
        """Measure the samples that formed the clusters.

        A sample pulls the mean towards itself, so limits are of distances to the mean of the
        others, as those of new samples are. With two samples or fewer nothing counts as far.
        """
        centers = np.zeros((n_clusters, X.shape[1]), np.float64)
        for rows in _chunks(len(X)):
            np.add.at(centers, labels[rows], _rows(X[rows], metric))
        sizes = np.bincount(labels, minlength=n_clusters)
        centers /= np.maximum(sizes, 1)[:, None]
        limits = np.full(n_clusters, np.inf)
        distances = cls(metric, centers, limits).distances(X, labels)
        for cluster in np.flatnonzero(sizes > 2):
            without = distances[labels == cluster] * sizes[cluster] / (sizes[cluster] - 1)
            low, high, most = np.quantile(without, (0.25, 0.75, 1.0 - FEW))
            limits[cluster] = max(high + FENCE * (high - low), most)
        return cls(metric, centers, limits)

    def distances(self, X: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """(n,) of each row to the centre of its cluster."""
        found = np.empty(len(X))
        for rows in _chunks(len(X)):
            x, center = _rows(X[rows], self.metric), self.centers[labels[rows]]
            if self.metric == "cosine":
                norm = np.linalg.norm(center, axis=1)
                found[rows] = 1.0 - (x * center).sum(1) / np.maximum(norm, 1e-300)
            else:
                found[rows] = np.linalg.norm(x - center, axis=1)
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one safetensors file."""
        tensors = {"centers": self.centers, "limits": self.limits}
        write_safetensors(path, FORMAT, tensors, {"metric": self.metric})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """What `save` wrote."""
        tensors, description = read_safetensors(path, FORMAT)
        return cls(description["metric"], tensors["centers"], tensors["limits"])


def _rows(X: np.ndarray, metric: str) -> np.ndarray:
    X = np.asarray(X, np.float64)
    if metric != "cosine":
        return X
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, _CHUNK):
        yield slice(start, start + _CHUNK)


@dataclass(frozen=True)
class Assignments:
    """The table of a run: for each sample its cluster, the next one, its distance and a flag."""

    names: list[str]  # paths of images, or row numbers
    cluster: np.ndarray
    probability: np.ndarray
    second_cluster: np.ndarray  # -1 where there is one cluster only
    second_probability: np.ndarray
    distance: np.ndarray  # NaN where it is not known
    flag: np.ndarray  # "", BORDERLINE or OUTLIER

    def __len__(self) -> int:
        return len(self.cluster)

    @classmethod
    def of(
        cls,
        P: np.ndarray,
        X: np.ndarray,
        yardstick: Yardstick | None,
        names: Sequence[object],
        groups: np.ndarray | None = None,
    ) -> Self:
        """From probabilities P (n, K) and the features X (n, D) they were made from.

        `groups` (K,) are the survivors of merged clusters: probabilities add up, and distances are
        to the nearest part, the one that P prefers.
        """
        every, own = np.arange(len(P)), P.argmax(1)
        groups = np.arange(P.shape[1]) if groups is None else groups
        survivors = np.unique(groups)
        if len(survivors) < P.shape[1]:
            merged = np.stack([P[:, groups == k].sum(1) for k in survivors], axis=1)
            parts = np.where(groups == survivors[merged.argmax(1)][:, None], P, -1.0)
            P, own = merged, parts.argmax(1)
        ranked = np.argsort(-P, axis=1, kind="stable")[:, :2]
        first, p_first = survivors[ranked[:, 0]], P[every, ranked[:, 0]]
        second, p_second = np.full(len(P), -1), np.zeros(len(P), P.dtype)
        if len(survivors) > 1:
            second, p_second = survivors[ranked[:, 1]], P[every, ranked[:, 1]]
        distance, far = np.full(len(P), np.nan), np.zeros(len(P), bool)
        if yardstick is not None:
            distance = yardstick.distances(X, own)
            far = distance > yardstick.limits[own]
        flag = np.where(p_second >= UNSURE * p_first, BORDERLINE, "")
        flag = np.where(far, OUTLIER, flag)
        return cls([str(n) for n in names], first, p_first, second, p_second, distance, flag)

    def merge(self, groups: np.ndarray) -> Assignments:
        """With merged clusters as one; a second cluster that became the first is none any more."""
        second = np.where(self.second_cluster >= 0, groups[self.second_cluster], -1)
        joined = (second == groups[self.cluster]) & (second >= 0)
        return replace(
            self,
            cluster=groups[self.cluster],
            probability=self.probability + np.where(joined, self.second_probability, 0.0),
            second_cluster=np.where(joined, -1, second),
            second_probability=np.where(joined, 0.0, self.second_probability),
            flag=np.where(joined & (self.flag == BORDERLINE), "", self.flag),
        )

    def put(self, clusters: np.ndarray) -> Assignments:
        """With samples in other clusters, as a person decided: certain, and no longer flagged."""
        moved = clusters != self.cluster
        return replace(
            self,
            cluster=clusters,
            probability=np.where(moved, 1.0, self.probability),
            second_cluster=np.where(moved, self.cluster, self.second_cluster),
            second_probability=np.where(moved, 0.0, self.second_probability),
            distance=np.where(moved, np.nan, self.distance),
            flag=np.where(moved, "", self.flag),
        )

    def to_csv(self, kind: str, cluster_names: dict[int, str] | None = None) -> str:
        """The table as text; `kind` heads the first column: path or row.

        Where clusters have names, a last column holds them.
        """
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow([kind, *COLUMNS, *(["name"] if cluster_names else [])])
        for i, name in enumerate(self.names):
            second: list[object] = ["", ""]
            if self.second_cluster[i] >= 0:
                second = [self.second_cluster[i], f"{self.second_probability[i]:.6f}"]
            distance = "" if np.isnan(self.distance[i]) else f"{self.distance[i]:.6g}"
            first = [name, self.cluster[i], f"{self.probability[i]:.6f}"]
            last = [cluster_names.get(int(self.cluster[i]), "")] if cluster_names else []
            table.writerow([*first, *second, distance, self.flag[i], *last])
        return text.getvalue()

    @classmethod
    def read(cls, path: Path) -> Self:
        """The table of a run folder."""
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            lines = csv.reader(file)
            next(lines)
            columns = list(zip(*lines, strict=True)) or [()] * (1 + len(COLUMNS))
        names, cluster, probability, second, p_second, distance, flag = columns
        return cls(
            list(names),
            np.array(cluster, np.int64),
            np.array(probability, float),
            np.array([s or -1 for s in second], np.int64),
            np.array([p or 0.0 for p in p_second], float),
            np.array([d or np.nan for d in distance], float),
            np.array(flag, dtype=object),
        )


def overlaps(P: np.ndarray, assigned: Assignments, most: int = 50) -> list[tuple]:
    """Pairs of clusters that the model confuses, the worst first.

    (first, second, mean_probability, samples): what samples of either give to the other one in the
    mean, and how many of them are undecided between the two.
    """
    K = P.shape[1]
    given = np.zeros((K, K))
    np.add.at(given, assigned.cluster, P)
    sizes = np.bincount(assigned.cluster, minlength=K)
    unsure = assigned.second_probability >= UNSURE * assigned.probability
    between = np.zeros((K, K), int)
    if K > 1:
        np.add.at(between, (assigned.cluster[unsure], assigned.second_cluster[unsure]), 1)
    pairs = []
    for a in range(K):
        for b in range(a + 1, K):
            mean = (given[a, b] + given[b, a]) / max(sizes[a] + sizes[b], 1)
            if mean >= 0.0005 or between[a, b] + between[b, a]:
                pairs.append((a, b, float(mean), int(between[a, b] + between[b, a])))
    return sorted(pairs, key=lambda pair: -pair[2])[:most]
