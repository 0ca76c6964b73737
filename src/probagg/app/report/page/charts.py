"""Charts as SVG that follows the page's theme: curves, parallel profiles, heat maps.

They are built as trees of elements, so that no name can be read as markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from probagg.app.report.contents import Profiles
from probagg.data.tables import date_text
from probagg.svg import add, new_svg, pairs, points, render, short


def parallel(profiles: Profiles, names: dict[int, str]) -> str:
    """Draw cluster medians over the columns, each scaled to its range, with quartiles as bands."""
    C = len(profiles.columns)
    step = 72.0 if C <= 14 else 40.0 if C <= 30 else 26.0
    left, top, height, under = 28.0, 26.0, 260.0, 132.0
    width = 2 * left + step * max(C - 1, 1)
    low, high = (np.nan_to_num(end) for end in (_lowest(profiles.q25), -_lowest(-profiles.q75)))
    reach = np.where(high > low, high - low, 1.0)
    label = "Medians of the clusters over the columns; the table below has the numbers"
    svg = new_svg("parallel", width, top + height + under, label)
    xs = left + step * np.arange(C)

    def heights(values: np.ndarray) -> np.ndarray:
        return top + height * (1 - (np.where(np.isnan(values), low, values) - low) / reach)

    for j, (x, column) in enumerate(zip(xs, profiles.columns, strict=True)):
        add(svg, "line", class_="axis", x1=x, x2=x, y1=top, y2=top + height)
        if step > 30:
            highest, lowest = (amount(end[j], profiles.kinds[j]) for end in (high, low))
            add(svg, "text", highest, class_="tick middle", x=x, y=top - 8)
            add(svg, "text", lowest, class_="tick middle", x=x, y=top + height + 16)
        name = column if len(column) <= 22 else column[:20] + "…"
        spot = f"translate({x:.1f} {top + height + 28:g}) rotate(-45)"
        add(add(svg, "text", name, class_="column end", transform=spot), "title", column)
    for i, k in enumerate(profiles.clusters):
        group = add(svg, "g", class_=f"profile k{k}", data_cluster=str(k))
        add(group, "title", names.get(k, str(k)))
        up, down = pairs(xs, heights(profiles.q75[i])), pairs(xs, heights(profiles.q25[i]))
        add(group, "polygon", class_="band", points=points([*up, *down[::-1]]))
        line = points(pairs(xs, heights(profiles.median[i])))
        add(group, "polyline", class_="hit", points=line)
        add(group, "polyline", class_="line", points=line)
    return render(svg)


def _lowest(values: np.ndarray) -> np.ndarray:
    return np.fmin.reduce(values, axis=0)  # NaN only where no cluster has a value


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


def heat_map(counts: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Draw the shares of each row as shades, with numbers on hover; for large tables."""
    R, C = counts.shape
    cell = 8.0 if max(R, C) > 50 else 14.0
    left = 16 + 4.6 * max(len(_cut(name)) for name in rows)
    top = 12 + 4.4 * max(len(_cut(name)) for name in columns)
    width, height = left + cell * C + top / 2, top + cell * R + 4
    svg = new_svg("heat", width, height, f"Heat map of {R} clusters by {C} classes")
    frame = {"x": left, "y": top, "width": cell * C, "height": cell * R}
    add(svg, "rect", class_="frame", **frame)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for i, j in np.argwhere(counts > 0):
        where = {"x": left + cell * j, "y": top + cell * i, "width": cell, "height": cell}
        box = add(svg, "rect", class_="cell", fill_opacity=max(0.12, shares[i, j]), **where)
        add(box, "title", f"{rows[i]}, {columns[j]}: {counts[i, j]} ({shares[i, j]:.0%})")
    every = 1 if cell > 10 else 2  # small cells: every second label, so that they do not touch
    for i in range(0, R, every):
        add(svg, "text", _cut(rows[i]), class_="tick end", x=left - 6, y=top + cell * (i + 0.8))
    for j in range(0, C, every):
        spot = f"translate({left + cell * (j + 0.8):.1f} {top - 6:g}) rotate(-60)"
        add(svg, "text", _cut(columns[j]), class_="tick start", transform=spot)
    return render(svg)


def _cut(name: str) -> str:
    return name if len(name) <= 17 else name[:16] + "…"
