"""Profiles: what the rows of each cluster have in common, in the user's units."""

from __future__ import annotations

import csv
import io
import warnings
from typing import Any

import numpy as np

from probagg.app.run.samples import Samples
from probagg.data.tables import date_text

LARGE, SAMPLE = 2**26, 2**24  # numbers in a matrix of which profiles.csv is of a sample; in that
MOST_COLUMNS = 60  # of a matrix that profiles.csv holds
QUARTILES = (0.25, 0.5, 0.75)


def profiles_table(samples: Samples, labels: np.ndarray, K: int) -> str:
    """Return mean and quartiles per cluster, as CSV, of the columns that differ most.

    Those of a table are in its units: dates as dates, and for categories and booleans the share of
    rows, which has no quartiles. Missing values do not count.
    """
    X: Any = samples.features if samples.units is None else samples.units
    names = samples.columns or [f"column {j}" for j in range(X.shape[1])]
    kinds = ["number"] * X.shape[1]
    if samples.preparation is not None:
        kinds = samples.preparation.kinds
    X, labels = _some(X, labels)
    clusters = [k for k in range(K) if (labels == k).any()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a cluster without any value of a column
        means = np.array([np.nanmean(X[labels == k], 0, dtype=np.float64) for k in clusters])
        spread = np.nanstd(means, 0) / np.maximum(np.nanstd(X, 0, dtype=np.float64), 1e-300)
        shown = np.sort(np.argsort(-spread, kind="stable")[:MOST_COLUMNS])
        rows = []
        for k, mean in zip(clusters, means, strict=True):
            quartiles = np.nanquantile(X[labels == k][:, shown], QUARTILES, axis=0)
            for i, j in enumerate(shown):
                cells = _cells(kinds[j], mean[j], quartiles[:, i])
                rows.append(
                    [k, names[j], *cells, *([kinds[j]] * (samples.preparation is not None))]
                )
    heads = ["cluster", "column", "mean", "q25", "median", "q75"]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerows([[*heads, *(["kind"] * (samples.preparation is not None))], *rows])
    return text.getvalue()


def _some(X: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows, or a sample of them where they are many, in memory and dense."""
    if X.shape[0] * X.shape[1] > LARGE:
        size = min(X.shape[0], max(1, SAMPLE // X.shape[1]))
        some = np.sort(np.random.default_rng(0).choice(X.shape[0], size, replace=False))
        X, labels = X[some], labels[some]
    else:
        X = X[:]
    return (X.toarray() if hasattr(X, "toarray") else X), labels


def _cells(kind: str, mean: float, quartiles: np.ndarray) -> list[str]:
    if kind == "share":
        return [_number(mean), "", "", ""]
    write = _date if kind == "date" else _number
    return [write(float(value)) for value in (mean, *quartiles)]


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6g}"


def _date(value: float) -> str:
    return "" if np.isnan(value) else date_text(np.floor(value))
