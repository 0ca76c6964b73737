"""probagg export: the model or the clusters of a run for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probagg.cli.errors import guarded
from probagg.cli.options import AsJson, Overwrite, Run, TrustCode, example
from probagg.cli.terminal import Terminal
from probagg.run.exporting import write_export
from probagg.run.opened import open_run

EXAMPLE = example(
    "probagg export runs/photos --format onnx",
    "Writes runs/photos/model.onnx, which takes pixels and gives probabilities; it is checked "
    "against PyTorch first. Names and merges of probagg report --serve are in it. Of a DPAC run, "
    "--format compact writes a folder for probagg predict: weights of half the size, in files of "
    "15 MiB at most. The clusters go to other tools with --format label-studio, fiftyone, datasets "
    "(a .parquet file with the photos) or anndata (.h5ad), and --out.",
)


def export(
    run: Run,
    how: Annotated[
        str,
        typer.Option(
            "--format",
            help="The model: onnx, safetensors, compact. The clusters: label-studio, fiftyone, "
            "datasets, anndata.",
        ),
    ] = "onnx",
    features: Annotated[
        bool,
        typer.Option("--features", help="Without the backbone: features in, probabilities out."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where; clusters need it. [default: in RUN: model.onnx, exported.safetensors, "
            "compact]"
        ),
    ] = None,
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Write the model of a RUN (ONNX, safetensors, compact) or its clusters for other tools."""
    terminal = Terminal(aside=as_json)
    with guarded(terminal, as_json=as_json) as give:
        opened = open_run(run, trust_code=trust_code)
        opened.check_is_run()
        give(
            write_export(opened, how, out, features=features, overwrite=overwrite, monitor=terminal)
        )
