"""Blood cells of one real set: PAC on log-normalised counts and on principal components.

python -m benchmarks single_cells [--seeds 5]     needs scanpy and igraph; a minute on two cores

The set is scanpy's pbmc68k_reduced, which comes with the package: 700 cells of ten types. k-means
is the best of ten starts; Leiden finds the number of clusters itself, at resolution 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.paper.methods import kmeans_of_ten
from benchmarks.record import Cell, Row
from benchmarks.study import Run, Study, percent
from probagg import PAC, GraphPAC
from probagg.metrics import evaluate

COUNTS, COMPONENTS = "log-normalised counts", "X_pca"


def fitted(kind: type[PAC | GraphPAC], **settings: Any) -> Callable[[Any, int, int], np.ndarray]:
    """Return a function of rows, K and a seed."""
    return lambda X, K, seed: kind(K, random_state=seed, **settings).fit_predict(X)


METHODS: dict[str, Callable[[Any, int, int], np.ndarray]] = {
    "PAC as in the paper": fitted(PAC),
    "GraphPAC": fitted(GraphPAC, m="auto"),
    "GraphPAC, cosine": fitted(GraphPAC, m="auto", metric="cosine"),
    "k-means": kmeans_of_ten,
}


@cache
def load() -> Any:
    """Return the cells, an AnnData object."""
    import scanpy

    return scanpy.datasets.pbmc68k_reduced()


def leiden(seed: int) -> np.ndarray:
    """Return the clusters of the neighbours' graph."""
    import scanpy

    cells = load()
    scanpy.pp.neighbors(cells, random_state=seed, use_rep=COMPONENTS)
    scanpy.tl.leiden(
        cells, resolution=1.0, random_state=seed, flavor="igraph", n_iterations=2, directed=False
    )
    return cells.obs["leiden"].cat.codes.to_numpy()


def cells(size: str, seeds: int) -> Iterator[Cell]:
    """Yield every run."""
    for space in (COUNTS, COMPONENTS):
        for method in METHODS:
            yield from (Cell(space, method, seed=seed) for seed in range(seeds))
    yield from (Cell(COMPONENTS, "Leiden", seed=seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Return scores and the number of clusters."""
    data = load()
    y = data.obs["bulk_labels"].cat.codes.to_numpy()
    counts = cell.data == COUNTS
    X = sp.csr_array(data.raw.X).astype(np.float32) if counts else data.obsm[COMPONENTS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if cell.method == "Leiden":
            labels = leiden(cell.seed or 0)
        else:
            labels = METHODS[cell.method](X, len(np.unique(y)), cell.seed or 0)
    return {"clusters": len(np.unique(labels)), **evaluate(y, labels)}


def lines(study: Study, rows: list[Row]) -> Iterable[str]:
    """Yield ACC, NMI and ARI of each method."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.data, row.method), []).append(row)
    for (space, method), runs in found.items():
        scores = (percent(*(run[name] for run in runs)) for name in study.shown)
        yield f"{space}, {method}: {', '.join(scores)}"


STUDY = Study(
    "single_cells",
    cells,
    run,
    seeds=5,
    shown=("acc", "nmi", "ari"),
    sizes=("full",),
    lines=lines,
)
