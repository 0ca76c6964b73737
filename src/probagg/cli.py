"""The command line. Only this module prints."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import probagg
from probagg.data import benchmarks
from probagg.runs import RunFolder, RunFolderError, environment

if TYPE_CHECKING:
    from probagg.pac.estimator import PAC

FAILED, WRONG_USAGE, NO_DATA, INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    name="probagg",
    help="Cluster without labels, by probability aggregation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """The console script."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"probagg {probagg.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    epilog="Example: probagg cluster digits -k 10 --out runs/demo   "
    "The folder runs/demo then holds assignments.csv, model.safetensors and how they were made."
)
def cluster(
    source: Annotated[str, typer.Argument(help=f"What to cluster: {', '.join(benchmarks.NAMES)}.")],
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Clusters. [default: the set's class count]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. [default: runs/SOURCE-TIME]")
    ] = None,
    m: Annotated[str, typer.Option(help="Weighting exponent above 1, or auto.")] = "1.03",
    metric: Annotated[str, typer.Option(help="sqeuclidean, cosine, or one of scikit-learn's.")] = (
        "sqeuclidean"
    ),
    balance: Annotated[
        float, typer.Option(help="1 prefers clusters of equal size, 0 does not.")
    ] = 1.0,
    n_init: Annotated[int, typer.Option(min=1, help="Starts; the lowest objective is kept.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Fixes starts and order.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
) -> None:
    """Cluster SOURCE into K groups with PAC and write a run folder."""
    from probagg.metrics import evaluate
    from probagg.pac.estimator import PAC

    try:
        data = benchmarks.load(source)
    except benchmarks.NoData as error:
        _fail(str(error), NO_DATA)
    pac = PAC(
        k or data.n_classes,
        m=_exponent(m),
        metric=metric,
        balance=balance,
        n_init=n_init,
        random_state=seed,
    )
    out = out or Path("runs") / f"{source}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        with RunFolder(out, overwrite=overwrite) as run:
            began = time.perf_counter()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                pac.fit(data.X)
            seconds = time.perf_counter() - began
            result = _summary(pac, evaluate(data.y, pac.labels_), seconds, out)
            _write_run(run, source, pac, result)
    except (RunFolderError, ValueError) as error:
        _fail(str(error), WRONG_USAGE)
    except OSError as error:
        _fail(f"{out} could not be written: {error}", FAILED)
    except KeyboardInterrupt:
        _fail(f"Interrupted. {out} is unfinished; the same command starts it again.", INTERRUPTED)
    for warning in caught:
        typer.echo(f"Warning: {warning.message}", err=True)
    if as_json:
        typer.echo(json.dumps(result))
    elif not quiet:
        _print_result(source, data.X.shape, result)


def _exponent(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        _fail(f"--m is {text!r}, but a number above 1 or auto is needed.", WRONG_USAGE)


def _summary(pac: PAC, scores: dict[str, float], seconds: float, out: Path) -> dict[str, Any]:
    import numpy as np

    return {
        "run": str(out),
        "n_clusters": pac.n_clusters,
        "sizes": np.bincount(pac.labels_, minlength=pac.n_clusters).tolist(),
        "objective": pac.objective_,
        "n_iter": pac.n_iter_,
        "m": pac.m_,
        "critical_m": pac.critical_m_,
        "seconds": round(seconds, 3),
        **scores,
    }


def _write_run(run: RunFolder, source: str, pac: PAC, result: dict[str, Any]) -> None:
    import tomli_w

    params = {name: value for name, value in pac.get_params().items() if value is not None}
    run.write("config.toml", tomli_w.dumps({"source": source, "method": "pac", "pac": params}))
    run.write_json("env.json", environment())
    records = [{"sweep": i, "objective": J} for i, J in enumerate(pac.objective_history_, start=1)]
    run.write("metrics.jsonl", "".join(json.dumps(r) + "\n" for r in [*records, result]))
    run.write("assignments.csv", _assignments(pac))
    pac.save(run.path / "model.safetensors")


def _assignments(pac: PAC) -> str:
    """One line a row: the most and the second most probable cluster."""
    P = pac.probabilities_
    ranked = (-P).argsort(axis=1, kind="stable")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["row", "cluster", "probability", "second_cluster", "second_probability"])
    for row, clusters in enumerate(ranked):
        first = clusters[0]
        second = [clusters[1], f"{P[row, clusters[1]]:.6f}"] if P.shape[1] > 1 else ["", ""]
        table.writerow([row, first, f"{P[row, first]:.6f}", *second])
    return text.getvalue()


def _print_result(source: str, shape: tuple[int, ...], result: dict[str, Any]) -> None:
    rows, columns = shape
    typer.echo(f"{source}: {rows} rows, {columns} columns, {result['n_clusters']} clusters (PAC)")
    widest = max(result["sizes"])
    for label, size in enumerate(result["sizes"]):
        typer.echo(f"  cluster {label:>3}  {size:>6}  {'█' * round(30 * size / widest)}")
    typer.echo(
        f"objective {result['objective']:.6g} after {result['n_iter']} sweeps in "
        f"{result['seconds']:.2f} s; m {result['m']:g}, critical m {result['critical_m']:.3f}"
    )
    typer.echo(
        f"against the known labels: ACC {100 * result['acc']:.1f}  NMI {100 * result['nmi']:.1f}  "
        f"ARI {100 * result['ari']:.1f}"
    )
    typer.echo(f"written to {result['run']}")


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"Error: {message}", err=True)
    sys.exit(code)
