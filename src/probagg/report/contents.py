"""A run folder as plain data, with what a person changed already applied."""

from __future__ import annotations

import csv
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from probagg.review import Review
from probagg.run.folder import RunFolderError

Row = dict[str, str]


@dataclass(frozen=True)
class Samples:
    """The rows of assignments.csv, column by column, after the review."""

    names: list[str]  # paths, or rows as text
    are_paths: bool
    cluster: np.ndarray  # (N,) int
    probability: np.ndarray  # (N,) of that cluster; NaN where a person chose it
    second: np.ndarray  # (N,) int, -1: none
    second_probability: np.ndarray  # (N,)
    distance: np.ndarray  # (N,)
    flag: np.ndarray  # (N,) "", "borderline" or "outlier"
    moved: np.ndarray  # (N,) bool

    def __len__(self) -> int:
        return len(self.names)

    @property
    def margin(self) -> np.ndarray:
        """How much more probable the cluster is than the second one."""
        return self.probability - np.nan_to_num(self.second_probability)

    def title(self, row: int) -> str:
        """What to call a sample: its path, or its row in words."""
        return self.names[row] if self.are_paths else f"row {self.names[row]}"


@dataclass(frozen=True)
class Pair:
    """Two clusters that samples are shared between."""

    first: int
    second: int
    probability: float  # that samples of either give to the other, in the mean
    samples: int  # of either that are borderline between the two


@dataclass(frozen=True)
class Profiles:
    """What columns of a matrix look like in each cluster: (clusters, columns) each."""

    clusters: list[int]
    columns: list[str]
    mean: np.ndarray
    q25: np.ndarray
    median: np.ndarray
    q75: np.ndarray


@dataclass(frozen=True)
class Contents:
    """Everything the page is made of; optional parts are None or empty."""

    run: Path
    config: dict[str, Any]
    config_text: str
    env: dict[str, Any]
    result: dict[str, Any]
    records: list[dict[str, Any]]
    review: Review
    n_clusters: int  # of the run, before merges
    samples: Samples
    classes: list[str | None] | None  # None: not known
    places: tuple[np.ndarray, np.ndarray] | None  # rows, xy
    pairs: list[Pair]
    profiles: Profiles | None
    candidates: list[Row]  # k_selection.csv
    skipped: list[Row]

    @property
    def has_images(self) -> bool:
        """Whether samples are images and not rows of a matrix."""
        return self.config.get("kind", "images") == "images"

    @cached_property
    def clusters(self) -> list[int]:
        """The clusters that are left after merges."""
        return np.unique(self.review.groups(self.n_clusters)).tolist()

    @cached_property
    def sizes(self) -> dict[int, int]:
        """How many samples each cluster has after the review."""
        counts = np.bincount(self.samples.cluster, minlength=self.n_clusters)
        return {k: int(counts[k]) for k in self.clusters}


def read_run(run: Path) -> Contents:
    """Read a run folder; a missing or broken file is an error that names it."""
    run = Path(run)
    for name in ("config.toml", "result.json", "assignments.csv"):
        if not (run / name).is_file():
            raise RunFolderError(
                f"{run} has no {name}. Give the folder of a finished run, as --out named it."
            )
    config_text = _text(run / "config.toml")
    review, result = Review.read(run), _json(run / "result.json")
    K = int(result.get("n_clusters", 0))
    samples, before = _read_samples(run / "assignments.csv", review, K)
    K = max(K, before.max(initial=-1) + 1)
    return Contents(
        run=run,
        config=tomllib.loads(config_text),
        config_text=config_text,
        env=_json(run / "env.json"),
        result=result,
        records=_read_records(run / "metrics.jsonl"),
        review=review,
        n_clusters=K,
        samples=samples,
        classes=_read_classes(run / "classes.csv", samples.names),
        places=_read_places(run / "map.npz", len(samples)),
        pairs=_read_pairs(run / "overlaps.csv", review.groups(K), np.bincount(before, minlength=K)),
        profiles=_read_profiles(run / "profiles.csv", review.groups(K), before),
        candidates=_table(run / "k_selection.csv"),
        skipped=_table(run / "skipped.csv"),
    )


def _text(path: Path) -> str:
    # Names of files need not be valid UTF-8; they survive reading and are mended when shown.
    return path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else ""


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(_text(path) or "{}")
    except ValueError as error:
        raise RunFolderError(f"{path} is no JSON ({error}). Run the command again.") from error


def _table(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def _numbers(values: Iterable[str | None]) -> np.ndarray:
    return np.array([float(value) if value else np.nan for value in values], dtype=float)


def _read_samples(path: Path, review: Review, n_clusters: int) -> tuple[Samples, np.ndarray]:
    """The samples after the review, and their clusters before it."""
    table = _table(path)
    if not table or "cluster" not in table[0]:
        raise RunFolderError(f"{path} has no rows with a cluster. Run the command again.")
    are_paths = "path" in table[0]
    names = [row["path" if are_paths else "row"] for row in table]

    def column(name: str) -> np.ndarray:
        return _numbers(row.get(name) for row in table)

    before = column("cluster").astype(np.int64)
    seconds = np.nan_to_num(column("second_cluster"), nan=-1).astype(np.int64)
    groups = review.groups(max(before.max() + 1, seconds.max() + 1, n_clusters))
    cluster = review.relabel(names, before)
    p, second_p = column("probability"), column("second_probability")
    first, second = groups[before], np.where(seconds < 0, -1, groups[seconds])
    joined = first == second  # merged into one: it holds both probabilities
    p = np.where(joined, p + np.nan_to_num(second_p), p)
    flag = np.array([row.get("flag") or "" for row in table])
    moved = cluster != first
    settled = moved | (joined & (flag == "borderline"))  # it lay between clusters that are one now
    samples = Samples(
        names=names,
        are_paths=are_paths,
        cluster=cluster,
        probability=np.where(moved, np.where(cluster == second, second_p, np.nan), p),
        second=np.where(moved, first, np.where(joined, -1, second)),
        second_probability=np.where(moved, p, np.where(joined, np.nan, second_p)),
        distance=np.where(moved, np.nan, column("distance")),
        flag=np.where(settled, "", flag),
        moved=moved,
    )
    return samples, before


def _read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a run; a line that a killed process left half written is no record."""
    records = []
    for line in _text(path).splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _read_classes(path: Path, names: list[str]) -> list[str | None] | None:
    """The class of each sample, as far as it is known."""
    known = {row.get("path") or row.get("row"): row["class"] for row in _table(path)}
    classes = [known.get(name) for name in names]
    return classes if any(name is not None for name in classes) else None


def _read_places(path: Path, n_samples: int) -> tuple[np.ndarray, np.ndarray] | None:
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        rows, xy = arrays["rows"], arrays["xy"]
    known = (rows >= 0) & (rows < n_samples) & np.isfinite(xy).all(axis=1)
    return rows[known], np.clip(xy[known], 0.0, 1.0)


def _read_pairs(path: Path, groups: np.ndarray, sizes: np.ndarray) -> list[Pair]:
    """Pairs of clusters after merges, each once, the worst first.

    A mean is over the samples of both clusters (`probagg.assignments.overlaps`), so sums add up.
    """
    given: defaultdict[tuple[int, int], float] = defaultdict(float)
    samples: defaultdict[tuple[int, int], int] = defaultdict(int)
    for row in _table(path):
        parts = [int(row["first"]), int(row["second"])]
        first, second = sorted(groups[parts].tolist())
        if first != second:
            given[first, second] += float(row["mean_probability"]) * sizes[parts].sum()
            samples[first, second] += int(row["samples"])
    merged = np.bincount(groups, weights=sizes, minlength=len(groups))
    pairs = [
        Pair(a, b, float(total / max(merged[a] + merged[b], 1)), samples[a, b])
        for (a, b), total in given.items()
    ]
    return sorted(pairs, key=lambda pair: -pair.probability)


def _read_profiles(path: Path, groups: np.ndarray, before: np.ndarray) -> Profiles | None:
    """Profiles after merges; a merged cluster's is the mean of its parts', by their sizes."""
    table = _table(path)
    if not table:
        return None
    columns = list(dict.fromkeys(row["column"] for row in table))
    place = {column: j for j, column in enumerate(columns)}
    clusters = sorted({int(groups[int(row["cluster"])]) for row in table})
    sizes = np.bincount(before, minlength=len(groups))
    names = ("mean", "q25", "median", "q75")
    totals, weights = np.zeros((4, len(clusters), len(columns))), np.zeros((1, len(clusters), 1))
    for row in table:
        k, j = int(row["cluster"]), place[row["column"]]
        i = clusters.index(int(groups[k]))
        totals[:, i, j] += max(sizes[k], 1) * _numbers(row[name] for name in names)
        weights[0, i, 0] += max(sizes[k], 1) / len(columns)
    return Profiles(clusters, columns, *(totals / weights))
