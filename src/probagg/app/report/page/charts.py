"""Numbers, curves and colours on the page: classes, training, the choice of K, clusters."""

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from probagg.app.report.contents import Contents
from probagg.data.tables import date_text
from probagg.metrics import evaluate

Element = ElementTree.Element
# A title and the SVG under it.
Chart = tuple[str, str]

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
# The size of a curve, and the area of its line. Curves are trees of elements, so that no name can
# be read as markup; they carry classes and no colours, as the page styles them.
WIDTH, HEIGHT = 320.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 308.0, 12.0, 124.0


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


_STEPS = ("sweep", "epoch", "step")  # keys that number the records
_NOT_DRAWN = {*_STEPS, "stage", "seconds"}
_STAGES = {"pretrain": "Pre-training", "cluster": "Clustering", "self_label": "Self-labelling"}
_TERMS = {"objective": "objective J"}


def training(records: Sequence[dict[str, Any]]) -> list[tuple[str, list[Chart]]]:
    """Return the title of each stage, and curves of all that metrics.jsonl has; the loss first."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if any(step in record for step in _STEPS):
            stages.setdefault(str(record.get("stage", "")), []).append(record)
    return [
        (_STAGES.get(stage, stage.replace("_", " ").capitalize()), _charts(parts))
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
        charts.append((title, curve(x, y, label=title, unit=unit)))
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
        charts.append((title, curve(K, values, label=title, unit="clusters", mark=mark)))
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


def add(parent: Element, tag: str, text: str = "", **attributes: str | float) -> Element:
    """Add an element to `parent` and return it; `class_` and `data_x` become class and data-x."""
    given = {name.rstrip("_").replace("_", "-"): _shown(v) for name, v in attributes.items()}
    child = ElementTree.SubElement(parent, tag, given)
    child.text = text or None
    return child


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def short(value: float) -> str:
    """Return a number in few characters.

    >>> short(0.12345), short(1234.5), short(1.5e8)
    ('0.123', '1234', '1.50e8')
    """
    if not math.isfinite(value):
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value:.2e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def curve(
    x: Sequence[float],
    y: Sequence[float],
    *,
    label: str,
    unit: str,
    mark: float | None = None,
) -> str:
    """Return the SVG of one line with its extremes in numbers, and `mark` at an x.

    At least one value must be finite.
    """
    X, Y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    finite = np.isfinite(X) & np.isfinite(Y)
    X, Y = X[finite], Y[finite]
    ends = f"{short(Y[0])} to {short(Y[-1])}, {len(Y)} values"
    shape = {"viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}", "width": f"{WIDTH:g}", "role": "img"}
    svg = Element("svg", {"class": "curve", **shape, "aria-label": f"{label} by {unit}: {ends}"})
    low, high = float(Y.min()), float(Y.max())
    px, py = _between(X, X.min(), X.max(), LEFT, RIGHT), _between(Y, low, high, BOTTOM, TOP)
    _add_axes(svg, X, low, high, unit)
    if mark is not None:
        at = float(np.interp(mark, np.sort(X), np.sort(px)))
        add(svg, "line", class_="mark", x1=at, x2=at, y1=TOP - 6, y2=BOTTOM + 6)
    places = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px, py, strict=True))
    add(svg, "polyline", class_="line", points=places)
    if len(X) <= 25 or mark is not None:
        for a, b, at_x, value in zip(px, py, X, Y, strict=True):
            dot = add(svg, "circle", class_="dot", cx=a, cy=b, r=5 if at_x == mark else 2.5)
            add(dot, "title", f"{unit} {short(at_x)}: {short(value)}")
    return ElementTree.tostring(svg, encoding="unicode", short_empty_elements=False)


def _between(values: np.ndarray, low: float, high: float, start: float, end: float) -> np.ndarray:
    """Map values from [low, high] to [start, end]; to the middle where low = high."""
    if high <= low:
        return np.full(len(values), (start + end) / 2)
    return start + (end - start) * (values - low) / (high - low)


def _add_axes(svg: Element, X: np.ndarray, low: float, high: float, unit: str) -> None:
    """Label the lowest and the highest value on each axis, and 0 where it has room between them."""
    zero = [0.0] if min(-low, high) > 0.15 * (high - low) else []
    for value in dict.fromkeys((low, high, *zero)):
        where = float(_between(np.array([value]), low, high, BOTTOM, TOP)[0])
        add(svg, "line", class_="grid", x1=LEFT, x2=RIGHT, y1=where, y2=where)
        add(svg, "text", short(value), class_="tick end", x=LEFT - 6, y=where + 4)
    add(svg, "text", short(X.min()), class_="tick start", x=LEFT, y=HEIGHT - 8)
    if X.max() > X.min():
        add(svg, "text", short(X.max()), class_="tick end", x=RIGHT, y=HEIGHT - 8)
    add(svg, "text", unit, class_="tick middle", x=(LEFT + RIGHT) / 2, y=HEIGHT - 8)
