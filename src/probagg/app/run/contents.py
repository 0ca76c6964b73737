"""The files of a run folder, read as what the pages show; and its review, read and written."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from probagg.app.assignments import Assignments, Further
from probagg.app.report.contents import Change, Contents, Pair, Profiles, Row
from probagg.app.review import MAX_NAME, Review, ReviewError
from probagg.app.run.folder import (
    CHANGES,
    CONFIG,
    DUPLICATES,
    FURTHER,
    MAP,
    REVIEW,
    SUGGESTIONS,
    RunFolderError,
    add_to_run,
    verified,
)
from probagg.app.run.tables import FILE, Preparation
from probagg.data.arrays import read_npz
from probagg.data.cells import PATH, QUOTE, unmarked
from probagg.data.labels import read_labels
from probagg.errors import NoData, reading
from probagg.storage import map_array, parse_toml, read_bytes

Part = TypeVar("Part")
ASSIGNMENTS, RESULT, FEATURES = "assignments.csv", "result.json", "embeddings.npy"
RESTORE = "Restore it, or run the command again."
# The types of what is used of a file, where it is there; float is any finite number.
CONFIG_TYPES: dict[str, type] = {
    "source": str, "kind": str, "method": str, "n_clusters": int, "seed": int, "embed": dict,
    "smooth": bool, "columns": list, "image_size": list, "parent": str, "folders": list,
}  # fmt: skip
RESULT_TYPES: dict[str, type] = {
    "method": str, "n_clusters": int, "n_samples": int, "seconds": float,
    "embedding_seconds": float, "k_seconds": float, "k_reason": str,
    "blank": list,
}  # fmt: skip
ENV_TYPES: dict[str, type] = {"time": str, "command": list, "packages": dict}
# The most clusters of a run or a table, whose numbers anybody may have written.
MAX_CLUSTERS = 2**17
_STATISTICS = ("mean", "q25", "median", "q75")


def read_contents(run: str | PathLike[str]) -> Contents:
    """Read a run folder; a missing or damaged file is an error that names it."""
    run = Path(run)
    for name in (CONFIG, RESULT, ASSIGNMENTS):
        if not (run / name).is_file():
            raise RunFolderError(
                f"{run} has no {name}. Give the folder of a finished run, as --out named it."
            )
    n_clusters = read_n_clusters(run)
    review = read_review(run, n_clusters)
    assigned = read_assignments(run, n_clusters)
    if n_clusters > max(1000, len(assigned)):
        raise RunFolderError(
            f"{run / RESULT} states {n_clusters} clusters of {len(assigned)} samples. {RESTORE}"
        )
    return Contents(
        run=run,
        config=read_config(run),
        config_text=_text(run / CONFIG),
        env=_checked(run, "env.json", lambda path: _json(path, ENV_TYPES)),
        result=read_result(run),
        review=review,
        n_clusters=n_clusters,
        assigned=assigned,
        classes=_checked(run, "classes.csv", lambda path: _classes(path, assigned.names)),
        places=_checked(run, MAP, lambda path: _places(path, len(assigned))),
        overlaps=_checked(run, "overlaps.csv", lambda path: _overlaps(path, n_clusters)),
        all_profiles=_checked(run, "profiles.csv", lambda path: _profiles(path, n_clusters)),
        cells=_checked(run, "cells.csv", lambda path: _cells(path, len(assigned))),
        candidates=_checked(run, "k_selection.csv", lambda path: _table(path, ("n_clusters",))),
        skipped=_checked(run, "skipped.csv", lambda path: _table(path, ("path", "reason"))),
        preparation=Preparation.load(verified(run, FILE)).lines if (run / FILE).exists() else [],
        representatives=_checked(run, DUPLICATES, lambda path: _representatives(path, assigned)),
        changes=_checked(run, CHANGES, lambda path: _changes(path, assigned, review, n_clusters)),
        suggestions=_checked(run, SUGGESTIONS, lambda path: _suggestions(path, n_clusters)),
    )


def read_assignments(run: str | PathLike[str], n_clusters: int) -> Assignments:
    """Read the table of a run, with what merges need of further probabilities, where it is kept."""
    table = Assignments.read(verified(run, ASSIGNMENTS), n_clusters)
    further = _checked(run, FURTHER, lambda path: _further(path, len(table), n_clusters))
    return replace(table, further=further)


def _further(path: Path, n_samples: int, n_clusters: int) -> Further | None:
    if not path.exists():
        return None
    found = Further(**read_npz(path))
    for values, limit in ((found.row, n_samples), (found.cluster, n_clusters)):
        if values.dtype.kind not in "iu" or values.shape != found.probability.shape:
            raise ValueError("its arrays do not belong together")
        if len(values) and not 0 <= values.min() <= values.max() < limit:
            raise ValueError(f"a row or cluster is not among 0 to {limit - 1}")
    p = found.probability
    if p.ndim != 1 or p.dtype.kind != "f" or not ((p >= 0.0) & (p <= 1.0)).all():
        raise ValueError("a probability is not between 0 and 1")
    return found


def read_config(run: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of config.toml, with what is used of it checked."""
    return _checked(run, CONFIG, _config)


def _config(path: Path) -> dict[str, Any]:
    config = _shaped(parse_toml(_text(path)), CONFIG_TYPES)
    for key, known in (("kind", ("images", "matrix")), ("method", ("pac", "dpac"))):
        if config.get(key, known[0]) not in known:
            raise ValueError(f"{key} is {config[key]!r:.40}, not one of {', '.join(known)}")
    embed = config.get("embed", {"backbone": ""})
    for key in ("backbone", "identity"):
        if type(embed.get(key, None if key == "backbone" else "")) is not str:
            raise ValueError(f"embed.{key} is not text")
    if not 1 <= config.get("n_clusters", 1) <= MAX_CLUSTERS:
        raise ValueError(f"n_clusters is {config['n_clusters']!r:.40}")
    if not all(isinstance(name, str) for name in config.get("columns", [])):
        raise ValueError("columns are not names")
    if not all(type(side) is int and side > 0 for side in config.get("image_size", [])):
        raise ValueError("image_size is not a height and a width")
    return config


def read_result(run: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of result.json, with what is used of it checked."""
    return _checked(run, RESULT, lambda path: _json(path, RESULT_TYPES))


def read_n_clusters(run: str | PathLike[str]) -> int:
    """Return the number of clusters of a run, by its result.json."""
    found = read_result(run).get("n_clusters") or 0
    if not 1 <= found <= MAX_CLUSTERS:
        raise RunFolderError(
            f"{Path(run) / RESULT} does not give the number of clusters. Give the folder of a "
            "finished run."
        )
    return found


def read_review(run: str | PathLike[str], n_clusters: int | None = None) -> Review:
    """Read the review in a run folder, of so many clusters; an empty one where there is none."""
    path, remedy = verified(run, REVIEW), "Correct it, or remove it to start over."
    if not path.exists():
        return Review()
    try:
        with reading(path, remedy, ReviewError):
            return Review.from_bytes(read_bytes(path), n_clusters or read_n_clusters(run))
    except ReviewError as error:
        raise ReviewError(f"{path} is not a review of this run: {error} {remedy}") from error


def read_features(run: str | PathLike[str], n_samples: int | None = None) -> np.ndarray | None:
    """Return the features of a run's samples, (n, D), memory-mapped; None where it has none."""
    path = verified(run, FEATURES)
    if not path.is_file():
        return None
    remedy = "Run the command again, or remove the file for a page without splits."
    with reading(path, remedy, RunFolderError, "an array"):
        X = map_array(path)
        if X.ndim != 2 or len(X) != (len(X) if n_samples is None else n_samples):
            raise ValueError(f"its shape is {X.shape}, but {n_samples} rows are needed")
    return X


def write_review(
    run: str | PathLike[str], review: Review, check: Callable[[], None] | None = None
) -> Path:
    """Write review.json into a run folder, whole or not at all, and return its path.

    `check` is called first, while no other process can write, and may raise.
    """
    return add_to_run(run, REVIEW, review.to_bytes(), check)


def _checked(run: str | PathLike[str], name: str, read: Callable[[Path], Part]) -> Part:
    """Read a file of a run; damage is an error that names it."""
    with reading(Path(run) / name, RESTORE, RunFolderError):
        return read(verified(run, name))


def _text(path: Path) -> str:
    # A file name need not be valid UTF-8; it is kept as it is here and cleaned when shown.
    return read_bytes(path).decode("utf-8", "surrogateescape") if path.exists() else ""


def _json(path: Path, types: dict[str, type]) -> dict[str, Any]:
    return _shaped(json.loads(_text(path) or "{}"), types)


def _shaped(value: Any, types: dict[str, type]) -> dict[str, Any]:
    """Return a table of keys whose values have the types of those that are used."""
    if not isinstance(value, dict):
        raise ValueError("it is not a table of keys and values")
    for key, kind in types.items():
        found = value.get(key)
        good = type(found) is kind
        if kind is float and isinstance(found, int | float):
            good = not isinstance(found, bool) and math.isfinite(found)
        if found is not None and not good:
            raise ValueError(f"{key} is {found!r:.40}, but {kind.__name__} is needed")
    return value


def _table(path: Path, columns: Sequence[str] = ()) -> list[Row]:
    """Return the lines of a table that has at least these columns; none where there is no file."""
    table = list(csv.DictReader(io.StringIO(_text(path), newline="")))
    for row in table:
        if None in row or None in row.values() or not set(columns) <= row.keys():
            raise ValueError(f"a line does not fit its header: {[*row.values()]!r:.80}")
    return table


def _classes(path: Path, names: list[str]) -> list[str | None] | None:
    """Read the class of each sample; None where no class is known."""
    try:
        return read_labels(path, names).texts()
    except NoData:
        return None


def _places(path: Path, n_samples: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Read rows and their positions on the map."""
    if not path.exists():
        return None
    arrays = read_npz(path)
    rows, xy = arrays["rows"], arrays["xy"]
    if rows.dtype.kind not in "iu" or xy.dtype.kind != "f" or xy.shape != (*rows.shape, 2):
        raise ValueError("its arrays do not belong together")
    known = (rows >= 0) & (rows < n_samples) & np.isfinite(xy).all(axis=1)
    return rows[known], np.clip(xy[known], 0.0, 1.0)


def _cluster(text: str, n_clusters: int) -> int:
    if not 0 <= int(text) < n_clusters:
        raise ValueError(f"cluster {text} is not among 0 to {n_clusters - 1}")
    return int(text)


def _overlaps(path: Path, n_clusters: int) -> list[Pair]:
    return [
        Pair(
            _cluster(row["first"], n_clusters),
            _cluster(row["second"], n_clusters),
            float(row["mean_probability"]),
            int(row["samples"]),
        )
        for row in _table(path, ("first", "second", "mean_probability", "samples"))
    ]


def _profiles(path: Path, n_clusters: int) -> Profiles | None:
    table = _table(path, ("cluster", "column", *_STATISTICS))
    if not table:
        return None
    for row in table:
        row["column"] = unmarked(row["column"], QUOTE)
    kinds = {row["column"]: row.get("kind") or "number" for row in table}
    columns = {column: j for j, column in enumerate(kinds)}
    clusters = sorted({_cluster(row["cluster"], n_clusters) for row in table})
    values = np.zeros((len(_STATISTICS), len(clusters), len(columns)))
    for row in table:
        place = clusters.index(int(row["cluster"])), columns[row["column"]]
        values[:, *place] = _numbers((row[name] for name in _STATISTICS), kinds[row["column"]])
    return Profiles(clusters, list(columns), list(kinds.values()), *values)


def _changes(path: Path, assigned: Assignments, review: Review, n_clusters: int) -> list[Change]:
    """Read which samples came from another cluster; both must still be clusters."""
    rows = {name: row for row, name in enumerate(assigned.names)}
    shown = set(review.clusters(n_clusters))
    mark = PATH if assigned.heading == "path" else None
    found = []
    for line in _table(path, ("name", "before", "after")):
        name = line["name"] if mark is None else unmarked(line["name"], mark)
        change = Change(rows[name], int(line["before"]), int(line["after"]))
        if {change.before, change.after} <= shown:
            found.append(change)
    return found


def _suggestions(path: Path, n_clusters: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for row in _table(path, ("cluster", "suggestion")):
        name = unmarked(row["suggestion"], QUOTE)[:MAX_NAME]
        found.setdefault(_cluster(row["cluster"], n_clusters), []).append(name)
    return found


def _cells(path: Path, n_samples: int) -> dict[int, list[tuple[str, str]]]:
    """Read names of columns and cells, by the row of the table they are of."""
    found: dict[int, list[tuple[str, str]]] = {}
    for line in _table(path, ("place", "column", "cell")):
        if not 0 <= int(line["place"]) < n_samples:
            raise ValueError(f"row {line['place']!r:.40} is not in the run")
        cell = unmarked(line["column"], QUOTE), unmarked(line["cell"], QUOTE)
        found.setdefault(int(line["place"]), []).append(cell)
    return found


def _numbers(values: Iterable[str], kind: str) -> np.ndarray:
    """Return mean and quartiles; a date as days since 1970, a share in the place of each."""
    if kind == "date":
        days = [(date.fromisoformat(v) - date(1970, 1, 1)).days if v else np.nan for v in values]
        return np.array(days, float)
    found = np.array([float(value) if value else np.nan for value in values])
    return np.full(len(found), found[0]) if kind == "share" else found


def _representatives(path: Path, assigned: Assignments) -> np.ndarray:
    """Read the row of the photo that represents each sample; itself where none is listed."""
    rows = {name: row for row, name in enumerate(assigned.names)}
    found = np.arange(len(assigned))
    for line in _table(path, (assigned.heading, "representative")):
        name, first = (unmarked(line[key], PATH) for key in (assigned.heading, "representative"))
        if not {name, first} <= rows.keys():
            raise ValueError(f"{name!r:.40} or {first!r:.40} is not a sample of the run")
        found[rows[name]] = rows[first]
    return found
