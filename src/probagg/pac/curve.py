"""Curves against a whole number, as SVG by hand: no plotting library, any background."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

WIDTH, PANEL, GAP = 480, 130, 26  # in pixels: the picture, a panel, the space between panels
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 22, 38


@dataclass(frozen=True)
class Curve:
    """Values to draw in a panel of their own, each plus or minus its spread."""

    name: str
    values: list[float]
    spreads: list[float]

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and highest thing drawn; 0 is always in sight."""
        low = min(0.0, *(v - s for v, s in zip(self.values, self.spreads, strict=True)))
        high = max(0.0, *(v + s for v, s in zip(self.values, self.spreads, strict=True)))
        return low, high if high > low else low + 1.0


def draw(x_name: str, x: list[int], curves: list[Curve], chosen: int) -> str:
    """One panel a curve, above each other, with the chosen x marked.

    Everything is drawn in `currentColor`, so the picture suits light and dark pages alike.
    """
    height = TOP + len(curves) * (PANEL + GAP) - GAP + BOTTOM
    span = max(1, x[-1] - x[0])

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((value - x[0]) / span if len(x) > 1 else 0.5)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        'role="img" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        f"<title>{escape(' and '.join(c.name for c in curves))} against the number of "
        f"{escape(x_name)}; {chosen} is chosen</title>",
    ]
    for i, curve in enumerate(curves):
        parts += _panel(curve, [across(value) for value in x], TOP + i * (PANEL + GAP))
    at, bottom = across(chosen), height - BOTTOM
    parts.append(
        f'<path d="M{at:.1f} {TOP}V{bottom}" stroke="currentColor" stroke-dasharray="4 3"/>'
    )
    shown = {x[0], x[-1], *(value for value in x if value % _step(span) == 0)}
    for value in sorted(value for value in shown if abs(value - chosen) >= span / 20):
        parts.append(_text(across(value), bottom + 16, str(value), "middle"))
    parts.append(_text(at, bottom + 16, str(chosen), "middle", ' font-weight="bold"'))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, height - 6, x_name, "middle"))
    return "\n".join([*parts, "</svg>\n"])


def _panel(curve: Curve, across: list[float], top: float) -> list[str]:
    """One curve with its spread as a band, a line at 0, and the limits on the left."""
    low, high = curve.limits

    def down(value: float) -> float:
        return top + PANEL * (high - value) / (high - low)

    points = list(zip(across, curve.values, curve.spreads, strict=True))
    upper = [f"{x:.1f},{down(v + s):.1f}" for x, v, s in points]
    lower = [f"{x:.1f},{down(v - s):.1f}" for x, v, s in reversed(points)]
    line = " ".join(f"{x:.1f},{down(v):.1f}" for x, v, _ in points)
    parts = [
        _text(LEFT, top - 7, curve.name, "start"),
        f'<path d="M{LEFT} {down(0.0):.1f}H{WIDTH - RIGHT}" stroke="currentColor" opacity="0.4"/>',
        f'<polygon points="{" ".join(upper + lower)}" opacity="0.15"/>',
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/>',
    ]
    parts += [f'<circle cx="{x:.1f}" cy="{down(v):.1f}" r="2"/>' for x, v, _ in points]
    for value in {low, 0.0, high}:
        if value == 0.0 or PANEL * abs(value) / (high - low) > 14:  # room for two numbers
            parts.append(_text(LEFT - 8, down(value) + 4, f"{value:.3g}", "end"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _step(span: int) -> int:
    """A round number of which a handful fit into the span."""
    return next((step for step in (1, 2, 5, 10, 20, 50, 100) if span <= 8 * step), 200)
