"""New samples of old and of new classes: `update` of a run of seven of ten classes.

python -m benchmarks new_classes [--only pendigits] [--seeds 3]

Needs PROBAGG_DATA. A seed draws which seven classes come first, and a half of each class. The run
is of the first halves of the seven; the second halves of all ten are new. Old clusters stand for
the class that is the most frequent in them among the first rows, new ones for that among the new.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

import probagg
from benchmarks.data import some_rows
from benchmarks.record import Cell, Row
from benchmarks.study import Run, Study

SETS = {"imagenette:lite0": "cosine", "cifar10:simclr": "cosine", "pendigits:pixels": "sqeuclidean"}
OLD_CLASSES, WAYS = 7, ("review", "auto")
SCORES = ("kept", "acc_old_classes", "acc_new_classes")


def cells(size: str, seeds: int) -> Iterator[Cell]:
    """Yield every run."""
    for data in SETS:
        for how in WAYS:
            yield from (Cell(data, "update", how, seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Cluster seven classes and add the rest; return what stayed and what was found."""
    X, y = some_rows(cell.data)
    first, new = halves(y, np.random.default_rng(cell.seed))
    known = np.isin(y, np.unique(y[first]))
    settings = {"metric": SETS[cell.data], "m": "auto", "n_init": 3, "report": False}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.save(Path(folder, "first.npy"), X[first])
        np.save(Path(folder, "all.npy"), X[np.concatenate([first, new])])
        out = Path(folder, "run")
        old = probagg.cluster(Path(folder, "first.npy"), OLD_CLASSES, out=out, **settings)
        before = old.assignments.cluster
        made = old.update(Path(folder, "all.npy"), new_clusters=cell.setting, report=False)
        after, found = made.assignments.cluster, made.result["updated"]
    labels, n = after[len(first) :], len(first)
    meaning = np.full(after.max() + 1, -1)
    for k in range(len(meaning)):
        source = y[first][before == k] if k < OLD_CLASSES else y[new][labels == k]
        if len(source):
            meaning[k] = np.bincount(source).argmax()
    right, is_old = meaning[labels] == y[new], known[new]
    return {
        "kept": float((after[:n] == before).mean()),
        "acc_first": float((meaning[before] == y[first]).mean()),
        "acc_old_classes": float(right[is_old].mean()),
        "acc_new_classes": float(right[~is_old].mean()),
        "n_new_clusters": len(found["new_clusters"]),
        "n_new_classes_found": len(set(meaning[OLD_CLASSES:]) - set(y[first])),
        "settings": {"first": n, "new": len(new), "metric": SETS[cell.data]},
    }


def halves(y: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the run and the new ones."""
    old = generator.permutation(np.unique(y))[:OLD_CLASSES]
    order = generator.permutation(len(y))
    rank = np.empty(len(y), int)
    for k in np.unique(y):
        mine = order[y[order] == k]
        rank[mine] = np.arange(len(mine)) * 2 // len(mine)
    first = np.flatnonzero((rank == 0) & np.isin(y, old))
    return first, np.flatnonzero(rank == 1)


def lines(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield means over the seeds."""
    yield "| data | how | numbers kept | ACC of old classes | ACC of new classes | clusters |"
    yield "|---|---|---|---|---|---|"
    for data, how in dict.fromkeys((row.data, row.setting) for row in rows):
        some = [row for row in rows if (row.data, row.setting) == (data, how)]
        scores = (f"{100 * fmean(row[name] for row in some):.1f}" for name in SCORES)
        number = fmean(row["n_new_clusters"] for row in some)
        yield f"| {data} | {how} | {' | '.join(scores)} | {number:.1f} |"


STUDY = Study("new_classes", cells, run, seeds=3, sizes=("full",), lines=lines)
