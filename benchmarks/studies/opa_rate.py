"""OPAHead at learning rates from an eighth to eight times the default, from both starts.

python -m benchmarks opa_rate        needs PROBAGG_DATA; about ten minutes on two cores

At most 3,000 rows of a set. The rate is in units of the default, 0.08 over the square root of the
number of features.
"""

import argparse
import warnings

import numpy as np
from sklearn.base import ClusterMixin

from benchmarks.data import open_lab_rows
from benchmarks.record import Cell, record
from probagg import PAC, OPAHead, clustering_accuracy

NAMES = ("digits", "isolet", "mnist-test", "cifar10-simclr")
FACTORS = (0.125, 0.35, 1.0, 2.8, 8.0)
SEEDS, ROWS = 3, 3000


def estimators(K: int, metric: str, seed: int) -> dict[tuple[str, str], ClusterMixin]:
    """Return what is compared, by start and rate."""
    found = {("PAC", ""): PAC(K, metric=metric, random_state=seed)}
    for init in ("random", "pac"):
        for factor in FACTORS:
            options = {"init": init, "learning_rate": 0.08 * factor, "random_state": seed}
            found[init, f"rate x {factor:g}"] = OPAHead(K, metric=metric, **options)
    return found


def main() -> None:
    """Print and record the accuracies of every rate, start and seed."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in NAMES:
        X, y, metric = open_lab_rows(name)
        some = np.random.default_rng(0).permutation(len(X))[:ROWS]
        X, y = X[some], y[some]
        for seed in range(SEEDS):
            for (start, setting), estimator in estimators(len(np.unique(y)), metric, seed).items():
                accuracy = clustering_accuracy(y, estimator.fit(X).labels_)
                rows.append(Cell(name, start, setting, seed).row({"acc": accuracy}))
                print(rows[-1].cell, f"{100 * accuracy:.1f}", flush=True)
    record("opa_rate", rows)
