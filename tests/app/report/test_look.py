"""Contrast of the colours in both themes, computed from the style sheets."""

import re

import numpy as np
import pytest

from probagg.app.report.groups import palette
from probagg.app.report.rendering import SHARED


def colours_of(name):
    """Return the light and dark values of the variables in a style sheet."""
    css = (SHARED / name).read_text()
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)
    return [{n: value[i] for n, *value in pairs} for i in range(2)]


def channels(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], dtype=float)


def luminance(colour):
    v = channels(colour) / 255
    v = np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)
    return float(v @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


TEXT = [
    (text, ground) for text in ("ink", "soft", "accent") for ground in ("paper", "card", "well")
]
TEXT += [(f"{kind}", f"{kind}-well") for kind in ("accent", "warn", "bad", "good")]
TEXT += [("accent-ink", "accent")]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT)
def test_text_can_be_read_in_both_themes(text, ground, theme):
    """WCAG 2 AA requires 4.5 to 1."""
    colours = colours_of("style.css")[theme]
    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_edges_and_cluster_colours_can_be_seen_in_both_themes(theme):
    """WCAG 2 AA requires 3 to 1 for what is not text; beside a name, 2.2 is enough."""
    colours = colours_of("style.css")[theme]
    assert contrast(colours["edge"], colours["card"]) >= 3
    assert min(contrast(pair[theme], colours["card"]) for pair in palette(20)) >= 2.2


def test_twenty_colours_differ_and_a_hundred_are_distinct():
    light = np.array([channels(first) for first, _ in palette(20)])
    gaps = np.linalg.norm(light[:, None] - light[None], axis=2) + 999 * np.eye(20)
    assert gaps.min() > 35  # of 255, in the nearest pair
    assert len(set(palette(100))) == 100
