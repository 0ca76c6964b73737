"""The commands cluster, predict, evaluate, report and export; `verbs` and `compare` have others."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import probagg
from probagg.app.cli import STARTED, compare, verbs
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
    read_options,
    takes_options,
)
from probagg.app.cli.terminal import Terminal, deliver, guarded, show
from probagg.app.run.evaluation import evaluate_table
from probagg.app.run.handover import write_export
from probagg.app.run.options import default_out
from probagg.app.run.output import Output, check_sorting, sort_images
from probagg.app.run.pipeline import plan
from probagg.app.run.result import scores_line
from probagg.app.run.run import open_run
from probagg.data.images import FolderImages
from probagg.data.named import IMAGE_NAMES, NAMES
from probagg.data.opening import suggest
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
SETS = f"matrices {', '.join(NAMES)}; images {', '.join(IMAGE_NAMES)}"
# The most classes that the terminal shows as a matrix.
WIDEST = 20
STDIN = "-"
# A size for the images of a folder; only their paths are used.
SIZE = 96


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
        target = chosen_target(copy_to, link_to)
        if target is not None:
            check_sorting(Path(source).expanduser(), target, out)
        job = plan(source, read_options(options), terminal, download=not dry_run)
        if job.work.is_first_process:
            facts = job.describe()
            end = " Nothing was done (--dry-run)." if dry_run else ""
            what = "training" if job.work.request.options.method == "dpac" else "features"
            long = f"{what} about {duration(facts['seconds'])}, " if "seconds" in facts else ""
            where = f"{long}result in {facts['run']}."
            terminal.say(f"{facts['source']}: {facts['plan']}; {where}{end}")
            if "advice" in facts:
                terminal.warn(facts["advice"])
            if dry_run:
                give(facts)
        if dry_run:
            return
        run = job.run()
        if not job.work.is_first_process:
            return
        if target is not None:
            n = run.sort_images(target, link=copy_to is None)
            terminal.say(f"{n:,} images {'linked' if copy_to is None else 'copied'} to {target}")
        terminal.say(f"{duration(time.perf_counter() - STARTED)} in all, with start-up and page")
        give(run.result)


@app.command(
    epilog=example(
        "probagg predict runs/photos new/ --out new.csv",
        "Writes one line per photo, with the columns of assignments.csv.\n\n\b\nOther ways to name "
        "photos:\n  probagg predict runs/photos a.jpg b.heic\n  find new -mtime -1 -name '*.jpg' | "
        "probagg predict runs/photos -",
    )
)
def predict(
    run: RunPath,
    source: Annotated[
        list[str],
        typer.Argument(
            help="New images or rows, as for probagg cluster. Image files may also be named one by "
            "one, or by - for paths on standard input, one per line.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write. [default: standard output]")
    ] = None,
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Assign new samples to the clusters of a RUN, without fitting."""
    terminal = Terminal(quiet=quiet, aside=out is None or as_json)
    with guarded(terminal, as_json=as_json) as give:
        opened = open_run(run, trust_code=trust_code)
        given = read_sources(source)
        files = [Path(file).expanduser() for file in ([given] if isinstance(given, str) else given)]
        if out is not None and out.suffix.lower() not in (".csv", ".txt", ""):
            raise InputError(f"--out {out} would hold CSV. Name it .csv, or use --json for JSON.")
        output = None if out is None else Output(out, overwrite, tuple(files)).check()
        target = chosen_target(copy_to, link_to)
        if target is not None:
            if not isinstance(given, str):
                raise InputError("--copy-to and --link-to need one SOURCE, a folder or a photo.")
            check_sorting(files[0], target, run)
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
        if output is not None:
            output.write(encode(assigned.to_csv()))
            terminal.say(f"written to {out}")
        elif not as_json:
            deliver(assigned.to_csv())
        if target is not None:
            link, clusters = copy_to is None, assigned.cluster.tolist()
            n = sort_images(files[0], assigned.names, clusters, review.names, target, link=link)
            terminal.say(f"{n:,} {samples.noun} {'linked' if link else 'copied'} to {target}")
        facts = {"run": str(run), "source": given}
        give(facts | {"samples": assigned.records(), "skipped": dict(samples.skipped)})


def read_sources(words: list[str]) -> str | list[str]:
    """Return a single source as it was typed, or else the paths of all image files, each once.

    A word is a file, a folder, or - for paths on standard input: one per line, or between null
    bytes as `find -print0` writes.
    """
    if len(words) == 1 and words[0] != STDIN:
        return words[0]
    return list(dict.fromkeys(path for word in words for path in _paths(word)))


def _paths(word: str) -> Iterator[str]:
    if word == STDIN:
        data = sys.stdin.buffer.read()
        parts = data.split(b"\0") if b"\0" in data else data.splitlines()
        if not (paths := [os.fsdecode(part) for part in parts if part.strip()]):
            raise NoData("Standard input lists no file. Write one path per line.")
        yield from paths
    elif (path := Path(word).expanduser()).is_dir():
        yield from (str(path / name) for name in FolderImages(path, SIZE).paths)
    elif path.exists():
        yield str(path)
    else:
        raise NoData(f"{word} does not exist.{suggest(word)} Give image files or folders.")


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
    terminal = Terminal(aside=as_json)
    with guarded(terminal, as_json=as_json) as give:
        result = evaluate_table(run, labels) if run.is_file() else open_run(run).evaluate(labels)
        n = f"{result['n_labelled']:,} of {result['n_samples']:,} samples with a class"
        terminal.say(scores_line(f"{run}, {n}", result))
        width = max(len(c["name"]) for c in result["clusters"])
        for c in result["clusters"]:
            purity = f"{100 * c['purity']:5.1f} % {c['class']}"
            terminal.say(f"  {c['name']:<{width}}  {c['size']:>6}  {purity}")
        if len(result["classes"]) <= WIDEST:
            _say_confusion(terminal, np.array(result["confusion"]), result["classes"])
        give(result)


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


@app.command(
    epilog=example(
        "probagg export runs/photos --format onnx",
        "Writes runs/photos/model.onnx, with pixels as input and probabilities as output, after a "
        "comparison with PyTorch. It contains the names and merges of probagg report --serve.\n\n",
        "--format label-studio or anndata (.h5ad) writes the clusters for other tools to --out.",
    )
)
def export(
    run: RunPath,
    how: Annotated[
        str,
        typer.Option(
            "--format",
            help="For the model: onnx. For the clusters: label-studio, anndata.",
        ),
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder to write; required for clusters. [default: model.onnx in RUN]"
        ),
    ] = None,
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Export the model of a RUN, or its clusters for other tools."""
    terminal = Terminal(aside=as_json)
    with guarded(terminal, as_json=as_json) as give:
        opened = open_run(run, trust_code=trust_code)
        give(write_export(opened, how, out, overwrite=overwrite, monitor=terminal))


app.command("select", epilog=verbs.SELECT)(verbs.select_command)
app.command("similar", epilog=verbs.SIMILAR)(verbs.similar_command)
app.command("refine", epilog=verbs.REFINE)(verbs.refine_command)
app.command("update", epilog=verbs.UPDATE)(verbs.update_command)
app.command("sort", epilog=verbs.SORT)(verbs.sort_command)
app.command(epilog=compare.EXAMPLE)(compare.compare)
