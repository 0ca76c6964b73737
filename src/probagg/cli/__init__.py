"""The command line. Only this package prints."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import probagg
from probagg.cli import bench, cluster, evaluate, export, predict, report
from probagg.cli.terminal import INTERRUPTED

app = typer.Typer(
    name="probagg",
    help="Cluster without labels, by probability aggregation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(epilog=cluster.EXAMPLE)(cluster.cluster)
app.command(epilog=predict.EXAMPLE)(predict.predict)
app.command(epilog=evaluate.EXAMPLE)(evaluate.evaluate)
app.command(epilog=report.EXAMPLE)(report.report)
app.command(epilog=export.EXAMPLE)(export.export)
app.command(epilog=bench.EXAMPLE)(bench.bench)


def main() -> None:
    """The console script."""
    try:
        app()
    except KeyboardInterrupt:  # before a command could say more
        sys.exit(INTERRUPTED)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"probagg {probagg.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
