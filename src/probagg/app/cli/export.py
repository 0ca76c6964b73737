"""probagg export: the model or the clusters of a run for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probagg.app.cli.options import AsJson, Overwrite, RunPath, TrustCode, example
from probagg.app.cli.terminal import Terminal, guarded
from probagg.app.run.exports import write_export
from probagg.app.run.run import open_run

EXAMPLE = example(
    "probagg export runs/photos --format onnx",
    "Writes runs/photos/model.onnx, with pixels as input and probabilities as output, after a "
    "comparison with PyTorch. It contains the names and merges of probagg report --serve.\n\n",
    "--format label-studio, fiftyone or anndata (.h5ad) writes the clusters for other tools to "
    "--out.",
)


def export(
    run: RunPath,
    how: Annotated[
        str,
        typer.Option(
            "--format",
            help="For the model: onnx. For the clusters: label-studio, fiftyone, anndata.",
        ),
    ] = "onnx",
    features: Annotated[
        bool,
        typer.Option(
            "--features", help="Export without the backbone: the input is features, not pixels."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder to write; required for clusters. [default: model.onnx in RUN]"
        ),
    ] = None,
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Export the model of a RUN, or its clusters for other tools."""
    terminal = Terminal(aside=as_json)
    with guarded(terminal, as_json=as_json) as give:
        opened = open_run(run, trust_code=trust_code)
        give(
            write_export(opened, how, out, features=features, overwrite=overwrite, monitor=terminal)
        )
