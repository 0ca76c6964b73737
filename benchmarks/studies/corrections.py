"""Ten corrections of 500 photos: accuracy before, after the moves alone, and after `refine`.

python -m benchmarks corrections [--seeds 3]

Needs PROBAGG_DATA. A seed draws 500 of Imagenette's 5,000 photos. An oracle looks at them as the
review page shows them, cluster by cluster with typical photos first ("page"), or in the order of
`probagg select` ("select"), and moves the first ten wrong ones. A cluster stands for the class that
the best matching gives it before any correction.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy.optimize import linear_sum_assignment

import probagg
from benchmarks.data import some_rows
from benchmarks.record import Cell, Row
from benchmarks.study import Run, Study, percent
from probagg.app.assignments import Assignments
from probagg.app.review import Review
from probagg.app.run.contents import write_review

PHOTOS, CORRECTIONS, CLASSES = 500, 10, 10
# Those of `probagg cluster` for photos.
SETTINGS = {"metric": "cosine", "m": "auto", "n_init": 3, "report": False}
SCORES = ("before", "moves", "refined")


def cells(size: str, seeds: int) -> Iterator[Cell]:
    """Yield every run."""
    for order in ("page", "select"):
        yield from (Cell("imagenette:lite0", "refine", order, seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Cluster, correct and refine; return the accuracies."""
    X, y = some_rows(cell.data)
    rows = np.sort(np.random.default_rng(cell.seed).choice(len(X), PHOTOS, replace=False))
    X, y = X[rows], y[rows]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.save(Path(folder, "features.npy"), X)
        out = Path(folder, "run")
        made = probagg.cluster(Path(folder, "features.npy"), CLASSES, out=out, **SETTINGS)
        table = made.assignments
        right = clusters_of_classes(table.cluster, y)[y]
        seen = page_order(table) if cell.setting == "page" else made.select(PHOTOS).names
        wrong = [name for name in seen if table.cluster[int(name)] != right[int(name)]]
        moved = {name: int(right[int(name)]) for name in wrong[:CORRECTIONS]}
        write_review(made.path, Review(moved=moved))
        after_moves = made.assignments.cluster
        refined = made.refine(report=False)
        after, found = refined.assignments.cluster, refined.result["refined"]
    return {
        "acc_before": float((table.cluster == right).mean()),
        "acc_moves": float((after_moves == right).mean()),
        "acc_refined": float((after == right).mean()),
        **{name: found[name] for name in ("n_changed", "n_neighbours", "n_followed")},
        "settings": {"photos": PHOTOS, "corrections": len(moved)},
    }


def clusters_of_classes(labels: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the cluster that best stands for each class, one to one."""
    counts = np.zeros((CLASSES, CLASSES))
    np.add.at(counts, (y, labels), 1)
    return linear_sum_assignment(-counts)[1]


def page_order(table: Assignments) -> list[str]:
    """Return the samples as the review page shows them, cluster by cluster, typical first."""
    order = np.lexsort((table.distance, -table.probability, table.cluster))
    return [table.names[row] for row in order]


def lines(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield the means over seeds, and how often `refine` gains on the moves alone."""
    yield "| order | seeds | before | moves alone | refined | gains, equal, loses | followed |"
    yield "|---|---|---|---|---|---|---|"
    for order in dict.fromkeys(row.setting for row in rows):
        some = [row for row in rows if row.setting == order]
        scores = (percent(*(row[f"acc_{name}"] for row in some)) for name in SCORES)
        signs = [np.sign(row["acc_refined"] - row["acc_moves"]) for row in some]
        counts = ", ".join(str(signs.count(sign)) for sign in (1, 0, -1))
        followed = fmean(row["n_followed"] / max(row["n_neighbours"], 1) for row in some)
        shown = f"{' | '.join(scores)} | {counts} | {100 * followed:.0f} %"
        yield f"| {order} | {len(some)} | {shown} |"


STUDY = Study("corrections", cells, run, seeds=10, sizes=("full",), lines=lines)
