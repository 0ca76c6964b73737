"""What the clusters of a table look like, in its own units: profiles, and cells of some rows."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.run.tables import Preparation
from probagg.data.tables import NUMBER, Table, date_text, places

# From LARGE numbers on, profiles.csv is of a sample of the rows with SAMPLE numbers, and it holds
# at most MOST_COLUMNS columns.
LARGE, SAMPLE = 2**26, 2**24
MOST_COLUMNS = 60
QUARTILES = (0.25, 0.5, 0.75)
# A page shows so many cells of a row; they are kept of so many rows of each kind per cluster.
FEW_COLUMNS, EXAMPLES = 4, 100


def profiles(
    X: Any, labels: np.ndarray, K: int, columns: list[str] | None, preparation: Preparation | None
) -> list[list[Any]]:
    """Return lines of cluster, column, mean and quartiles, of the columns that differ most.

    Those of a table are in its units: dates as dates, and for categories and booleans the share of
    rows, which has no quartiles; the kind comes last. Missing values do not count.
    """
    names = columns or places(X.shape[1])
    kinds = ["number"] * X.shape[1] if preparation is None else preparation.kinds
    is_table = preparation is not None
    X, labels = _some(X, labels)
    clusters, means, order = _telling(X, labels, K)
    shown, rows = np.sort(order[:MOST_COLUMNS]), []
    with warnings.catch_warnings():
        # A cluster may have no value of a column.
        warnings.simplefilter("ignore", RuntimeWarning)
        for k, mean in zip(clusters, means, strict=True):
            quartiles = np.nanquantile(X[labels == k][:, shown], QUARTILES, axis=0)
            for i, j in enumerate(shown):
                cells = _profile(kinds[j], mean[j], quartiles[:, i])
                rows.append([k, names[j], *cells, *([kinds[j]] * is_table)])
    return rows


def _telling(X: np.ndarray, labels: np.ndarray, K: int) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return the clusters with rows, their means, and columns by how much the means differ."""
    clusters = [k for k in range(K) if (labels == k).any()]
    with warnings.catch_warnings():
        # A cluster may have no value of a column.
        warnings.simplefilter("ignore", RuntimeWarning)
        means = np.array([np.nanmean(X[labels == k], 0, dtype=np.float64) for k in clusters])
        spread = np.nanstd(means, 0) / np.maximum(np.nanstd(X, 0, dtype=np.float64), 1e-300)
    return clusters, means, np.argsort(-spread, kind="stable")


def example_cells(
    table: Table, preparation: Preparation, units: np.ndarray, assigned: Assignments, K: int
) -> Iterator[tuple[int, str, str]]:
    """Yield row, column and cell of the rows that a page may show: typical, uncertain and far ones.

    Columns are the few in which the clusters differ most; numbers have six digits.
    """
    parts = (preparation.parts[j] for j in preparation.in_order)
    owners = [part.name for part in parts for _ in part.outputs]
    order = _telling(*_some(units, assigned.cluster), K)[2]
    shown = list(dict.fromkeys(owners[j] for j in order))[:FEW_COLUMNS]
    # The page reads the table, in which most probabilities are 1.000000 and distances decide.
    p, second = assigned.probability.round(6), assigned.second_probability.round(6)
    found = set[int]()
    for key in ((assigned.distance, -p), (p - second,), (-assigned.distance,)):
        ranked = np.lexsort((*key, assigned.cluster))
        first = np.searchsorted(assigned.cluster[ranked], np.arange(K))
        place = np.arange(len(ranked)) - first[assigned.cluster[ranked]]
        found |= set(ranked[place < EXAMPLES].tolist())
    rows = np.array(sorted(found))
    some = table.only(rows)
    for column in (some[name] for name in shown):
        is_text = column.values.dtype == object or column.kind != NUMBER
        cells = column.texts().tolist() if is_text else [f"{v:.6g}" for v in column.values.tolist()]
        for row, cell, is_missing in zip(rows.tolist(), cells, column.is_missing, strict=True):
            if not is_missing:
                yield row, column.name, cell


def _some(X: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows, or a sample of them where they are many, in memory and dense."""
    if X.shape[0] * X.shape[1] > LARGE:
        size = min(X.shape[0], max(1, SAMPLE // X.shape[1]))
        some = np.sort(np.random.default_rng(0).choice(X.shape[0], size, replace=False))
        X, labels = X[some], labels[some]
    else:
        X = X[:]
    return (X.toarray() if hasattr(X, "toarray") else X), labels


def _profile(kind: str, mean: float, quartiles: np.ndarray) -> list[str]:
    """Return mean and quartiles as text, empty where unknown; a share has no quartiles."""
    values = [mean] + [np.nan if kind == "share" else q for q in quartiles.tolist()]
    texts = (date_text(np.floor(v)) if kind == "date" and v == v else f"{v:.6g}" for v in values)
    return ["" if v != v else text for v, text in zip(values, texts, strict=True)]
