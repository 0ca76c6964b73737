"""Tables as they come: `probagg.cluster` beside PAC and k-means on the numbers as they are.

python -m benchmarks pac_tables        one minute

The tables come with scikit-learn. "mixed" is wine with 5 % of its cells missing, a column of ids,
and alcohol as a category in three steps.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

import probagg
from benchmarks.record import Cell, record
from probagg import PAC, clustering_accuracy

SEEDS = 3


def mixed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table that needs preparation."""
    rng = np.random.default_rng(0)
    frame = frame.mask(rng.random(frame.shape) < 0.05)
    steps = pd.cut(frame["alcohol"], 3, labels=["low", "middle", "high"])
    names = [f"bottle {number}" for number in rng.permutation(len(frame))]
    return frame.assign(alcohol=steps.astype(object), bottle=names)


def tables() -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Return each table with its classes."""
    found = {
        name: load(return_X_y=True, as_frame=True)
        for name, load in (
            ("iris", load_iris),
            ("wine", load_wine),
            ("breast cancer", load_breast_cancer),
        )
    }
    X, y = found["wine"]
    return found | {"wine, mixed": (mixed(X), y)}


def compare(frame: pd.DataFrame, y: np.ndarray, seed: int) -> dict[str, float | None]:
    """Return the accuracy of each way; None where it cannot read the table."""
    K = len(np.unique(y))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = probagg.cluster(frame, K, out=out, random_state=seed)
        found = {"probagg.cluster": clustering_accuracy(y, run.assignments.cluster)}
    ways = {
        "PAC, as they are": (PAC(K, random_state=seed), False),
        "k-means, as they are": (KMeans(K, n_init=10, random_state=seed), False),
        "k-means, standardised": (KMeans(K, n_init=10, random_state=seed), True),
    }
    for name, (estimator, scaled) in ways.items():
        try:
            X = StandardScaler().fit_transform(frame) if scaled else frame
            found[name] = clustering_accuracy(y, estimator.fit(X).labels_)
        except ValueError:
            found[name] = None
    return found


def main() -> None:
    """Print and record."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, (frame, y) in tables().items():
        settings = {"n": len(frame), "K": len(np.unique(y))}
        for seed in range(SEEDS):
            found = compare(frame, np.asarray(y), seed)
            for way, acc in found.items():
                rows.append(Cell(name, way, seed=seed).row({"acc": acc, "settings": settings}))
            print(name, seed, found)
    record("pac_tables", rows)
