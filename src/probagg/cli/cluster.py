"""probagg cluster: what to cluster, how, and where the result goes."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from probagg.cli import deep, flat
from probagg.cli.terminal import FAILED, INTERRUPTED, NO_DATA, SAVED, WRONG_USAGE, fail
from probagg.data import NoData, benchmarks
from probagg.data.arrays import SUFFIXES, is_matrix
from probagg.data.images import did_you_mean
from probagg.runs import RunFolderError

EXAMPLE = (
    "Example: probagg cluster digits -k 10 --out runs/demo   "
    "The folder runs/demo then holds assignments.csv, model.safetensors and how they were made."
)
METHODS = ("auto", "pac", "dpac")
SETS = f"matrices {', '.join(benchmarks.NAMES)}; images {', '.join(benchmarks.IMAGE_NAMES)}"


def cluster(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder or .npz file of images, a matrix (.npy, .npz, .csv, .parquet), or a "
            f"named set: {SETS}."
        ),
    ],
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Clusters. [default: a named set's classes]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. [default: runs/SOURCE-TIME]")
    ] = None,
    method: Annotated[
        str, typer.Option(help="pac, dpac, or auto: dpac for images, pac for a matrix.")
    ] = "auto",
    recipe: Annotated[
        str | None,
        typer.Option(help="DPAC: NAME/fast, NAME/paper or a .toml file. [default: SOURCE/fast]"),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="DPAC: change the recipe, as cluster.m=1.05. Repeatable."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="DPAC: auto, cpu, cuda, mps. [default: auto]")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="DPAC: auto, fp32, bf16, fp16. [default: auto]")
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(min=0, help="DPAC: save and stop after so long.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="DPAC: auto takes up an unfinished run in --out, never starts over."),
    ] = None,
    m: Annotated[
        str | None, typer.Option(help="PAC: exponent above 1, or auto. [default: 1.03]")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="PAC: sqeuclidean, cosine, or scikit-learn's. [default: sqeuclidean]"),
    ] = None,
    balance: Annotated[
        float | None, typer.Option(help="PAC: 1 prefers equal sizes, 0 does not. [default: 1]")
    ] = None,
    n_init: Annotated[
        int | None, typer.Option(min=1, help="PAC: starts; the best is kept. [default: 1]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes starts, order and views.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
) -> None:
    """Cluster SOURCE into K groups and write a run folder."""
    name = Path(source).stem or "images"
    out = out or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    job: dict[str, Any] = {"source": source, "k": k, "out": out, "seed": seed}
    job |= {"overwrite": overwrite, "quiet": quiet or as_json}
    pac: dict[str, Any] = {
        "m": _exponent(m),
        "metric": metric,
        "balance": balance,
        "n_init": n_init,
    }
    dpac: dict[str, Any] = {
        "recipe": recipe,
        "set": setting,
        "device": device,
        "precision": precision,
        "max_minutes": max_minutes,
        "resume": resume,
    }
    try:
        method = _method(source, method)
    except NoData as error:
        fail(str(error), NO_DATA)
    _refuse_others(method, dpac if method == "pac" else pac)
    options = {name: v for name, v in (pac if method == "pac" else dpac).items() if v is not None}
    run = flat.run if method == "pac" else deep.run
    result = _guarded(run, job, options)
    if as_json and result:
        typer.echo(json.dumps(result))


def _method(source: str, method: str) -> str:
    """The method, checked against what the source is."""
    if method not in METHODS:
        fail(f"--method is {method!r}; possible are {', '.join(METHODS)}.", WRONG_USAGE)
    matrix = source in benchmarks.NAMES or is_matrix(Path(source))
    images = source in benchmarks.IMAGE_NAMES or (Path(source).exists() and not matrix)
    if not images and not matrix:
        hint = did_you_mean(source, benchmarks.ALL_NAMES)
        fail(f"{source!r} is no file or folder and no known data set: {SETS}.{hint}", NO_DATA)
    if method == "auto":
        return "dpac" if images else "pac"
    if method == "pac" and not matrix:
        known = ", ".join((*SUFFIXES, *benchmarks.NAMES))
        fail(f"{source!r} cannot be clustered by pac, which takes {known}.", WRONG_USAGE)
    if method == "dpac" and not images:
        known = ", ".join(benchmarks.IMAGE_NAMES)
        fail(f"{source!r} is no set of images; dpac takes a folder, .npz, {known}.", WRONG_USAGE)
    return method


def _refuse_others(method: str, others: dict[str, Any]) -> None:
    given = [f"--{name.replace('_', '-')}" for name, value in others.items() if value is not None]
    if given:
        hint = "Leave them out, or choose the other --method."
        fail(f"{', '.join(given)} mean nothing to {method}. {hint}", WRONG_USAGE)


def _guarded(run: Any, job: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Run, and turn every error a user can cause into one line and an exit code."""
    out = job["out"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = _show_warning
            return run(**job, options=options)
    except NoData as error:
        fail(str(error), NO_DATA)
    except (RunFolderError, ValueError) as error:
        fail(str(error), WRONG_USAGE)
    except (OSError, ModuleNotFoundError) as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        fail(
            f"Interrupted. {out} is unfinished; the same command with --out {out} goes on from "
            "what was saved last.",
            INTERRUPTED,
        )
    except RuntimeError as error:
        _fail_in_training(error, out)


def _fail_in_training(error: RuntimeError, out: Path) -> NoReturn:
    from probagg.dpac.engine import CannotResume, Diverged, Interrupted

    if isinstance(error, Interrupted):
        fail(f"{error} Run the same command with --out {out} to go on.", SAVED)
    if isinstance(error, CannotResume | Diverged):
        fail(str(error), WRONG_USAGE if isinstance(error, CannotResume) else FAILED)
    if type(error).__name__ == "OutOfMemoryError":
        fail(
            f"The GPU has too little memory ({str(error).splitlines()[0]}). Lower the batch with "
            "--set pretrain.batch_size=128, or split it with --set pretrain.accumulate=2.",
            FAILED,
        )
    raise error


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {message}", err=True)


def _exponent(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        fail(f"--m is {text!r}, but a number above 1 or auto is needed.", WRONG_USAGE)
