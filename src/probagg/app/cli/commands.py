"""The commands of probagg; `compare` has one more."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import probagg
from probagg.app.cli import STARTED, compare
from probagg.app.cli.options import (
    AsJson,
    Overwrite,
    Quiet,
    RunPath,
    TrustCode,
    example,
    read_options,
    takes_options,
)
from probagg.app.cli.terminal import Terminal, deliver, guarded, show
from probagg.app.run.handover import LABEL_STUDIO, write_export, write_tasks
from probagg.app.run.options import default_out
from probagg.app.run.output import Output
from probagg.app.run.pipeline import plan, run_plan
from probagg.app.run.result import scores_line
from probagg.app.run.run import Run, evaluate_table, open_run
from probagg.data.opening import NAMED, suggest
from probagg.errors import InputError, NoData
from probagg.progress import duration
from probagg.storage import encode

app = typer.Typer(
    name="probagg",
    help="Cluster without labels, by probability aggregation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
CSV = "csv"
# The most classes that the terminal shows as a matrix.
WIDEST = 20
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Report = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")]
Out = Annotated[Path | None, typer.Option(help="CSV file to write. [default: standard output]")]
Number = Annotated[int, typer.Option("-n", "--n", min=1, help="How many samples.")]


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


@app.command(
    "cluster",
    epilog=example(
        "probagg cluster photos/ -k 20 --out runs/photos",
        "The folder runs/photos then contains the page report.html, the table assignments.csv, the "
        "settings, and a model that assigns new photos (probagg predict runs/photos new/).\n\n\b\n"
        "A table; categories, dates and missing values are prepared:\n  probagg cluster "
        "customers.csv -k 6 --id customer",
    ),
)
@takes_options(dry_run="overwrite")
def cluster_command(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder or .npz file of images, a matrix (.npy, .npz), a table (.csv, "
            f".parquet), an .h5ad file, or a named set: {', '.join(NAMED)}."
        ),
    ],
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
    with guarded(quiet=quiet, as_json=as_json, out=out) as terminal:
        work = plan(source, read_options(options), terminal, download=not dry_run)
        if work.is_first_process:
            end = " Nothing was done (--dry-run)." if dry_run else ""
            terminal.say(f"{source}: {work.describe()}; result in {out}.{end}")
        if dry_run:
            terminal.give({"source": source, "plan": work.describe(), "run": str(out)})
            return
        run = run_plan(work)
        if not work.is_first_process:
            return
        terminal.say(f"{duration(time.perf_counter() - STARTED)} in all, with start-up and page")
        terminal.give(run.result)


@app.command(
    epilog=example(
        "probagg predict runs/photos new/ --out new.csv",
        "Writes one line per photo, with the columns of assignments.csv.\n\n\b\nSome photos:\n  "
        "probagg predict runs/photos a.jpg b.heic",
    )
)
def predict(
    run: RunPath,
    source: Annotated[
        list[str],
        typer.Argument(
            help="New images or rows, as for probagg cluster, or several image files.",
        ),
    ],
    out: Out = None,
    device: Device = "auto",
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Assign new samples to the clusters of a RUN, without fitting."""
    with guarded(quiet=quiet, aside=out is None, as_json=as_json) as terminal:
        opened = open_run(run, trust_code=trust_code)
        given = source[0] if len(source) == 1 else list(dict.fromkeys(source))
        files = [Path(file).expanduser() for file in source]
        if len(files) > 1 and (gone := next((f for f in files if not f.is_file()), None)):
            raise NoData(f"{gone} is not a file.{suggest(str(gone))} Name one folder, or files.")
        if out is not None and out.suffix.lower() not in (".csv", ".txt", ""):
            raise InputError(f"--out {out} would hold CSV. Name it .csv, or use --json for JSON.")
        output = None if out is None else Output(out, overwrite, tuple(files)).check()
        began = time.perf_counter()
        samples, assigned = opened.assign(given, device, terminal)
        for line in samples.left_out():
            terminal.warn(line)
        seconds = duration(time.perf_counter() - began)
        title = " ".join(source[:3]) + " ..." * (len(source) > 3)
        terminal.say(f"{title}: {len(samples):,} {samples.noun} in {seconds}")
        review = opened.review
        for k, size in zip(*np.unique(assigned.cluster, return_counts=True), strict=True):
            terminal.say(f"  {review.name_of(k)}: {size:,}")
        (terminal.warn if assigned.is_foreign() else terminal.say)(assigned.fit_line())
        _give_table(terminal, assigned, output)
        facts = {"run": str(run), "source": given}
        terminal.give(facts | {"samples": assigned.records(), "skipped": dict(samples.skipped)})


def _give_table(terminal: Terminal, table: Any, output: Output | None) -> None:
    """Write a table to --out; without it, print it in place of JSON."""
    if output is not None:
        output.write(encode(table.to_csv()))
        terminal.say(f"written to {output.path}")
    elif not terminal.as_json:
        deliver(table.to_csv())


@app.command(
    "evaluate",
    epilog=example(
        "probagg evaluate runs/photos --labels truth.csv",
        "truth.csv has one line path,class per image; images without a line are left out. Paths "
        "are absolute, or relative to the folder that was clustered. A file with further columns "
        "needs a header that names the columns path and class.",
    ),
)
def evaluate_command(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder of probagg cluster, a CSV file of probagg predict, or any CSV file "
            "of path,cluster or row,cluster."
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV of path,class or row,class. An assignments.csv compares two clusterings. "
            "[default: the classes of the run]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare clusters with known classes (ACC, NMI, ARI).

    The clusters are those of a RUN, or of a table.
    """
    with guarded(as_json=as_json) as terminal:
        result = evaluate_table(run, labels) if run.is_file() else open_run(run).evaluate(labels)
        n = f"{result['n_labelled']:,} of {result['n_samples']:,} samples with a class"
        terminal.say(scores_line(f"{run}, {n}", result))
        width = max(len(c["name"]) for c in result["clusters"])
        for c in result["clusters"]:
            purity = f"{100 * c['purity']:5.1f} % {c['class']}"
            terminal.say(f"  {c['name']:<{width}}  {c['size']:>6}  {purity}")
        if len(result["classes"]) <= WIDEST:
            _say_confusion(terminal, np.array(result["confusion"]), result["classes"])
        terminal.give(result)


def _say_confusion(terminal: Terminal, counts: np.ndarray, names: list[str]) -> None:
    shown = [name[:10] for name in names]
    widths = [
        max(len(name), len(str(column.max()))) for name, column in zip(shown, counts.T, strict=True)
    ]
    terminal.say("confusion (clusters down, classes across):")
    terminal.say(" " * 6 + "  ".join(f"{n:>{w}}" for n, w in zip(shown, widths, strict=True)))
    for k, row in enumerate(counts):
        if row.sum():
            cells = "  ".join(f"{n or '.':>{w}}" for n, w in zip(row, widths, strict=True))
            terminal.say(f"  {k:>3} {cells}")


@app.command(
    epilog=example(
        "probagg report runs/photos --serve",
        "Opens a page to name, merge and split clusters, and to move and discard images. predict "
        "and export apply these changes.",
    )
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
    with guarded(as_json=as_json) as terminal:
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
        terminal.give(result)


@app.command(
    epilog=example(
        "probagg export runs/photos --format onnx",
        "Writes runs/photos/model.onnx, with pixels as input and probabilities as output, after a "
        "comparison with PyTorch. It contains the names and merges of probagg report --serve.\n\n",
        "--format label-studio writes the clusters as tasks with predictions to --out.",
    )
)
def export(
    run: RunPath,
    how: Annotated[
        str,
        typer.Option(
            "--format",
            help="For the model: onnx. For the clusters: label-studio.",
        ),
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder to write; required for clusters. [default: model.onnx in RUN]"
        ),
    ] = None,
    half: Annotated[
        bool,
        typer.Option(
            "--half", help="Weights in float16: about half the file, nearly the same probabilities."
        ),
    ] = False,
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Export the model of a RUN, or its clusters for other tools."""
    with guarded(as_json=as_json) as terminal:
        opened = Run(run, trust_code=trust_code, monitor=terminal)
        terminal.give(write_export(opened, how, out, overwrite, half))


@app.command(
    "select",
    epilog=example(
        "probagg select runs/photos -n 100 --out look.csv",
        "Writes one line per photo, the most useful first.\n\n\b\nFor Label Studio:\n  "
        "probagg select runs/photos --format label-studio --out tasks/",
    ),
)
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
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Select the samples of a RUN to look at or label first.

    In turn typical of a cluster, borderline, and spread over all samples, without near-duplicates.
    """
    with guarded(aside=out is None, as_json=as_json) as terminal:
        opened = Run(run, monitor=terminal)
        if how not in (CSV, LABEL_STUDIO):
            raise InputError(f"--format is {how!r}; possible are {CSV} and {LABEL_STUDIO}.")
        output = None
        if how == CSV and out is not None:
            output = Output(out, overwrite).check()
        table = opened.select(n)
        terminal.say(f"{len(table):,} of {len(opened.assignments):,} samples of {run}")
        if how != CSV:
            write_tasks(opened, table, out)
        else:
            _give_table(terminal, table, output)
        terminal.give({"run": str(run), "samples": table.records()})


@app.command(
    "similar",
    epilog=example(
        "probagg similar runs/photos new.jpg -n 10",
        "Prints the most similar photos of the run with the columns of assignments.csv, of which "
        "distance is that to new.jpg.",
    ),
)
def similar_command(
    run: RunPath,
    sample: Annotated[
        str, typer.Argument(help="An image file, or the path, row or id of a sample of the run.")
    ],
    n: Number = 20,
    out: Out = None,
    device: Device = "auto",
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the samples of a RUN that are most similar to SAMPLE."""
    with guarded(aside=out is None, as_json=as_json) as terminal:
        opened = open_run(run, trust_code=trust_code)
        output = None if out is None else Output(out, overwrite, (Path(sample),)).check()
        table = opened.similar(sample, n, device=device)
        _give_table(terminal, table, output)
        terminal.give({"run": str(run), "sample": sample, "samples": table.records()})


@app.command(
    "refine",
    epilog=example(
        "probagg refine runs/photos",
        "Clusters again with the moves, merges, splits and discarded photos of the review, into "
        "runs/photos-refined. runs/photos stays: to undo, remove the new folder.",
    ),
)
def refine_command(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option(help="The new run folder. [default: RUN-refined]")
    ] = None,
    report: Report = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Cluster again with what was corrected in the review of a RUN.

    Numbers and names stay. The page of the new run shows what changed.
    """
    with guarded(quiet=quiet, as_json=as_json, out=out) as terminal:
        opened = Run(run, monitor=terminal)
        terminal.give(opened.refine(out=out, report=report, overwrite=overwrite).result)


@app.command(
    "update",
    epilog=example(
        "probagg update runs/photos new/",
        "Assigns the photos in new/ and writes all into runs/photos-updated; runs/photos stays. "
        "Its review shows new kinds of photos as new clusters, and probagg refine makes them "
        "clusters of the model.",
    ),
)
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
    device: Device = "auto",
    report: Report = True,
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add new samples to a RUN; nothing that was clustered changes its number."""
    with guarded(quiet=quiet, as_json=as_json, out=out) as terminal:
        opened = Run(run, trust_code=trust_code, monitor=terminal)
        new = opened.update(
            source,
            out=out,
            new_clusters=new_clusters,
            device=device,
            report=report,
            overwrite=overwrite,
        )
        terminal.give(new.result)


@app.command(
    "sort",
    epilog=example(
        "probagg sort runs/photos sorted/",
        "Copies each photo to sorted/CLUSTER-NAME/, by the clusters and names of the review.",
    ),
)
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
    with guarded(as_json=as_json) as terminal:
        if folder is None:
            if not xmp or link or keep_best:
                raise InputError("FOLDER is missing: a new folder, for instance sorted/.")
            n, skipped = open_run(run).write_sidecars()
            terminal.say(f"{n:,} photos have a sidecar with the name of their cluster")
            if skipped:
                shown = ", ".join(skipped[:3]) + ", ..." * (len(skipped) > 3)
                terminal.warn(f"{len(skipped):,} have a sidecar already, which stays: {shown}")
            terminal.give({"run": str(run), "n_sidecars": n, "skipped": skipped})
            return
        n = open_run(run).sort_images(folder, link=link, xmp=xmp, keep_best=keep_best)
        terminal.say(f"{n:,} images {'linked' if link else 'copied'} to {folder}")
        terminal.give({"run": str(run), "folder": str(folder), "n_images": n})


app.command(epilog=compare.EXAMPLE)(compare.compare)
