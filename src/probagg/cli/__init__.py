"""The command line. Only this package prints."""

from __future__ import annotations

from typing import Annotated

import typer

import probagg
from probagg.cli.cluster import EXAMPLE, cluster

app = typer.Typer(
    name="probagg",
    help="Cluster without labels, by probability aggregation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(epilog=EXAMPLE)(cluster)


def main() -> None:
    """The console script."""
    app()


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
