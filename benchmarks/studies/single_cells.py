"""Blood cells of one real set: PAC on log-normalised counts and on principal components.

python -m benchmarks single_cells [--seeds 5]     needs scanpy and igraph; a minute on two cores

The set is scanpy's pbmc68k_reduced, which comes with the package: 700 cells of ten types. k-means
is the best of ten starts; Leiden finds the number of clusters itself, at resolution 1.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans

from benchmarks.record import Cell, record
from probagg import PAC
from probagg.metrics import evaluate

AUTO = {"m": "auto", "balance": "auto"}
PACS: dict[str, dict[str, Any]] = {
    "PAC as in the paper": {"m": 1.03, "balance": 1.0},
    "PAC, auto": AUTO,
    "PAC, cosine, auto": {"metric": "cosine", **AUTO},
}


def methods(K: int) -> dict[str, Callable[[Any, int], np.ndarray]]:
    """Return functions of rows and a seed."""

    def pac(settings: dict[str, Any]) -> Callable[[Any, int], np.ndarray]:
        return lambda X, seed: PAC(K, random_state=seed, **settings).fit_predict(X)

    found = {name: pac(settings) for name, settings in PACS.items()}
    found["k-means"] = lambda X, seed: KMeans(K, n_init=10, random_state=seed).fit_predict(X)
    return found


def leiden(scanpy: Any, cells: Any, seed: int) -> np.ndarray:
    """Return the clusters of the neighbours' graph."""
    scanpy.pp.neighbors(cells, random_state=seed, use_rep="X_pca")
    scanpy.tl.leiden(
        cells, resolution=1.0, random_state=seed, flavor="igraph", n_iterations=2, directed=False
    )
    return cells.obs["leiden"].cat.codes.to_numpy()


def labellings(seeds: int) -> Iterator[tuple[str, str, int, np.ndarray, np.ndarray]]:
    """Yield the rows' name, the method, the seed, the types and the clusters of every run."""
    import scanpy

    cells = scanpy.datasets.pbmc68k_reduced()
    y = cells.obs["bulk_labels"].cat.codes.to_numpy()
    spaces = {
        "log-normalised counts": sp.csr_array(cells.raw.X).astype(np.float32),
        "X_pca": cells.obsm["X_pca"],
    }
    for space, X in spaces.items():
        for name, method in methods(len(np.unique(y))).items():
            yield from ((space, name, seed, y, method(X, seed)) for seed in range(seeds))
    for seed in range(seeds):
        yield "X_pca", "Leiden", seed, y, leiden(scanpy, cells, seed)


def main() -> None:
    """Run, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    rows = []
    for space, method, seed, y, labels in labellings(seeds):
        scores = {key: round(float(value), 4) for key, value in evaluate(y, labels).items()}
        found = {"clusters": len(np.unique(labels)), **scores}
        rows.append(Cell(space, method, seed=seed).row(found))
        print(rows[-1].cell, found, flush=True)
    record("single_cells", rows)
