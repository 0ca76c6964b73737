"""Numbers, curves and colours on the page: classes, training, the choice of K, clusters."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probagg.app.report.contents import Contents
from probagg.data.tables import date_text
from probagg.metrics import evaluate
from probagg.svg import curve, render, short

TABLE = 20  # clusters or classes, above which only the majority class of a cluster is shown
CHARTS = 8  # charts per stage
FIRST = (0.55, 0.10, 215.0)  # lightness, chroma, hue (degrees) in OKLCH: a calm blue
DARKER, LIGHTER = 0.40, 0.70  # lightness on a white page
LIFT = 0.13  # how much lighter the same colour is on a dark page

# From OKLab to linear sRGB (Ottosson 2020, "A perceptual color space for image processing").
_TO_LMS = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


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


@functools.cache
def palette(n: int) -> tuple[tuple[str, str], ...]:
    """Return `n` pairs of colours, for light and dark pages, each far from those before it.

    >>> palette(1)[0][0].startswith("#")
    True
    """
    candidates = _candidates()
    chosen = [_lab(np.array([FIRST]))[0]]
    nearest = np.full(len(candidates), np.inf)
    while len(chosen) < n:
        # Lightness differs little on small dots, so hue counts more.
        gap = (candidates - chosen[-1]) * [0.7, 1.0, 1.0]
        nearest = np.minimum(nearest, np.sqrt((gap**2).sum(axis=1)))
        chosen.append(candidates[nearest.argmax()])
    light = np.array(chosen[:n]).reshape(-1, 3)
    dark = light * [1.0, 0.85, 0.85] + [LIFT, 0.0, 0.0]
    return tuple(zip(_hex(light), _hex(dark), strict=True))


def _candidates() -> np.ndarray:
    """Return colours of middle lightness and chroma that a screen can show, in OKLab."""
    lightness, chroma = np.linspace(DARKER, LIGHTER, 7), np.linspace(0.05, 0.16, 6)
    grid = np.meshgrid(lightness, chroma, np.arange(0.0, 360.0, 6.0), indexing="ij")
    lab = _lab(np.stack(grid, axis=-1).reshape(-1, 3))
    rgb = _linear_rgb(lab)
    return lab[((rgb >= 0) & (rgb <= 1)).all(axis=1)]


def _lab(lch: np.ndarray) -> np.ndarray:
    angle = np.radians(lch[:, 2])
    return np.stack([lch[:, 0], lch[:, 1] * np.cos(angle), lch[:, 1] * np.sin(angle)], axis=1)


def _linear_rgb(lab: np.ndarray) -> np.ndarray:
    return (lab @ _TO_LMS.T) ** 3 @ _TO_RGB.T


def _hex(lab: np.ndarray) -> list[str]:
    rgb = np.clip(_linear_rgb(lab), 0.0, 1.0)
    curve = np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * rgb ** (1 / 2.4) - 0.055)
    return ["#" + "".join(f"{round(255 * v):02x}" for v in row) for row in curve]
