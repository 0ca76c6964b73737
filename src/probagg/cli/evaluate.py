"""probagg evaluate: a run against known classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from probagg.cli.errors import guarded
from probagg.cli.opened_run import OpenedRun
from probagg.cli.options import AsJson, Run, example
from probagg.cli.terminal import Voice
from probagg.data.labels import Classes, read_labels
from probagg.errors import NoData

EXAMPLE = example(
    "probagg evaluate runs/photos --labels truth.csv",
    "truth.csv has lines of path,class; images without a line are left out.",
)
WIDEST = 20  # classes that the terminal shows as a matrix


def evaluate(
    run: Run,
    labels: Annotated[
        Path | None,
        typer.Option(help="CSV of path,class or row,class. [default: the classes of the run]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the clusters of a RUN with known classes: ACC, NMI, ARI, confusion, each cluster."""
    voice = Voice(aside=as_json)
    with guarded(voice, as_json=as_json) as give:
        from probagg.metrics import evaluate as score

        opened = OpenedRun.of(run)
        assigned = opened.review.apply(opened.assignments())
        clusters = assigned.cluster
        classes = read_labels(_file(opened, labels), assigned.names)
        known = classes.known
        result: dict[str, Any] = {
            "run": str(run),
            "n_labelled": int(known.sum()),
            **score(classes.y[known], clusters[known]),
        }
        counts = _confusion(clusters[known], classes.of(known), opened.n_clusters)
        result |= {"classes": classes.names, "clusters": _each(counts, classes, opened)}
        result["confusion"] = counts.tolist()
        voice.say_scores(f"{run}, {known.sum():,} of {len(known):,} samples with a class", result)
        _say_clusters(voice, result["clusters"])
        if len(classes.names) <= WIDEST:
            _say_confusion(voice, counts, classes.names)
        give(result)


def _file(run: OpenedRun, labels: Path | None) -> Path:
    file = labels or run.path / "classes.csv"
    if labels is None and not file.is_file():
        raise NoData(f"{run.path} knows no classes. Give them as --labels truth.csv (path,class).")
    return file


def _confusion(clusters: np.ndarray, classes: Classes, K: int) -> np.ndarray:
    """(K, classes) counts."""
    counts = np.zeros((K, len(classes.names)), int)
    np.add.at(counts, (clusters, classes.y), 1)
    return counts


def _each(counts: np.ndarray, classes: Classes, run: OpenedRun) -> list[dict[str, Any]]:
    """Of every cluster that has samples: its name, size, main class and how much of it that is."""
    return [
        {
            "cluster": k,
            "name": run.review.name_of(k),
            "size": int(row.sum()),
            "class": classes.names[row.argmax()],
            "purity": float(row.max() / row.sum()),
        }
        for k, row in enumerate(counts)
        if row.sum()
    ]


def _say_clusters(voice: Voice, clusters: list[dict[str, Any]]) -> None:
    width = max(len(c["name"]) for c in clusters)
    for c in clusters:
        purity = f"{100 * c['purity']:5.1f} % {c['class']}"
        voice.say(f"  {c['name']:<{width}}  {c['size']:>6}  {purity}")


def _say_confusion(voice: Voice, counts: np.ndarray, names: list[str]) -> None:
    shown = [name[:10] for name in names]
    widths = [
        max(len(name), len(str(column.max()))) for name, column in zip(shown, counts.T, strict=True)
    ]
    voice.say("confusion (clusters down, classes across):")
    voice.say(" " * 6 + "  ".join(f"{n:>{w}}" for n, w in zip(shown, widths, strict=True)))
    for k, row in enumerate(counts):
        if row.sum():
            cells = "  ".join(f"{n or '.':>{w}}" for n, w in zip(row, widths, strict=True))
            voice.say(f"  {k:>3} {cells}")
