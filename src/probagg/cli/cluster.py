"""probagg cluster: what to cluster, how, and where the result goes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from probagg.cli import outcome
from probagg.cli.deep import Deep
from probagg.cli.errors import guarded
from probagg.cli.flat import Flat
from probagg.cli.job import Job, parse_k
from probagg.cli.options import AsJson, Backbone, CopyTo, Labels, LinkTo, Quiet, Weights, example
from probagg.cli.samples import SETS, is_image_source
from probagg.cli.sorting import check_sorting, sort_images
from probagg.cli.terminal import Voice
from probagg.data import benchmarks
from probagg.errors import InputError
from probagg.progress import duration
from probagg.run.folder import RunFolder

EXAMPLE = example(
    "probagg cluster photos/ -k 20 --out runs/photos",
    "The folder runs/photos then holds report.html to look at, assignments.csv, a model for new "
    "photos (probagg predict runs/photos new/), and how they were made.",
)
METHODS = ("auto", "pac", "opa", "dpac")
PAC, OPA, DPAC = "pac", "opa", "dpac"


def cluster(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder or .npz file of images, a matrix (.npy, .npz, .csv, .parquet), or a "
            f"named set: {SETS}."
        ),
    ],
    k: Annotated[
        str | None,
        typer.Option(
            "-k",
            "--k",
            help="Clusters: a number, auto, or a range as 5:40. [default: a set's classes]",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. [default: runs/SOURCE-TIME]")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="pac; opa: a head trained by OPA; dpac: train a network on the images; auto: "
            "pac, and dpac for a named image set."
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
        typer.Option("--set", help="dpac: change the recipe, as cluster.m=1.05. Repeatable."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Networks: auto, cpu, cuda, mps. [default: auto]")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="dpac: auto, fp32, bf16, fp16. [default: auto]")
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(min=0, help="dpac: save and stop after so long.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="dpac: auto takes up an unfinished run in --out, never starts over."),
    ] = None,
    m: Annotated[
        str | None,
        typer.Option(
            help="pac, opa: exponent above 1; pac: or auto. [default: auto for pac on images, "
            "else 1.03]"
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="pac, opa: sqeuclidean, cosine; pac: or scikit-learn's. [default: cosine for "
            "images, sqeuclidean for a matrix]"
        ),
    ] = None,
    balance: Annotated[
        float | None, typer.Option(help="pac, opa: 1 prefers equal sizes, 0 does not. [default: 1]")
    ] = None,
    n_init: Annotated[
        int | None,
        typer.Option(min=1, help="pac: starts; the best is kept. [default: 3 for images, else 1]"),
    ] = None,
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    page: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Fixes starts, order and views.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished run.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Cluster SOURCE into K groups and write a run folder with a page to look at."""
    name = Path(source).resolve().stem if Path(source).exists() else source
    out = out or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    voice = Voice(quiet=quiet, aside=as_json)
    options = {
        "backbone": (backbone, PAC, OPA),
        "weights": (weights, PAC, OPA),
        "recipe": (recipe, DPAC),
        "set": (setting, DPAC),
        "device": (device, PAC, OPA, DPAC),
        "precision": (precision, DPAC),
        "max_minutes": (max_minutes, DPAC),
        "resume": (resume, DPAC),
        "m": (m, PAC, OPA),
        "metric": (metric, PAC, OPA),
        "balance": (balance, PAC, OPA),
        "n_init": (n_init, PAC),
    }
    with guarded(voice, out, as_json) as give:
        job = Job(source, parse_k(k), out, seed, labels, voice)
        chosen = _method(source, method)
        targets = [target for target in (copy_to, link_to) if target is not None]
        for target in targets:
            others = (out, *(t for t in targets if t is not target))
            check_sorting(Path(source).expanduser(), target, *others)
        RunFolder(out, overwrite=overwrite).check()
        work = _work(job, chosen, _of_method(chosen, options))
        if isinstance(work, Deep) and not work.first:
            work.join()
            return
        plan = _say_plan(work, page, dry_run)
        if dry_run:
            give(plan)
            return
        result, clustering = _run(work, overwrite=overwrite)
        for target in targets:
            _sort(job, target, link=target == link_to)
        if page:
            _write_page(work, clustering)
        give(result)


def _method(source: str, method: str) -> str:
    """The method, checked against what the source is."""
    if method not in METHODS:
        raise InputError(f"--method is {method!r}; possible are {', '.join(METHODS)}.")
    images = is_image_source(source)
    if method == "auto":
        return DPAC if images and source in benchmarks.IMAGE_NAMES else PAC
    if method == DPAC and not images:
        known = ", ".join(benchmarks.IMAGE_NAMES)
        raise InputError(f"{source!r} is no set of images; dpac takes a folder, .npz, {known}.")
    return method


def _of_method(method: str, options: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The options that were given; one that means nothing to the method is an error."""
    given = {name: value for name, (value, *_) in options.items() if value is not None}
    others = [f"--{n.replace('_', '-')}" for n in given if method not in options[n][1:]]
    if others:
        raise InputError(
            f"{', '.join(others)} mean nothing to {method}. Leave them out, or choose another "
            "--method."
        )
    if "m" in given:
        given["m"] = _exponent(given["m"])
    return given


def _exponent(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--m is {text!r}, but a number above 1 or auto is needed.") from None


def _work(job: Job, method: str, options: dict[str, Any]) -> Flat | Deep:
    return Deep(job, options) if method == DPAC else Flat(job, method, options)


def _say_plan(work: Flat | Deep, page: bool, dry_run: bool) -> dict[str, Any]:
    """One line before it starts: what, how long, where to."""
    what, seconds = work.plan()
    seconds += min(len(work.samples), 2000) / 200 + 2.0 if page else 0.0
    end = " Nothing was done (--dry-run)." if dry_run else ""
    where = f"about {duration(seconds)}, result in {work.job.out}."
    work.job.voice.say(f"{work.job.source}: {what}; {where}{end}")
    return {
        "source": work.job.source,
        "plan": what,
        "seconds": round(seconds),
        "run": str(work.job.out),
    }


def _run(work: Flat | Deep, *, overwrite: bool) -> tuple[dict[str, Any], outcome.Clustering]:
    voice = work.job.voice
    with RunFolder(work.job.out, overwrite=overwrite) as folder:
        clustering = work.run(folder)
        result = outcome.write(folder, clustering)
        _say_result(voice, work, result)
        folder.write("log.txt", "\n".join(voice.lines) + "\n")
    voice.say(f"written to {work.job.out}")
    return result, clustering


def _write_page(work: Flat | Deep, clustering: outcome.Clustering) -> None:
    """The page, after the run is sealed: what goes wrong here costs only the page."""
    job = work.job
    try:
        page = outcome.write_page(job.out, clustering, loud=job.loud)
    except ImportError as error:
        job.voice.warn(f"There is no report.html. {error}")
    except Exception as error:
        job.voice.warn(f"There is no report.html ({error}). Try again: probagg report {job.out}")
    else:
        job.voice.say(f"look at {page}")


def _say_result(voice: Voice, work: Flat | Deep, result: dict[str, Any]) -> None:
    noun, K = work.samples.noun, result["n_clusters"]
    how = f"{result['n_samples']:,} {noun} in {K} clusters by {work.method.upper()}"
    outcome.say_result(voice, result, f"{how}, {duration(result['seconds'])}")
    if "objective" in result:
        voice.say(
            f"objective {result['objective']:.6g} after {result['n_iter']} sweeps; m "
            f"{result['m']:g}, critical m {result['critical_m']:.3f}"
        )
    elif "state" in result:
        voice.say(f"{result['state']}, sharpness {result['sharpness']:.2f}")
    for name in ("features", "pixels"):
        if f"pac_on_{name}" in result:
            voice.say_scores(f"  PAC on {name:<8}", result[f"pac_on_{name}"])


def _sort(job: Job, target: Path, *, link: bool) -> None:
    from probagg.assignments import Assignments

    assigned = Assignments.read(job.out / "assignments.csv")
    source = Path(job.source).expanduser()
    n = sort_images(source, assigned.names, assigned.cluster.tolist(), {}, target, link=link)
    job.voice.say(f"{n:,} images {'linked' if link else 'copied'} to {target}")
