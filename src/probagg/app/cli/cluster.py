"""probagg cluster: what to cluster, how, and where the result goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from probagg.app.cli.options import (
    AsJson,
    CopyTo,
    LinkTo,
    Quiet,
    example,
    read_options,
    takes_options,
)
from probagg.app.cli.terminal import Give, Terminal, guarded
from probagg.app.run.options import default_out
from probagg.app.run.output import check_sorting
from probagg.app.run.pipeline import Job, plan
from probagg.data.named import IMAGE_NAMES, NAMES
from probagg.progress import duration

EXAMPLE = example(
    "probagg cluster photos/ -k 20 --out runs/photos",
    "The folder runs/photos then contains the page report.html, the table assignments.csv, the "
    "settings, and a model that assigns new photos (probagg predict runs/photos new/).\n\n\b\nA "
    "table; categories, dates and missing values are prepared:\n  probagg cluster customers.csv "
    "-k auto --id customer",
)
SETS = f"matrices {', '.join(NAMES)}; images {', '.join(IMAGE_NAMES)}"


@takes_options(copy_to="report", link_to="report", dry_run="overwrite")
def cluster_command(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder or .npz file of images, a matrix (.npy, .npz), a table (.csv, "
            f".parquet), an .h5ad file, or a named set: {SETS}."
        ),
    ],
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and stop.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Cluster images, a matrix or a table.

    Writes a run folder with a page, a table of assignments and a model for new samples.
    """
    options["out"] = out = options["out"] or default_out(source)
    terminal = Terminal(quiet=quiet, aside=as_json)
    with guarded(terminal, out, as_json) as give:
        targets = [target for target in (copy_to, link_to) if target is not None]
        for target in targets:
            others = (out, *(t for t in targets if t is not target))
            check_sorting(Path(source).expanduser(), target, *others)
        job = plan(source, read_options(options), terminal, download=not dry_run)
        if job.is_first_process:
            _say_plan(job, terminal, give if dry_run else None)
        if dry_run:
            return
        run = job.run()
        if not job.is_first_process:
            return
        for target in targets:
            link = target == link_to
            n = run.sort_images(target, link=link)
            terminal.say(f"{n:,} images {'linked' if link else 'copied'} to {target}")
        give(run.result)


def _say_plan(job: Job, terminal: Terminal, give: Give | None) -> None:
    """Print one line before work starts; with `give`, hand over the plan as the result."""
    facts = job.describe()
    end = " Nothing was done (--dry-run)." if give else ""
    where = f"about {duration(facts['seconds'])}, result in {facts['run']}."
    terminal.say(f"{facts['source']}: {facts['plan']}; {where}{end}")
    if "advice" in facts:
        terminal.warn(facts["advice"])
    if give:
        give(facts)
