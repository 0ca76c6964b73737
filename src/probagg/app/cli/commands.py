"""The commands of the command line."""

from __future__ import annotations

from typing import Annotated

import typer

import probagg
from probagg.app.cli import cluster, compare, evaluate, export, predict, report
from probagg.app.cli.terminal import show

app = typer.Typer(
    name="probagg",
    help="Cluster without labels, by probability aggregation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("cluster", epilog=cluster.EXAMPLE)(cluster.cluster_command)
app.command(epilog=predict.EXAMPLE)(predict.predict)
app.command("evaluate", epilog=evaluate.EXAMPLE)(evaluate.evaluate_command)
app.command(epilog=report.EXAMPLE)(report.report)
app.command(epilog=export.EXAMPLE)(export.export)
app.command(epilog=compare.EXAMPLE)(compare.compare)


def _version(wanted: bool) -> None:
    if wanted:
        show(f"probagg {probagg.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
