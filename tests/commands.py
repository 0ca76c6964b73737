"""The command line as tests use it."""

import json

from typer.testing import CliRunner

from probagg.app.cli.commands import app
from probagg.storage import checksum


def probagg(*arguments):
    """Any command."""
    return CliRunner().invoke(app, [*map(str, arguments)])


def cluster(source, *arguments):
    """probagg cluster without the page."""
    return probagg("cluster", source, "--no-report", *arguments)


def cluster_by_pac(source, *arguments):
    return cluster(source, "--method", "pac", *arguments)


def reseal(run):
    """Let the manifest of a run list what its files have now, as somebody who changes both."""
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in manifest["sha256"]:
        if (run / name).is_file():
            manifest["sha256"][name] = checksum(run / name)
    path.write_text(json.dumps(manifest))
