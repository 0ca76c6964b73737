"""The files of a run folder, read as what the pages show; and its review, read and written."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Callable, Iterable
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np

from probagg.assignments import Assignments
from probagg.data.cells import days_of
from probagg.data.labels import UNKNOWN, read_labels
from probagg.errors import NoData
from probagg.report.contents import Contents, Pair, Profiles, Row
from probagg.review import Review, ReviewError
from probagg.run.folder import RunFolderError, add_to_run
from probagg.run.layout import REVIEW
from probagg.run.preparation import FILE, Preparation

Part = TypeVar("Part")
ASSIGNMENTS = "assignments.csv"
_STATISTICS = ("mean", "q25", "median", "q75")


def read_contents(run: str | PathLike[str]) -> Contents:
    """Read a run folder; a missing or damaged file is an error that names it."""
    run = Path(run)
    for name in ("config.toml", "result.json", ASSIGNMENTS):
        if not (run / name).is_file():
            raise RunFolderError(
                f"{run} has no {name}. Give the folder of a finished run, as --out named it."
            )
    n_clusters = read_n_clusters(run)
    assigned = Assignments.read(run / ASSIGNMENTS, n_clusters)
    config_text = _text(run / "config.toml")
    return Contents(
        run=run,
        config=_checked(run / "config.toml", lambda _: tomllib.loads(config_text)),
        config_text=config_text,
        env=_checked(run / "env.json", _json),
        result=_checked(run / "result.json", _json),
        records=_read_records(run / "metrics.jsonl"),
        review=read_review(run),
        n_clusters=n_clusters,
        assigned=assigned,
        classes=_classes(run / "classes.csv", assigned.names),
        places=_checked(run / "map.npz", lambda path: _places(path, len(assigned))),
        overlaps=_checked(run / "overlaps.csv", lambda path: _overlaps(path, n_clusters)),
        all_profiles=_checked(run / "profiles.csv", lambda path: _profiles(path, n_clusters)),
        candidates=_checked(run / "k_selection.csv", _table),
        skipped=_checked(run / "skipped.csv", _table),
        preparation=_checked(run / FILE, _preparation),
    )


def read_n_clusters(run: str | PathLike[str]) -> int:
    """Return the number of clusters of a run, by its result.json."""
    path = Path(run) / "result.json"
    try:
        return int(json.loads(_text(path))["n_clusters"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"{path} does not give the number of clusters. Give the folder of a finished run."
        ) from error


def read_review(run: str | PathLike[str]) -> Review:
    """Read the review in a run folder; an empty one where there is none."""
    path = Path(run) / REVIEW
    if not path.exists():
        return Review()
    n_clusters = read_n_clusters(run)
    try:
        return Review.from_bytes(path.read_bytes(), n_clusters)
    except ReviewError as error:
        raise ReviewError(
            f"{path} is not a review of this run: {error} Correct it, or remove it to start over."
        ) from error


def write_review(
    run: str | PathLike[str], review: Review, check: Callable[[], None] | None = None
) -> Path:
    """Write review.json into a run folder, whole or not at all, and return its path.

    `check` is called first, while no other process can write, and may raise.
    """
    return add_to_run(run, REVIEW, review.to_bytes(), check)


def _checked(path: Path, read: Callable[[Path], Part]) -> Part:
    """Read a file; damage is an error that names it."""
    try:
        return read(path)
    except (OSError, ValueError, LookupError, TypeError, EOFError, csv.Error, BadZipFile) as error:
        raise RunFolderError(
            f"{path} is damaged ({error!r}). Restore it, or run the command again."
        ) from error


def _text(path: Path) -> str:
    # A file name need not be valid UTF-8; it is kept as it is here and cleaned when shown.
    return path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else ""


def _json(path: Path) -> dict[str, Any]:
    return json.loads(_text(path) or "{}")


def _table(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def _read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a run, without a line that a killed process left half written."""
    records = []
    for line in _text(path).splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _classes(path: Path, names: list[str]) -> list[str | None] | None:
    """Read the class of each sample; None where no class is known."""
    try:
        classes = read_labels(path, names)
    except NoData:
        return None
    return [classes.names[k] if k != UNKNOWN else None for k in classes.y]


def _places(path: Path, n_samples: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Read the positions on the map."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        rows, xy = arrays["rows"], arrays["xy"]
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
        for row in _table(path)
    ]


def _profiles(path: Path, n_clusters: int) -> Profiles | None:
    table = _table(path)
    if not table:
        return None
    kinds = {row["column"]: row.get("kind") or "number" for row in table}
    columns = {column: j for j, column in enumerate(kinds)}
    clusters = sorted({_cluster(row["cluster"], n_clusters) for row in table})
    values = np.zeros((len(_STATISTICS), len(clusters), len(columns)))
    for row in table:
        place = clusters.index(int(row["cluster"])), columns[row["column"]]
        values[:, *place] = _numbers((row[name] for name in _STATISTICS), kinds[row["column"]])
    return Profiles(clusters, list(columns), list(kinds.values()), *values)


def _numbers(values: Iterable[str], kind: str) -> np.ndarray:
    """Return mean and quartiles; a date as days since 1970, a share in the place of each."""
    if kind == "date":
        return np.array([days_of(date.fromisoformat(v)) if v else np.nan for v in values])
    found = np.array([float(value) if value else np.nan for value in values])
    return np.full(len(found), found[0]) if kind == "share" else found


def _preparation(path: Path) -> list[Row]:
    return Preparation.from_json(_text(path)).table() if path.is_file() else []
