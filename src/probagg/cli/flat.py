"""A matrix clustered by PAC, as a run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from probagg.cli.tables import assignments
from probagg.cli.terminal import show_scores, show_sizes
from probagg.data import benchmarks
from probagg.data.arrays import read_matrix
from probagg.runs import RunFolder, environment

if TYPE_CHECKING:
    from probagg.pac.estimator import PAC


def run(
    *,
    source: str,
    k: int | None,
    out: Path,
    seed: int,
    overwrite: bool,
    quiet: bool,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Cluster the rows of a named set or of a file and fill the run folder."""
    from probagg.metrics import evaluate
    from probagg.pac.estimator import PAC

    data = benchmarks.load(source) if source in benchmarks.NAMES else read_matrix(Path(source))
    if k is None and source in benchmarks.NAMES and data.y is not None:
        k = len(set(data.y.tolist()))
    if k is None:
        raise ValueError(f"-k is missing: say how many clusters {source} should have, as -k 10.")
    pac = PAC(k, **options, random_state=seed)
    with RunFolder(out, overwrite=overwrite) as folder:
        began = time.perf_counter()
        pac.fit(data.X)
        seconds = time.perf_counter() - began
        scores = {} if data.y is None else evaluate(data.y, pac.labels_)
        result = _summary(pac, scores, seconds, out)
        _write(folder, source, pac, result)
    if not quiet:
        _show(source, data.X.shape, result)
    return result


def _summary(pac: PAC, scores: dict[str, float], seconds: float, out: Path) -> dict[str, Any]:
    import numpy as np

    return {
        "run": str(out),
        "method": "pac",
        "n_clusters": pac.n_clusters,
        "sizes": np.bincount(pac.labels_, minlength=pac.n_clusters).tolist(),
        "objective": pac.objective_,
        "n_iter": pac.n_iter_,
        "m": pac.m_,
        "critical_m": pac.critical_m_,
        "seconds": round(seconds, 3),
        **scores,
    }


def _write(folder: RunFolder, source: str, pac: PAC, result: dict[str, Any]) -> None:
    import tomli_w

    params = {name: value for name, value in pac.get_params().items() if value is not None}
    folder.write("config.toml", tomli_w.dumps({"source": source, "method": "pac", "pac": params}))
    folder.write_json("env.json", environment())
    records = [{"sweep": i, "objective": J} for i, J in enumerate(pac.objective_history_, start=1)]
    folder.write("metrics.jsonl", "".join(json.dumps(r) + "\n" for r in [*records, result]))
    folder.write("assignments.csv", assignments(pac.probabilities_))
    pac.save(folder.path / "model.safetensors")


def _show(source: str, shape: tuple[int, ...], result: dict[str, Any]) -> None:
    rows, columns = shape
    typer.echo(f"{source}: {rows} rows, {columns} columns, {result['n_clusters']} clusters (PAC)")
    show_sizes(result["sizes"])
    typer.echo(
        f"objective {result['objective']:.6g} after {result['n_iter']} sweeps in "
        f"{result['seconds']:.2f} s; m {result['m']:g}, critical m {result['critical_m']:.3f}"
    )
    if "acc" in result:
        show_scores("against the known labels", result)
    typer.echo(f"written to {result['run']}")
