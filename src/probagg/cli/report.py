"""probagg report: the page of a run, written or served."""

from __future__ import annotations

from typing import Annotated

import typer

from probagg.cli.errors import guarded
from probagg.cli.opened_run import OpenedRun
from probagg.cli.options import AsJson, Run, example
from probagg.cli.terminal import Voice
from probagg.errors import InputError
from probagg.run.folder import add_to_run
from probagg.storage import encode

EXAMPLE = example(
    "probagg report runs/photos --serve",
    "Opens a page to name and merge clusters and to move images; predict and export heed it.",
)


def report(
    run: Run,
    serve: Annotated[
        bool, typer.Option("--serve", help="Name, merge and move in a local page.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="With --serve: open the browser.")
    ] = True,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="With --serve. [default: any free one]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write report.html of a RUN anew, or serve a page to review it (127.0.0.1 only)."""
    voice = Voice(aside=as_json)
    with guarded(voice, as_json=as_json) as give:
        opened = OpenedRun.of(run)
        if not serve and (not browser or port is not None):
            raise InputError(
                "--no-browser and --port belong to --serve. Add it, or leave them out."
            )
        if serve:
            from probagg.run.reporting import serve_review

            said = lambda url: voice.say(f"Review {run} at {url}  (Ctrl-C or Done ends it)")  # noqa: E731
            serve_review(run, open_browser=browser, port=port or 0, on_ready=said)
            opened = OpenedRun.of(run)
        from probagg.run.reporting import write_report

        result = {"run": str(run), "report": str(write_report(run))}
        if opened.review:
            table = encode(opened.reviewed_table())
            result["reviewed"] = str(add_to_run(run, "assignments_reviewed.csv", table))
        voice.say(f"written to {' and '.join(list(result.values())[1:])}")
        give(result)
