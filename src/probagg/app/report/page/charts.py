"""Numbers, curves and colours on the page: classes, training, the choice of K, clusters."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probagg.app.report.contents import Contents
from probagg.data.tables import date_text
from probagg.metrics import evaluate
from probagg.svg import curve, short

TABLE = 20  # clusters or classes, above which only the majority class of a cluster is shown
CHARTS = 8  # charts per stage
# Colours of clusters on a light and on a dark page, each far from those before it (in OKLab).
LIGHT = (
    "#008096", "#f07554", "#7c0f5f", "#b781ec", "#86af2d", "#754b05", "#35369b", "#057918",
    "#49a2fe", "#987485", "#ac3033", "#2fb6a1", "#0b5445", "#9d4ba5", "#533f59", "#b49b6a",
    "#e86fa5", "#606ab4", "#85a2bc", "#67785a", "#ba690a", "#0f4b77", "#693c91", "#8e821d",
)  # fmt: skip
DARK = (
    "#53a6b9", "#ffa688", "#9f4782", "#ddb0ff", "#b1d772", "#987243", "#5862b9", "#509e51",
    "#83ccff", "#bd9dac", "#cf6460", "#79ddca", "#437869", "#c179c7", "#76647c", "#dac59a",
    "#ffa1cd", "#8893d5", "#b2cbe2", "#8f9e83", "#dd9557", "#437097", "#8c67b1", "#b4aa5e",
)  # fmt: skip


@dataclass(frozen=True)
class Confusion:
    """Clusters against classes, with columns ordered so that good clusters lie on the diagonal."""

    scores: dict[str, float]
    clusters: list[int]
    classes: list[str]
    counts: np.ndarray  # (clusters, classes)

    @property
    def is_large(self) -> bool:
        """Whether the table would have too many cells to read."""
        return max(self.counts.shape) > TABLE

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
    return Confusion(evaluate(numbers, labels), contents.clusters, classes, counts)


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
        charts.append(Chart(title, curve(x, y, label=title, unit=unit)))
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
        charts.append(Chart(title, curve(K, values, label=title, unit="clusters", mark=mark)))
    return charts


def _number(text: str) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def amount(value: float, kind: str) -> str:
    """Return a number, a date from days since 1970, or a share in per cent, as short text.

    >>> amount(2.0, "date"), amount(0.125, "share"), amount(0.125, "number")
    ('1970-01-03', '12%', '0.125')
    """
    if math.isnan(value):
        return "-"
    if kind == "date":
        return date_text(math.floor(value))
    return f"{value:.0%}" if kind == "share" else short(value)


def palette(n: int) -> list[tuple[str, str]]:
    """Return `n` different pairs of colours, for light and dark pages.

    >>> palette(1)
    [('#008096', '#53a6b9')]
    """
    pairs = list(zip(LIGHT, DARK, strict=True))[:n]
    for k in range(len(pairs), n):
        # Turned by the golden angle, so that hues of neighbouring numbers are far apart.
        hue, lightness = 0.618034 * k % 1.0, 0.36 + 0.06 * (k % 3)
        shades = (colorsys.hls_to_rgb(hue, lightness + lift, 0.5) for lift in (0.0, 0.18))
        pair = ["#" + "".join(f"{round(255 * v):02x}" for v in rgb) for rgb in shades]
        pairs.append((pair[0], pair[1]))
    return pairs
