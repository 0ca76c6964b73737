"""probagg cluster: what to cluster, how, and where the result goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probagg.app.cli.options import (
    AsJson,
    Backbone,
    CopyTo,
    Labels,
    LinkTo,
    Quiet,
    Weights,
    example,
    parse_k,
    parse_number,
)
from probagg.app.cli.terminal import Give, Terminal, guarded
from probagg.app.run.options import default_out
from probagg.app.run.output import check_sorting
from probagg.app.run.pipeline import METHODS, Plan, plan
from probagg.data.benchmarks import IMAGE_NAMES, NAMES
from probagg.progress import duration

EXAMPLE = example(
    "probagg cluster photos/ -k 20 --out runs/photos",
    "The folder runs/photos then contains the page report.html, the table assignments.csv, the "
    "settings, and a model that assigns new photos (probagg predict runs/photos new/).\n\n\b\nA "
    "table; categories, dates and missing values are prepared:\n  probagg cluster customers.csv "
    "-k auto --id customer",
)
SETS = f"matrices {', '.join(NAMES)}; images {', '.join(IMAGE_NAMES)}"


def cluster(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder or .npz file of images, a matrix (.npy, .npz), a table (.csv, "
            f".parquet), an .h5ad file, or a named set: {SETS}."
        ),
    ],
    k: Annotated[
        str | None,
        typer.Option(
            "-k",
            "--k",
            help="Number of clusters: a number, auto, or a range to choose from, such as 5:40. "
            "[default: the number of classes of a named set]",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. [default: runs/SOURCE-TIME]")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="pac; opa: train a classifier on the features by OPA; dpac: train a network on "
            "the images; auto: dpac for a named image set, otherwise pac.",
            autocompletion=lambda: list(METHODS),
        ),
    ] = "auto",
    backbone: Backbone = None,
    weights: Weights = None,
    labels: Labels = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="dpac: NAME/fast, NAME/paper or a .toml file. [default: SOURCE/fast]"),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="dpac: change a key of the recipe, e.g. cluster.m=1.05. Repeatable."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Networks: auto, cpu, cuda, mps. [default: auto]")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="dpac: auto, fp32, bf16, fp16. [default: auto]")
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(min=0, help="dpac: save and stop after this time.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="dpac: 'auto' resumes an unfinished run in --out, 'never' starts from the "
            "beginning. [default: auto]"
        ),
    ] = None,
    m: Annotated[
        str | None,
        typer.Option(
            help="pac, opa: a number above 1 that controls how soft assignments are (closer to 1 "
            "is harder); for pac also auto. [default: auto for pac on images, else 1.03]"
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="pac, opa: sqeuclidean or cosine; for pac also any metric of scikit-learn. "
            "[default: cosine for images, sqeuclidean for a matrix]"
        ),
    ] = None,
    balance: Annotated[
        str | None,
        typer.Option(
            help="pac, opa: preference for clusters of equal size, 0 (none) to 2 (strong), or "
            "auto. The paper's is 1. [default: auto]"
        ),
    ] = None,
    n_init: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="pac: number of starts, of which the best is kept. [default: 3 for images, "
            "else 1]",
        ),
    ] = None,
    smooth: Annotated[
        bool | None,
        typer.Option(
            "--smooth/--no-smooth",
            help="pac on images: average probabilities over similar photos, also for predict and "
            "export. [default: smooth, from 20 photos per cluster]",
        ),
    ] = None,
    deduplicate: Annotated[
        bool,
        typer.Option(
            "--deduplicate",
            help="Images: count near-duplicates as one photo. duplicates.csv lists them either "
            "way.",
        ),
    ] = False,
    id: Annotated[
        str | None,
        typer.Option(
            help="Tables: the column with the ids of the rows. [default: an index or unique text]"
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Tables: how to scale columns: standard, robust (median and quartiles), none, or "
            "auto: standard if standard deviations differ by a factor of more than 10. "
            "[default: auto]"
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Tables: a column to leave out. Repeatable.")
    ] = None,
    max_bad: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Fail if more files or rows than this cannot be used. [default: skip them]",
        ),
    ] = None,
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    page: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of all random numbers (starts, order, views).")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and stop.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace a finished run, or an unfinished one of another method.",
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Cluster images, a matrix or a table.

    Writes a run folder with a page, a table of assignments and a model for new samples.
    """
    out = out or default_out(source)
    terminal = Terminal(quiet=quiet, aside=as_json)
    with guarded(terminal, out, as_json) as give:
        targets = [target for target in (copy_to, link_to) if target is not None]
        for target in targets:
            others = (out, *(t for t in targets if t is not target))
            check_sorting(Path(source).expanduser(), target, *others)
        planned = plan(
            source,
            parse_k(k),
            out=out,
            method=method,
            labels=labels,
            max_bad=max_bad,
            report=page,
            overwrite=overwrite,
            seed=seed,
            monitor=terminal,
            download=not dry_run,
            backbone=backbone,
            weights=weights,
            recipe=recipe,
            settings=setting,
            device=device,
            precision=precision,
            max_minutes=max_minutes,
            resume=resume,
            m=parse_number("--m", m),
            metric=metric,
            balance=parse_number("--balance", balance),
            n_init=n_init,
            smooth=smooth,
            deduplicate=deduplicate or None,
            id=id,
            scale=scale,
            drop=drop or None,
        )
        if planned.is_first_process:
            _say_plan(planned, terminal, give if dry_run else None)
        if dry_run:
            return
        run = planned.run()
        if not planned.is_first_process:
            return
        for target in targets:
            link = target == link_to
            n = run.sort_images(target, link=link)
            terminal.say(f"{n:,} images {'linked' if link else 'copied'} to {target}")
        give(run.result)


def _say_plan(planned: Plan, terminal: Terminal, give: Give | None) -> None:
    """Print one line before work starts; with `give`, hand over the plan as the result."""
    facts = planned.describe()
    end = " Nothing was done (--dry-run)." if give else ""
    where = f"about {duration(facts['seconds'])}, result in {facts['run']}."
    terminal.say(f"{facts['source']}: {facts['plan']}; {where}{end}")
    if "advice" in facts:
        terminal.warn(facts["advice"])
    if give:
        give(facts)
