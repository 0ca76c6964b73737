"""Numbers and curves on the page: scores against classes, training, the choice of K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probagg.app.report.contents import Contents
from probagg.app.report.page.charts import heat_map
from probagg.metrics import evaluate
from probagg.svg import curve, render

TABLE = 20  # a confusion matrix of more clusters or classes is a picture
CHARTS = 8  # charts per stage


@dataclass(frozen=True)
class Confusion:
    """Clusters against classes, with columns ordered so that good clusters lie on the diagonal."""

    scores: dict[str, float]
    clusters: list[int]
    classes: list[str]
    counts: np.ndarray  # (clusters, classes)
    picture: str  # SVG of a large one

    def shade(self, i: int, j: int) -> int:
        """Return how dark a cell is, 0 to 9, by its share of the cluster."""
        total = self.counts[i].sum()
        return round(9 * float(self.counts[i, j]) / float(total)) if total else 0


def confusion(contents: Contents) -> Confusion | None:
    """Compare clusters and known classes; None where there are no classes."""
    if contents.classes is None:
        return None
    known = np.array([name is not None for name in contents.classes]) & contents.kept
    if not known.any():
        return None
    given = [name for name, row in zip(contents.classes, known, strict=True) if row]
    names, numbers = np.unique(np.array(given, dtype=str), return_inverse=True)
    clusters, labels = np.array(contents.clusters), contents.samples.cluster[known]
    counts = np.zeros((len(clusters), len(names)), dtype=np.int64)
    np.add.at(counts, (np.searchsorted(clusters, labels), numbers), 1)
    # Ordered by the cluster that holds most of a class, so that a diagonal shows.
    order = np.argsort(counts.argmax(axis=0), kind="stable")
    counts, classes = counts[:, order], [str(names[j]) for j in order]
    rows = [contents.review.name_of(k) for k in contents.clusters]
    picture = heat_map(counts, rows, classes) if max(counts.shape) > TABLE else ""
    return Confusion(evaluate(numbers, labels), contents.clusters, classes, counts, picture)


@dataclass(frozen=True)
class Chart:
    """One small chart with its heading."""

    title: str
    svg: str


@dataclass(frozen=True)
class StageCharts:
    """The charts of one stage of training."""

    title: str
    charts: list[Chart]


_STEPS = ("sweep", "epoch", "step")  # keys that number the records
_NOT_DRAWN = {*_STEPS, "stage", "seconds"}
_STAGES = {"pretrain": "Pre-training", "cluster": "Clustering", "self_label": "Self-labelling"}
_TERMS = {"objective": "objective J"}


def training(records: Sequence[dict[str, Any]]) -> list[StageCharts]:
    """Return curves of everything in metrics.jsonl, by stage; the loss first."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if any(step in record for step in _STEPS):
            stages.setdefault(str(record.get("stage", "")), []).append(record)
    return [
        StageCharts(_STAGES.get(stage, stage.replace("_", " ").capitalize()), _charts(parts))
        for stage, parts in stages.items()
        if len(parts) > 1
    ]


def _charts(records: list[dict[str, Any]]) -> list[Chart]:
    unit = next(step for step in _STEPS if step in records[0])
    numeric = [
        name for name, value in records[-1].items() if name not in _NOT_DRAWN and _is_finite(value)
    ]
    numeric.sort(key=lambda name: (name not in ("loss", "objective"), name == "images_per_second"))
    charts = []
    for name in numeric[:CHARTS]:
        title = _TERMS.get(name, name.replace("_", " "))
        known = [r for r in records if _is_finite(r.get(name)) and _is_finite(r.get(unit))]
        if not known:
            continue
        x, y = [float(r[unit]) for r in known], [float(r[name]) for r in known]
        charts.append(Chart(title, render(curve(x, y, label=title, unit=unit))))
    return charts


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def selection(contents: Contents) -> list[Chart]:
    """Return a curve of every score of the candidate K, with the chosen one marked."""
    table = contents.candidates
    if not table or "n_clusters" not in table[0]:
        return []
    K = [float(row["n_clusters"]) for row in table]
    mark = next((k for k, row in zip(K, table, strict=True) if row.get("chosen") == "1"), None)
    charts = []
    for name in table[0]:
        if name in ("n_clusters", "chosen", "seconds"):
            continue
        values = [_number(row[name]) for row in table]
        if not np.isfinite(values).any():
            continue
        title = name.replace("_", " ")
        svg = curve(K, values, label=title, unit="clusters", mark=mark)
        charts.append(Chart(title, render(svg)))
    return charts


def _number(text: str) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")
