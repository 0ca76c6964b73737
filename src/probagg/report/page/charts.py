"""Charts as SVG that follows the page's theme: curves, parallel profiles, heat maps.

They are built as trees of elements, so that no name can be read as markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np

from probagg.report.contents import Profiles

Element = ElementTree.Element


def _svg(kind: str, width: float, height: float, label: str) -> Element:
    view = f"0 0 {width:g} {height:g}"
    given = {"class": kind, "viewBox": view, "width": f"{width:g}", "role": "img"}
    return Element("svg", {**given, "aria-label": label})


def _add(parent: Element, tag: str, text: str = "", **attributes: str | float) -> Element:
    given = {name.rstrip("_").replace("_", "-"): _shown(v) for name, v in attributes.items()}
    child = ElementTree.SubElement(parent, tag, given)
    child.text = text or None
    return child


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def _text(svg: Element) -> str:
    return ElementTree.tostring(svg, encoding="unicode", short_empty_elements=False)


def short(value: float) -> str:
    """Return a number in few characters."""
    if not math.isfinite(value):
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value:.2e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


WIDTH, HEIGHT = 320.0, 150.0  # of a curve
LEFT, RIGHT, TOP, BOTTOM = 52.0, 308.0, 12.0, 124.0  # the area of its line


def curve(
    x: Sequence[float],
    y: Sequence[float],
    *,
    label: str,
    unit: str,
    spread: Sequence[float] | None = None,
    mark: float | None = None,
) -> str:
    """Draw one line with its extremes in numbers, a band of +-`spread`, and `mark` at an x."""
    X, Y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    S = np.zeros_like(Y) if spread is None else np.nan_to_num(np.asarray(spread, dtype=float))
    finite = np.isfinite(X) & np.isfinite(Y)
    X, Y, S = X[finite], Y[finite], S[finite]
    if not len(Y):
        return _text(_svg("curve", WIDTH, HEIGHT, f"{label}: no values"))
    ends = f"{short(Y[0])} to {short(Y[-1])}, {len(Y)} values"
    svg = _svg("curve", WIDTH, HEIGHT, f"{label} by {unit}: {ends}")
    low, high = float((Y - S).min()), float((Y + S).max())

    def height(values: np.ndarray) -> np.ndarray:
        return _between(values, low, high, BOTTOM, TOP)

    px = _between(X, X.min(), X.max(), LEFT, RIGHT)
    _add_axes(svg, X, low, high, unit)
    if mark is not None:
        at = float(np.interp(mark, np.sort(X), np.sort(px)))
        _add(svg, "line", class_="mark", x1=at, x2=at, y1=TOP - 6, y2=BOTTOM + 6)
    if S.any():
        up, down = _pairs(px, height(Y + S)), _pairs(px, height(Y - S))
        _add(svg, "polygon", class_="spread", points=_points([*up, *down[::-1]]))
    _add(svg, "polyline", class_="line", points=_points(_pairs(px, height(Y))))
    if len(X) <= 25 or mark is not None:
        for a, b, at_x, value in zip(px, height(Y), X, Y, strict=True):
            dot = _add(svg, "circle", class_="dot", cx=a, cy=b, r=5 if at_x == mark else 2.5)
            _add(dot, "title", f"{unit} {short(at_x)}: {short(value)}")
    return _text(svg)


def _between(values: np.ndarray, low: float, high: float, start: float, end: float) -> np.ndarray:
    """Map values from [low, high] to [start, end]; to the middle where low = high."""
    if high <= low:
        return np.full(len(values), (start + end) / 2)
    return start + (end - start) * (values - low) / (high - low)


def _add_axes(svg: Element, X: np.ndarray, low: float, high: float, unit: str) -> None:
    """Label the lowest and the highest value on each axis, once where they are the same."""
    for value in dict.fromkeys((low, high)):
        where = float(_between(np.array([value]), low, high, BOTTOM, TOP)[0])
        _add(svg, "line", class_="grid", x1=LEFT, x2=RIGHT, y1=where, y2=where)
        _add(svg, "text", short(value), class_="tick end", x=LEFT - 6, y=where + 4)
    _add(svg, "text", short(X.min()), class_="tick start", x=LEFT, y=HEIGHT - 8)
    if X.max() > X.min():
        _add(svg, "text", short(X.max()), class_="tick end", x=RIGHT, y=HEIGHT - 8)
    _add(svg, "text", unit, class_="tick middle", x=(LEFT + RIGHT) / 2, y=HEIGHT - 8)


def parallel(profiles: Profiles, names: dict[int, str]) -> str:
    """Draw cluster medians over the columns, each scaled to its range, with quartiles as bands."""
    C = len(profiles.columns)
    step = 72.0 if C <= 14 else 40.0 if C <= 30 else 26.0
    left, top, height, under = 28.0, 26.0, 260.0, 132.0
    width = 2 * left + step * max(C - 1, 1)
    low, high = profiles.q25.min(axis=0), profiles.q75.max(axis=0)
    reach = np.where(high > low, high - low, 1.0)
    label = "Medians of the clusters over the columns; the table below has the numbers"
    svg = _svg("parallel", width, top + height + under, label)
    xs = left + step * np.arange(C)

    def heights(values: np.ndarray) -> np.ndarray:
        return top + height * (1 - (values - low) / reach)

    for x, column, lowest, highest in zip(xs, profiles.columns, low, high, strict=True):
        _add(svg, "line", class_="axis", x1=x, x2=x, y1=top, y2=top + height)
        if step > 30:
            _add(svg, "text", short(highest), class_="tick middle", x=x, y=top - 8)
            _add(svg, "text", short(lowest), class_="tick middle", x=x, y=top + height + 16)
        name = column if len(column) <= 22 else column[:20] + "…"
        spot = f"translate({x:.1f} {top + height + 28:g}) rotate(-45)"
        _add(_add(svg, "text", name, class_="column end", transform=spot), "title", column)
    for i, k in enumerate(profiles.clusters):
        group = _add(svg, "g", class_=f"profile k{k}", data_cluster=str(k))
        _add(group, "title", names.get(k, str(k)))
        up, down = _pairs(xs, heights(profiles.q75[i])), _pairs(xs, heights(profiles.q25[i]))
        _add(group, "polygon", class_="band", points=_points([*up, *down[::-1]]))
        line = _points(_pairs(xs, heights(profiles.median[i])))
        _add(group, "polyline", class_="hit", points=line)
        _add(group, "polyline", class_="line", points=line)
    return _text(svg)


def _pairs(xs: np.ndarray, ys: np.ndarray) -> list[tuple[float, float]]:
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def heat_map(counts: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Draw the shares of each row as shades, with numbers on hover; for large tables."""
    R, C = counts.shape
    cell = 8.0 if max(R, C) > 50 else 14.0
    left = 16 + 4.6 * max(len(_cut(name)) for name in rows)
    top = 12 + 4.4 * max(len(_cut(name)) for name in columns)
    width, height = left + cell * C + top / 2, top + cell * R + 4
    svg = _svg("heat", width, height, f"Heat map of {R} clusters by {C} classes")
    frame = {"x": left, "y": top, "width": cell * C, "height": cell * R}
    _add(svg, "rect", class_="frame", **frame)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for i, j in np.argwhere(counts > 0):
        where = {"x": left + cell * j, "y": top + cell * i, "width": cell, "height": cell}
        box = _add(svg, "rect", class_="cell", fill_opacity=max(0.12, shares[i, j]), **where)
        _add(box, "title", f"{rows[i]}, {columns[j]}: {counts[i, j]} ({shares[i, j]:.0%})")
    every = 1 if cell > 10 else 2  # small cells: every second label, so that they do not touch
    for i in range(0, R, every):
        _add(svg, "text", _cut(rows[i]), class_="tick end", x=left - 6, y=top + cell * (i + 0.8))
    for j in range(0, C, every):
        spot = f"translate({left + cell * (j + 0.8):.1f} {top - 6:g}) rotate(-60)"
        _add(svg, "text", _cut(columns[j]), class_="tick start", transform=spot)
    return _text(svg)


def _cut(name: str) -> str:
    return name if len(name) <= 17 else name[:16] + "…"
