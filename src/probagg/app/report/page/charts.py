"""Charts as SVG that follows the page's theme, and the colours of clusters.

Charts are built as trees of elements, so that no name can be read as markup. Colours are distinct
for any number of clusters, on light and on dark pages.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from probagg.app.report.contents import Profiles
from probagg.data.tables import date_text
from probagg.svg import add, new_svg, pairs, points, render, short

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
    """Return the lowest value of each column; NaN where no cluster has one."""
    return np.fmin.reduce(values, axis=0)


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
    every = 1 if cell > 10 else 2  # labels of small cells would touch
    for i in range(0, R, every):
        add(svg, "text", _cut(rows[i]), class_="tick end", x=left - 6, y=top + cell * (i + 0.8))
    for j in range(0, C, every):
        spot = f"translate({left + cell * (j + 0.8):.1f} {top - 6:g}) rotate(-60)"
        add(svg, "text", _cut(columns[j]), class_="tick start", transform=spot)
    return render(svg)


def _cut(name: str) -> str:
    return name if len(name) <= 17 else name[:16] + "…"


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
