"""What any method returns, and the files of a run that it becomes."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tomli_w

from probagg.app.assignments import (
    BORDERLINE,
    OUTLIER,
    Assignments,
    Further,
    Yardstick,
    overlaps,
    parts_of,
)
from probagg.app.run.folder import FURTHER, RunFolder
from probagg.app.run.samples import Samples
from probagg.app.run.tables import example_cells, profiles
from probagg.arrays import npy_bytes, npz_bytes
from probagg.data.cells import text_table
from probagg.environment import environment

# The most sizes of clusters in a line.
MOST_SIZES = 30


@dataclass(frozen=True)
class Clustering:
    """The clusters of samples, the model and how they were made.

    P (n, K) is an array or `Predicted`. X (n, D) is what distances are measured in: an array, or
    the rows of a file. `model` can be saved. `facts` go to result.json; `files` are more files, by
    name.
    """

    samples: Samples
    P: Any
    X: Any
    metric: str
    model: Any
    seconds: float
    facts: dict[str, Any]
    files: Mapping[str, str | bytes] = field(default_factory=dict)

    @cached_property
    def labels(self) -> np.ndarray:
        """(n,) the most probable cluster."""
        return most_probable(self.P)


def most_probable(P: Any) -> np.ndarray:
    """Return the most probable cluster of each row of P (n, K), an array or `Predicted`."""
    return np.concatenate([P[rows].argmax(1) for rows in parts_of(P)])


def begin(folder: RunFolder, config: dict[str, Any]) -> None:
    """Write the files that say what is run and where."""
    folder.write("config.toml", tomli_w.dumps(_without_none(config)))
    folder.write("env.json", json.dumps(environment(), indent=2) + "\n")


def write(
    folder: RunFolder, clustering: Clustering, discarded: Collection[str] = ()
) -> dict[str, Any]:
    """Write all tables of a clustering and its model; return the summary in result.json.

    Samples of these names, which a person discarded, and blank images do not say what is far.
    """
    samples, K = clustering.samples, clustering.P.shape[1]
    unlike = {*discarded, *samples.blank}
    ignored = np.array([name in unlike for name in samples.names], bool) if unlike else None
    yardstick = Yardstick.of(clustering.X, clustering.labels, K, clustering.metric, ignored)
    assigned = Assignments.of(
        clustering.P, clustering.X, yardstick, samples.names, heading=samples.heading
    )
    folder.write("assignments.csv", assigned.csv_parts())
    is_kept = isinstance(clustering.P, np.ndarray)
    if is_kept and (further := Further.of(clustering.P, assigned)) is not None:
        folder.write(FURTHER, npz_bytes(**vars(further)))
    pairs = overlaps(clustering.P, assigned)
    folder.write("overlaps.csv", text_table("first second mean_probability samples", pairs))
    if samples.classes is not None:
        # A column of ids is called "name".
        heading = samples.heading if samples.heading in ("path", "row") else "name"
        named = zip(samples.names, samples.classes.texts(), strict=True)
        known = [(name, text) for name, text in named if text]
        folder.write("classes.csv", text_table(f"{heading} class", known, samples.heading))
    if left_out := (*samples.skipped, *samples.others):
        folder.write("skipped.csv", text_table("path reason", left_out, samples.heading))
    if samples.images is None:
        X = samples.X if samples.units is None else samples.units
        rows = profiles(X, clustering.labels, samples.columns, samples.preparation)
        heads = "cluster column mean q25 median q75" + " kind" * (samples.preparation is not None)
        folder.write("profiles.csv", text_table(heads, rows))
        if samples.table is not None and samples.preparation is not None:
            cells = example_cells(samples.table, samples.preparation, X, assigned, K)
            folder.write("cells.csv", text_table("place column cell", cells))
    else:
        folder.write("embeddings.npy", npy_bytes(clustering.X.astype(np.float32)))
    for name, text in clustering.files.items():
        folder.write(name, text)
    yardstick.save(folder.work / "yardstick.safetensors")
    clustering.model.save(folder.work / "model.safetensors")
    folder.keep("yardstick.safetensors", "model.safetensors")
    facts = {"n_clusters": K, "n_samples": len(samples), **clustering.facts}
    result = {
        "run": str(folder.path),
        "method": facts.pop("method"),
        **facts,
        "sizes": np.bincount(assigned.cluster, minlength=K).tolist(),
        "n_borderline": int((assigned.flag == BORDERLINE).sum()),
        "n_outliers": int((assigned.flag == OUTLIER).sum()),
        "n_skipped": len(samples.skipped),
        **({"n_other_files": len(samples.others)} if samples.images is not None else {}),
        **({"blank": list(samples.blank)} if samples.blank else {}),
        "seconds": round(clustering.seconds, 3),
    }
    result |= scores(samples, assigned.cluster)
    folder.write("result.json", json.dumps(result, indent=2) + "\n")
    return result


def scores(samples: Samples, labels: np.ndarray) -> dict[str, Any]:
    """Return ACC, NMI and ARI over the samples whose class is known, or nothing."""
    classes = samples.classes
    if classes is None or not classes.known.any():
        return {}
    from probagg.metrics import evaluate

    known = classes.known
    found: dict[str, Any] = dict(evaluate(classes.y[known], labels[known]))
    return found if known.all() else found | {"n_labelled": int(known.sum())}


def describe_result(clustering: Clustering, result: dict[str, Any]) -> list[str]:
    """Return the result as a few lines of text."""
    samples, method = clustering.samples, result["method"].upper()
    method += ", smoothed" * result.get("smooth", False)
    K = result["n_clusters"]
    what = f"{result['n_samples']:,} {samples.noun} in {K} cluster{'s' * (K != 1)} by {method}"
    sizes = ", ".join(f"{size:,}" for size in result["sizes"][:MOST_SIZES])
    lines = [what, f"sizes: {sizes}{', ...' * (K > MOST_SIZES)}"]
    counts = [f"{result['n_borderline']:,} borderline", f"{result['n_outliers']:,} outliers"]
    if n := result["n_skipped"]:
        what = "row" if samples.images is None else "file"
        counts.append(f"{n:,} {what}{'s' * (n != 1)} skipped (skipped.csv says why)")
    if n := result.get("n_other_files"):
        counts.append(f"{n:,} other file{'s' * (n != 1)} (skipped.csv)")
    if n := result.get("n_duplicates", 0):
        counts.append(f"{n:,} near-duplicate{'s' * (n != 1)} (duplicates.csv)")
    lines.append(", ".join(counts))
    if samples.classes is not None and "acc" in result:
        some = f" ({result['n_labelled']:,} of them)" if "n_labelled" in result else ""
        lines.append(scores_line(f"against {samples.classes.origin}{some}", result))
    if "objective" in result:
        lines.append(
            f"objective {result['objective']:.6g} after {result['n_iter']} sweeps; m "
            f"{result['m']:g}, critical m {result['critical_m']:.3f}, balance "
            f"{result['balance']:g}"
        )
    elif "state" in result:
        lines.append(f"{result['state']}, sharpness {result['sharpness']:.2f}")
    return lines


def scores_line(what: str, scores: dict[str, Any]) -> str:
    """Return ACC, NMI and ARI of one result as text."""
    numbers = (f"{name.upper()} {100 * scores[name]:.1f}" for name in ("acc", "nmi", "ari"))
    return f"{what}: {'  '.join(numbers)}"


def _without_none(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are set: TOML has no None."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if value is not None
    }


class Predicted:
    """P (n, K) of many rows by a fitted model; what is not being read is not in memory."""

    def __init__(self, model: Any, X: Any) -> None:
        self.model, self.X = model, X
        self.shape = X.shape[0], int(model.n_clusters)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        X = self.X[rows]
        return self.model.predict_proba(np.asarray(X) if isinstance(X, np.memmap) else X)
