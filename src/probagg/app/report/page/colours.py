"""Distinct colours for any number of clusters, on light and on dark pages."""

from __future__ import annotations

import functools

import numpy as np

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
