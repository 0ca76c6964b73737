"""The tables of a run folder."""

from __future__ import annotations

import csv
import io

import numpy as np


def assignments(P: np.ndarray, paths: list[str] | None = None) -> str:
    """One line an image or row: the most and the second most probable cluster."""
    ranked = (-P).argsort(axis=1, kind="stable")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    name = "row" if paths is None else "path"
    table.writerow([name, "cluster", "probability", "second_cluster", "second_probability"])
    for row, clusters in enumerate(ranked):
        first = clusters[0]
        second = [clusters[1], f"{P[row, clusters[1]]:.6f}"] if P.shape[1] > 1 else ["", ""]
        where = row if paths is None else paths[row]
        table.writerow([where, first, f"{P[row, first]:.6f}", *second])
    return text.getvalue()
