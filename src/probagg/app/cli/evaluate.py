"""probagg evaluate: a run against known classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from probagg.app.cli.options import AsJson, example
from probagg.app.cli.terminal import Terminal, guarded
from probagg.app.run.result import scores_line
from probagg.app.run.run import evaluate_table, open_run

EXAMPLE = example(
    "probagg evaluate runs/photos --labels truth.csv",
    "truth.csv has one line path,class per image; images without a line are left out. Paths are "
    "absolute, or relative to the folder that was clustered. A file with further columns needs a "
    "header that names the columns path and class.",
)
# The most classes that the terminal shows as a matrix.
WIDEST = 20


def evaluate_command(
    run: Annotated[
        Path,
        typer.Argument(help="A run folder of probagg cluster, or a CSV file of probagg predict."),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV of path,class or row,class. An assignments.csv compares two clusterings. "
            "[default: the classes of the run]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare clusters with known classes (ACC, NMI, ARI).

    The clusters are those of a RUN, or those that probagg predict wrote for new samples.
    """
    terminal = Terminal(aside=as_json)
    with guarded(terminal, as_json=as_json) as give:
        result = evaluate_table(run, labels) if run.is_file() else open_run(run).evaluate(labels)
        n = f"{result['n_labelled']:,} of {result['n_samples']:,} samples with a class"
        terminal.say(scores_line(f"{run}, {n}", result))
        _say_clusters(terminal, result["clusters"])
        if len(result["classes"]) <= WIDEST:
            _say_confusion(terminal, np.array(result["confusion"]), result["classes"])
        give(result)


def _say_clusters(terminal: Terminal, clusters: list[dict[str, Any]]) -> None:
    width = max(len(c["name"]) for c in clusters)
    for c in clusters:
        purity = f"{100 * c['purity']:5.1f} % {c['class']}"
        terminal.say(f"  {c['name']:<{width}}  {c['size']:>6}  {purity}")


def _say_confusion(terminal: Terminal, counts: np.ndarray, names: list[str]) -> None:
    shown = [name[:10] for name in names]
    widths = [
        max(len(name), len(str(column.max()))) for name, column in zip(shown, counts.T, strict=True)
    ]
    terminal.say("confusion (clusters down, classes across):")
    terminal.say(" " * 6 + "  ".join(f"{n:>{w}}" for n, w in zip(shown, widths, strict=True)))
    for k, row in enumerate(counts):
        if row.sum():
            cells = "  ".join(f"{n or '.':>{w}}" for n, w in zip(row, widths, strict=True))
            terminal.say(f"  {k:>3} {cells}")
