"""The commands for work on a finished run: select, similar, refine, update, sort."""

from pathlib import Path
from typing import Annotated

import typer

from probagg.app.cli.options import (
    AsJson,
    CopyTo,
    LinkTo,
    Overwrite,
    Quiet,
    RunPath,
    TrustCode,
    chosen_target,
    example,
)
from probagg.app.cli.terminal import Terminal, deliver, guarded
from probagg.app.run.handover import LABEL_STUDIO, write_handover
from probagg.app.run.output import Output
from probagg.app.run.run import open_run
from probagg.app.run.successor import write_refined, write_updated
from probagg.errors import InputError
from probagg.storage import encode

CSV = "csv"
SELECT = example(
    "probagg select runs/photos -n 100 --out look.csv",
    "Writes one line per photo, with the columns of assignments.csv, the most useful first.\n\n\b\n"
    "To label them in Label Studio:\n  probagg select runs/photos --format label-studio --out "
    "tasks/",
)
SIMILAR = example(
    "probagg similar runs/photos new.jpg -n 10",
    "Prints the most similar photos of the run with the columns of assignments.csv, of which "
    "distance is that to new.jpg.",
)

SORT = example(
    "probagg sort runs/photos sorted/",
    "Copies each photo to sorted/CLUSTER-NAME/, by the clusters and names of the review.",
)
UPDATE = example(
    "probagg update runs/photos new/",
    "Assigns the photos in new/ and writes all into runs/photos-updated; runs/photos stays. New "
    "kinds of photos are shown as new clusters by probagg report runs/photos-updated --serve, and "
    "probagg refine makes them clusters of the model.",
)
REFINE = example(
    "probagg refine runs/photos",
    "Clusters again with the moves, merges, splits and discarded photos of probagg report --serve, "
    "into runs/photos-refined. runs/photos stays: to undo, remove the new folder.",
)

Out = Annotated[Path | None, typer.Option(help="CSV file to write. [default: standard output]")]
Number = Annotated[int, typer.Option("-n", "--n", min=1, help="How many samples.")]


def select_command(
    run: RunPath,
    n: Number = 100,
    how: Annotated[
        str, typer.Option("--format", help=f"What --out is: {CSV} or {LABEL_STUDIO}.")
    ] = CSV,
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file or, of another format, folder. [default: standard output]"),
    ] = None,
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Select the samples of a RUN to look at or label first.

    In turn typical of a cluster, borderline, and spread over all samples, without near-duplicates.
    """
    terminal = Terminal(aside=out is None or as_json)
    with guarded(terminal, as_json=as_json) as give:
        opened = open_run(run)
        if how not in (CSV, LABEL_STUDIO):
            raise InputError(f"--format is {how!r}; possible are {CSV} and {LABEL_STUDIO}.")
        target = chosen_target(copy_to, link_to)
        output = None
        if how == CSV and out is not None:
            output = Output(out, overwrite).check()
        table = opened.select(n)
        terminal.say(f"{len(table):,} of {len(opened.assignments):,} samples of {run}")
        if how != CSV:
            write_handover(opened, how, out, overwrite=overwrite, monitor=terminal, table=table)
        elif output is not None:
            output.write(encode(table.to_csv()))
            terminal.say(f"written to {out}")
        elif not as_json and target is None:
            deliver(table.to_csv())
        if target is not None:
            copied = opened.sort_images(target, link=copy_to is None, table=table)
            terminal.say(
                f"{copied:,} images {'linked' if copy_to is None else 'copied'} to {target}"
            )
        give({"run": str(run), "samples": table.records()})


def similar_command(
    run: RunPath,
    sample: Annotated[
        str, typer.Argument(help="An image file, or the path, row or id of a sample of the run.")
    ],
    n: Number = 20,
    out: Out = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the samples of a RUN that are most similar to SAMPLE."""
    terminal = Terminal(aside=out is None or as_json)
    with guarded(terminal, as_json=as_json) as give:
        opened = open_run(run, trust_code=trust_code)
        output = None if out is None else Output(out, overwrite, (Path(sample),)).check()
        table = opened.similar(sample, n, device=device)
        if output is not None:
            output.write(encode(table.to_csv()))
            terminal.say(f"written to {out}")
        elif not as_json:
            deliver(table.to_csv())
        give({"run": str(run), "sample": sample, "samples": table.records()})


def refine_command(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option(help="The new run folder. [default: RUN-refined]")
    ] = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Cluster again with what was corrected in the review of a RUN.

    Numbers and names stay. The page of the new run shows what changed.
    """
    terminal = Terminal(quiet=quiet, aside=as_json)
    with guarded(terminal, out, as_json) as give:
        new = write_refined(open_run(run), terminal, out=out, report=report, overwrite=overwrite)
        give(new.result)


def update_command(
    run: RunPath,
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of new photos in or beside the one that was clustered, or the table or "
            "matrix that was clustered, with more rows."
        ),
    ],
    new_clusters: Annotated[
        str,
        typer.Option(
            help="What samples that fit nowhere become: review: new clusters to confirm; auto: new "
            "clusters of the model; none."
        ),
    ] = "review",
    out: Annotated[
        Path | None, typer.Option(help="The new run folder. [default: RUN-updated]")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add new samples to a RUN; nothing that was clustered changes its number."""
    terminal = Terminal(quiet=quiet, aside=as_json)
    with guarded(terminal, out, as_json) as give:
        new = write_updated(
            open_run(run, trust_code=trust_code),
            source,
            terminal,
            out=out,
            new_clusters=new_clusters,
            device=device,
            report=report,
            overwrite=overwrite,
        )
        give(new.result)


def sort_command(
    run: RunPath,
    folder: Annotated[
        Path | None,
        typer.Argument(help="A new folder for one folder per cluster. Not needed with --xmp."),
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="Link instead of copying.")] = False,
    xmp: Annotated[
        bool,
        typer.Option(
            "--xmp",
            help="Write the name of the cluster as a keyword into PHOTO.xmp, which Immich, digiKam "
            "and darktable read: beside the copies or, without FOLDER, beside the photos. A "
            "sidecar that exists stays as it is.",
        ),
    ] = False,
    keep_best: Annotated[
        bool,
        typer.Option("--keep-best", help="Of near-duplicates, only the largest sharp photo."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy the images of a RUN into one folder per cluster, as they were reviewed."""
    terminal = Terminal(aside=as_json)
    with guarded(terminal, as_json=as_json) as give:
        if folder is None:
            if not xmp or link or keep_best:
                raise InputError("FOLDER is missing: a new folder, for instance sorted/.")
            n, skipped = open_run(run).write_sidecars()
            terminal.say(f"{n:,} photos have a sidecar with the name of their cluster")
            if skipped:
                shown = ", ".join(skipped[:3]) + ", ..." * (len(skipped) > 3)
                terminal.warn(f"{len(skipped):,} have a sidecar already, which stays: {shown}")
            give({"run": str(run), "n_sidecars": n, "skipped": skipped})
            return
        n = open_run(run).sort_images(folder, link=link, xmp=xmp, keep_best=keep_best)
        terminal.say(f"{n:,} images {'linked' if link else 'copied'} to {folder}")
        give({"run": str(run), "folder": str(folder), "n_images": n})
