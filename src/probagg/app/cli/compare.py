"""probagg compare: several methods on the same rows, side by side."""

import itertools
import runpy
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from probagg.app.cli.options import AsJson, Backbone, Labels, example, parse_k
from probagg.app.cli.terminal import guarded
from probagg.app.run.methods import ByPac
from probagg.app.run.options import Options, Request
from probagg.app.run.result import scores
from probagg.arrays import unit_rows
from probagg.environment import environment
from probagg.errors import InputError, first_line

EXAMPLE = example(
    "probagg compare photos/ -k 10 --seeds 10",
    "Compares PAC, with and without smoothing, an OPA head, k-means and spectral clustering on the "
    "same features by scores (if labels are known), agreement between seeds, and time.",
)
LARGEST_GRAPH = 20_000  # rows that spectral clustering still takes in minutes
SILHOUETTE_ROWS = 2_000
METHODS = ("pac", "pac-smoothed", "opa", "kmeans", "spectral")
Method = Callable[[np.ndarray, int, str, int], np.ndarray]


def compare(
    source: Annotated[str, typer.Argument(help="As for probagg cluster.")],
    k: Annotated[
        str | None,
        typer.Option(
            "-k", help="Number of clusters. [default: the number of classes of a named set]"
        ),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, separated by commas. probagg cluster uses pac-smoothed. One of your own "
            "is FILE.py:FUNCTION, called with X, n_clusters and random_state; it returns labels."
        ),
    ] = ",".join(METHODS),
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs, each with its own seed.")] = 3,
    backbone: Backbone = None,
    labels: Labels = None,
    as_json: AsJson = False,
) -> None:
    """Compare several methods on SOURCE. Labels are used only to report scores."""
    with guarded(as_json=as_json) as terminal:
        chosen = [name.strip() for name in methods.split(",")]
        methods_used = {n: partial(_labels, n) if n in METHODS else _own(n) for n in chosen}
        options = Options(parse_k(k), backbone=backbone, labels=labels, method="pac")
        job = ByPac(Request(source, options.checked(source), terminal))
        if not isinstance(job.k, int):
            raise InputError(f"-k is {k!r}, but compare runs methods for one number of clusters.")
        samples, embedding = job.embedded()
        X, metric = samples.X, job.params.get("metric", "sqeuclidean")
        terminal.say(f"{source}: {X.shape[0]:,} rows of {X.shape[1]:,}, {job.k} clusters, {metric}")
        if embedding is not None:
            terminal.say(f"features of {job.backbone.name} in {embedding:.1f} s")
        rows = []
        for name in chosen:
            # Where probagg cluster does not smooth, this is pac again.
            if name == "pac-smoothed" and not job.smooths(len(X), job.k):
                continue
            if name == "spectral" and len(X) > LARGEST_GRAPH:
                terminal.warn(f"spectral is left out: {len(X):,} rows, at most {LARGEST_GRAPH:,}.")
                continue
            rows.append(_measure(name, methods_used[name], samples, job.k, metric, seeds))
            terminal.say(_line(rows[-1]))
        result = {"source": source, "n_clusters": job.k, "metric": metric, "methods": rows}
        result |= {"embedding_seconds": embedding, "env": environment()}
        terminal.give(result)


def _own(name: str) -> Method:
    """Return the method of a user, FILE.py:FUNCTION."""
    file, colon, function = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise InputError(
            f"--methods has {name!r}; possible are {', '.join(METHODS)}, and FILE.py:FUNCTION."
        )
    try:
        found = runpy.run_path(file).get(function)
    except Exception as error:  # a user's own code
        raise InputError(f"{file} of --methods cannot be run: {first_line(error)}.") from error
    if not callable(found):
        raise InputError(
            f"{file} has no function {function}. Write {function}(X, n_clusters, random_state), "
            "which returns one label per row."
        )

    def method(X: np.ndarray, K: int, metric: str, seed: int) -> np.ndarray:
        labels = np.asarray(found(X, K, seed))
        if labels.shape != (len(X),):
            raise InputError(f"{name} returned {labels.shape}, not one label per row ({len(X)},).")
        return labels

    return method


def _measure(
    name: str, method: Method, samples: Any, K: int, metric: str, seeds: int
) -> dict[str, Any]:
    """Run one method with every seed; return the scores and how far the runs agree."""
    from sklearn.metrics import adjusted_rand_score, silhouette_score

    # At unit length squared distances are cosine distances.
    X = unit_rows(samples.X) if metric == "cosine" else samples.X
    found, runs = [], []
    for seed in range(seeds):
        began = time.perf_counter()
        labels = np.asarray(method(X, K, metric, seed))
        runs.append({"seed": seed, "seconds": round(time.perf_counter() - began, 3)})
        if len(np.unique(labels)) > 1:
            how = "cosine" if metric == "cosine" else "euclidean"
            size = min(SILHOUETTE_ROWS, len(X))
            runs[-1]["silhouette"] = float(
                silhouette_score(X, labels, metric=how, sample_size=size, random_state=0)
            )
        runs[-1] |= scores(samples, labels)
        found.append(labels)
    pairs = [adjusted_rand_score(a, b) for a, b in itertools.combinations(found, 2)]
    return {"method": name, "runs": runs, "agreement": float(np.mean(pairs)) if pairs else None}


def _line(row: dict[str, Any]) -> str:
    """Return the scores of a method as one line: of up to three seeds, or mean ± deviation."""
    parts = [f"  {row['method']:<12}"]
    for key in ("acc", "nmi", "ari"):
        values = [100 * run[key] for run in row["runs"] if key in run]
        if values:
            few = ", ".join(f"{value:.1f}" for value in values)
            spread = f"{np.mean(values):.1f} ± {np.std(values, ddof=min(1, len(values) - 1)):.1f}"
            parts.append(f"{key.upper()} {few if len(values) < 4 else spread}")
    values = [run["silhouette"] for run in row["runs"] if "silhouette" in run]
    if values:
        parts.append(f"silhouette {np.mean(values):.3f}")
    if row["agreement"] is not None:
        parts.append(f"seeds agree {row['agreement']:.2f}")
    parts.append(f"{np.median([run['seconds'] for run in row['runs']]):.2f} s")
    return "  ".join(parts)


def _labels(name: str, X: np.ndarray, K: int, metric: str, seed: int) -> np.ndarray:
    """Return the clusters that a method finds."""
    from sklearn.cluster import KMeans, SpectralClustering

    import probagg

    params: dict[str, Any] = {"n_clusters": K, "random_state": seed}
    near = min(10, len(X))
    makers: dict[str, Callable[[], Any]] = {
        "pac": lambda: probagg.PAC(**params, metric=metric, m="auto"),
        "pac-smoothed": lambda: probagg.GraphPAC(**params, metric=metric, m="auto"),
        "opa": lambda: probagg.OPAHead(**params, metric=metric),
        "kmeans": lambda: KMeans(**params, n_init=1),
        "spectral": lambda: SpectralClustering(
            **params, affinity="nearest_neighbors", n_neighbors=near
        ),
    }
    return makers[name]().fit(X).labels_
