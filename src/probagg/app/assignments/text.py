"""assignments.csv, the table of a run as text: its columns, its writer and its reader."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.errors import reading
from probagg.storage import PATH, TEXT, marked, unmarked

if TYPE_CHECKING:
    from probagg.app.assignments.table import Assignments

COLUMNS = ("cluster", "probability", "second_cluster", "second_probability", "distance", "flag")
BORDERLINE, OUTLIER, DISCARDED = "borderline", "outlier", "discarded"
PART_ROWS = 2**16  # of the table, as text at once


def csv_parts(table: Assignments) -> Iterator[str]:
    """Yield the text of a table in parts, the header first."""
    lines: Iterator[Any] = itertools.chain([table], _marked_lines(table))
    while some := list(itertools.islice(lines, PART_ROWS)):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(some)
        yield text.getvalue()


def records(table: Assignments) -> list[dict[str, Any]]:
    """Return a dictionary per sample, with numbers rounded as in the CSV; unknown is None."""
    kinds: dict[str, Any] = {"cluster": int, "second_cluster": int}
    kinds |= dict.fromkeys(("probability", "second_probability", "distance"), float)
    parse = [kinds.get(column, str) for column in table]
    return [
        {
            column: kind(cell) if cell else None
            for column, kind, cell in zip(table, parse, line, strict=True)
        }
        for line in _lines(table)
    ]


def _marked_lines(table: Assignments) -> Iterator[list[str]]:
    """Yield cells whose names of files and of clusters no spreadsheet takes for formulas."""
    for cells in _lines(table):
        if table.heading == "path":
            cells[0] = marked(cells[0], PATH)
        if table.cluster_names:
            cells[-1] = marked(cells[-1], TEXT)
        yield cells


def _lines(table: Assignments) -> Iterator[list[str]]:
    """Yield the cells of each sample as text; what is unknown is empty."""
    names = table.cluster_names
    for i, name in enumerate(table.names):
        second = ["", ""]
        if table.second_cluster[i] >= 0:
            second = [str(table.second_cluster[i]), f"{table.second_probability[i]:.6f}"]
        distance = "" if np.isnan(table.distance[i]) else f"{table.distance[i]:.6g}"
        first = [name, str(table.cluster[i]), f"{table.probability[i]:.6f}"]
        last = [names.get(int(table.cluster[i]), "")] if names else []
        yield [*first, *second, distance, str(table.flag[i]), *last]


def read_fields(path: Path, n_clusters: int | None) -> dict[str, Any]:
    """Return the fields of `Assignments` from a file; an error says what is wrong with it."""
    remedy = "Restore the file, or run probagg cluster again."
    with (
        reading(path, remedy),
        path.open(newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        rows = (row for row in csv.reader(file) if row)
        fields = _parse(next(rows, []), rows)
        _check(fields, n_clusters)
        return fields


def _parse(header: list[str], rows: Iterator[list[str]]) -> dict[str, Any]:
    """Return the fields of `Assignments` from lines of cells, read in parts."""
    if header[:1] == [""] or tuple(header[1:7]) != COLUMNS:
        raise ValueError(f"its first line is {','.join(header)[:80]!r}")
    names: list[str] = []
    cluster_names: dict[int, str] = {}
    parts = []
    while some := list(itertools.islice(rows, PART_ROWS)):
        if uneven := next((row for row in some if len(row) != len(header)), None):
            raise ValueError(
                f"{uneven[0]!r} has {len(uneven)} cells, but the first line has {len(header)}"
            )
        cells = list(zip(*some, strict=True))
        names += [unmarked(c, PATH) for c in cells[0]] if header[0] == "path" else cells[0]
        if header[0] == "row":
            np.array(cells[0], np.int64)  # raises where a row is not a number
        parts.append(_parse_columns(*cells[1:7]))
        if header[7:8] == ["name"]:
            labels = zip(parts[-1][0].tolist(), cells[7], strict=True)
            cluster_names |= {k: unmarked(label, TEXT) for k, label in labels if label}
    if not names:
        raise ValueError("it has no samples")
    return {
        "names": names,
        **join_columns(parts),
        "heading": header[0],
        "cluster_names": cluster_names,
    }


def _check(fields: dict[str, Any], n_clusters: int | None) -> None:
    """Raise an error where a cluster or a probability is out of its range."""
    cluster, second = fields["cluster"], fields["second_cluster"]
    known = np.iinfo(np.int64).max if n_clusters is None else n_clusters
    lowest = np.where(fields["flag"] == DISCARDED, -1, 0)
    highest = max(cluster.max(), second.max())
    if (cluster < lowest).any() or second.min() < -1 or highest >= known:
        raise ValueError(f"a cluster is not among 0 to {known - 1}")
    p = np.concatenate([fields["probability"], fields["second_probability"]])
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise ValueError("a probability is not between 0 and 1")


def _parse_columns(
    first: Any, p_first: Any, second: Any, p_second: Any, distance: Any, flag: Any
) -> tuple[np.ndarray, ...]:
    """Return the arrays of `COLUMNS` from cells of text; what is unknown is empty there."""
    return (
        np.array(first, np.int64),
        np.array(p_first, float),
        np.array([k or -1 for k in second], np.int64),
        np.array([p or 0.0 for p in p_second], float),
        np.array([d or np.nan for d in distance], float),
        np.array(flag, str),
    )


def join_columns(parts: list[tuple[np.ndarray, ...]]) -> dict[str, Any]:
    """Return the columns of a table by name from parts, each with the arrays of `COLUMNS`."""
    joined = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return dict(zip(COLUMNS, joined, strict=True))
