"""Distances of samples to their clusters, and which are so far that a sample is an outlier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import numpy as np

from probagg.arrays import chunks, unit_rows
from probagg.errors import reading
from probagg.storage import RESTORE, read_safetensors, write_safetensors

FORMAT = "probagg.yardstick/1"
FENCE = 1.5  # outliers by Tukey's rule: this many interquartile ranges above the upper quartile,
MAX_OUTLIERS = 0.025  # but at most this share of a cluster: trained features have long tails
_CHUNK = 1 << 16  # rows whose differences to the centres are in memory at once
_CHUNK_NUMBERS = 1 << 24  # numbers of sparse rows that are dense at once


@dataclass(frozen=True)
class Yardstick:
    """The centre of each cluster, and the distance from which a sample is an outlier.

    A distance is to the mean of the cluster's samples: 1 - cos to the mean of the unit rows for
    cosine, Euclidean otherwise. New samples are measured with it too, so that their flags mean the
    same.
    """

    metric: str
    centers: np.ndarray  # (K, D)
    limits: np.ndarray  # (K,)

    @classmethod
    def of(cls, X: Any, labels: np.ndarray, n_clusters: int, metric: str) -> Self:
        """Measure the samples that formed the clusters.

        A sample pulls the mean towards itself, so limits are quantiles of distances to the mean of
        the others, as for new samples. In clusters of one or two samples nothing is an outlier.
        """
        centers = np.zeros((n_clusters, X.shape[1]), np.float64)
        for rows in _chunks(X):
            np.add.at(centers, labels[rows], _rows(X[rows], metric))
        sizes = np.bincount(labels, minlength=n_clusters)
        centers /= np.maximum(sizes, 1)[:, None]
        limits = np.full(n_clusters, np.inf)
        distances = cls(metric, centers, limits).distances(X, labels)
        for cluster in np.flatnonzero(sizes > 2):
            without = distances[labels == cluster] * sizes[cluster] / (sizes[cluster] - 1)
            low, high, most = np.quantile(without, (0.25, 0.75, 1.0 - MAX_OUTLIERS))
            limits[cluster] = max(high + FENCE * (high - low), most)
        return cls(metric, centers, limits)

    def distances(self, X: Any, labels: np.ndarray) -> np.ndarray:
        """Return the distance (n,) of each row to the centre of its cluster."""
        found = np.empty(X.shape[0])
        for rows in _chunks(X):
            x, center = _rows(X[rows], self.metric), self.centers[labels[rows]]
            if self.metric == "cosine":
                norm = np.linalg.norm(center, axis=1)
                cosine = (x * center).sum(1) / np.maximum(norm, 1e-300)
                found[rows] = (1.0 - cosine).clip(0.0)  # of copies, rounding makes it negative
            else:
                found[rows] = np.linalg.norm(x - center, axis=1)
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one safetensors file."""
        tensors = {"centers": self.centers, "limits": self.limits}
        write_safetensors(path, FORMAT, tensors, {"metric": self.metric})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote."""
        tensors, description = read_safetensors(path, FORMAT)
        with reading(path, RESTORE):
            metric, centers, limits = description["metric"], tensors["centers"], tensors["limits"]
            if centers.ndim != 2 or limits.shape != centers.shape[:1] or type(metric) is not str:
                raise ValueError("its arrays do not belong together")
            if not np.isfinite(centers).all() or np.isnan(limits).any():
                raise ValueError("some of its numbers are not finite")
        return cls(metric, centers, limits)


def _rows(X: Any, metric: str) -> np.ndarray:
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64)
    if metric != "cosine":
        return X
    return unit_rows(X)


def _chunks(X: Any) -> Iterator[slice]:
    size = max(1, _CHUNK_NUMBERS // X.shape[1]) if hasattr(X, "toarray") else _CHUNK
    return chunks(X.shape[0], size)
