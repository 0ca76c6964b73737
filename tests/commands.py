"""The command line as tests use it."""

from typer.testing import CliRunner

from probagg.app.cli.commands import app


def probagg(*arguments):
    """Any command."""
    return CliRunner().invoke(app, [*map(str, arguments)])


def cluster(source, *arguments):
    """probagg cluster without the page, whose map takes seconds."""
    return probagg("cluster", source, "--no-report", *arguments)


def cluster_by_pac(source, *arguments):
    return cluster(source, "--method", "pac", *arguments)
