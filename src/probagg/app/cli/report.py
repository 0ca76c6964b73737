"""probagg report: the page of a run, written or served."""

from __future__ import annotations

from typing import Annotated

import typer

from probagg.app.cli.options import AsJson, RunPath, example
from probagg.app.cli.terminal import Terminal, guarded
from probagg.app.run.run import open_run
from probagg.errors import InputError

EXAMPLE = example(
    "probagg report runs/photos --serve",
    "Opens a page to name, merge and split clusters, and to move and discard images. predict and "
    "export apply these changes.",
)


def report(
    run: RunPath,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve a local page to review the clusters.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="With --serve: open the browser.")
    ] = True,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="With --serve: the port. [default: any free one]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the page of a RUN, or serve it for review.

    Writes report.html. --serve serves a page on 127.0.0.1 only.
    """
    terminal = Terminal(aside=as_json)
    with guarded(terminal, as_json=as_json) as give:
        opened = open_run(run)
        if not serve and (not browser or port is not None):
            raise InputError("--no-browser and --port belong to --serve. Add it, or drop them.")
        if serve:
            opened.serve_review(
                open_browser=browser,
                port=port or 0,
                on_ready=lambda url: terminal.say(
                    f"Review {run} at {url}  (Ctrl-C or Done ends it)"
                ),
            )
        result = {"run": str(run), "report": str(opened.report())}
        if opened.review:
            result["reviewed"] = str(opened.write_reviewed_table())
        terminal.say(f"written to {' and '.join(list(result.values())[1:])}")
        give(result)
