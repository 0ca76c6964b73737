"""Curves as SVG, built as trees of elements, so that no name can be read as markup.

Elements carry classes and no colours: a page styles them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np

Element = ElementTree.Element

# The size of a curve, and the area of its line.
WIDTH, HEIGHT = 320.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 308.0, 12.0, 124.0


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
