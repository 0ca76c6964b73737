"""probagg cluster: what to cluster, how, and where the result goes."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from probagg.cli import deep, flat
from probagg.cli.terminal import FAILED, INTERRUPTED, NO_DATA, SAVED, WRONG_USAGE, fail
from probagg.data import NoData, benchmarks
from probagg.runs import RunFolderError

EXAMPLE = (
    "Example: probagg cluster digits -k 10 --out runs/demo   "
    "The folder runs/demo then holds assignments.csv, model.safetensors and how they were made."
)
METHODS = ("auto", "pac", "dpac")


def cluster(
    source: Annotated[
        str, typer.Argument(help=f"What to cluster: {', '.join(benchmarks.ALL_NAMES)}.")
    ],
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Clusters. [default: the set's class count]")
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
    device: Annotated[str, typer.Option(help="DPAC: auto, cpu, cuda, mps.")] = "auto",
    precision: Annotated[str, typer.Option(help="DPAC: auto, fp32, bf16, fp16.")] = "auto",
    max_minutes: Annotated[
        float | None, typer.Option(min=0, help="DPAC: save and stop after so long.")
    ] = None,
    resume: Annotated[
        str, typer.Option(help="DPAC: auto takes up an unfinished run in --out, never does not.")
    ] = "auto",
    m: Annotated[str, typer.Option(help="PAC: weighting exponent above 1, or auto.")] = "1.03",
    metric: Annotated[
        str, typer.Option(help="PAC: sqeuclidean, cosine, or one of scikit-learn's.")
    ] = "sqeuclidean",
    balance: Annotated[
        float, typer.Option(help="PAC: 1 prefers clusters of equal size, 0 does not.")
    ] = 1.0,
    n_init: Annotated[
        int, typer.Option(min=1, help="PAC: starts; the lowest objective is kept.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Fixes starts, order and views.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
) -> None:
    """Cluster SOURCE into K groups and write a run folder."""
    if method not in METHODS or resume not in ("auto", "never"):
        fail(
            f"--method is {method!r} and --resume {resume!r}; possible are {', '.join(METHODS)} "
            "and auto, never.",
            WRONG_USAGE,
        )
    if method == "auto":
        method = "dpac" if source in benchmarks.IMAGE_NAMES else "pac"
    out = out or Path("runs") / f"{source}-{time.strftime('%Y%m%d-%H%M%S')}"
    common: dict[str, Any] = {"source": source, "k": k, "out": out, "seed": seed}
    common |= {"overwrite": overwrite, "quiet": quiet or as_json}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = _show_warning
            if method == "pac":
                options = {"m": _exponent(m), "metric": metric, "balance": balance}
                result = flat.run(**common, options={**options, "n_init": n_init})
            else:
                machine = {"device": device, "precision": precision, "max_minutes": max_minutes}
                result = deep.run(
                    **common, recipe=recipe, settings=setting or [], resume=resume, machine=machine
                )
    except NoData as error:
        fail(str(error), NO_DATA)
    except (RunFolderError, ValueError) as error:
        fail(str(error), WRONG_USAGE)
    except OSError as error:
        fail(f"{out} could not be written: {error}", FAILED)
    except KeyboardInterrupt:
        fail(f"Interrupted. {out} is unfinished; the same command starts it again.", INTERRUPTED)
    except RuntimeError as error:
        _fail_in_training(error, out)
    if as_json and result:
        typer.echo(json.dumps(result))


def _fail_in_training(error: RuntimeError, out: Path) -> None:
    kind = type(error).__name__
    if kind == "Interrupted":
        fail(f"{error} Run the same command with --out {out} to go on.", SAVED)
    if kind in ("CannotResume", "Diverged"):
        fail(str(error), WRONG_USAGE if kind == "CannotResume" else FAILED)
    if kind == "OutOfMemoryError":
        fail(
            f"The GPU has too little memory ({str(error).splitlines()[0]}). Lower the batch with "
            "--set pretrain.batch_size=128, or split it with --set pretrain.accumulate=2.",
            FAILED,
        )
    raise error


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {message}", err=True)


def _exponent(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        fail(f"--m is {text!r}, but a number above 1 or auto is needed.", WRONG_USAGE)
