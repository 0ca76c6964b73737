"""Does the order of the samples matter, and what do more starts buy? Ten seeds of each.

python -m benchmarks pac_order        needs PROBAGG_DATA; about three minutes on two cores
"""

import argparse
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.record import record
from probagg import PAC, clustering_accuracy
from probagg.data.benchmarks import load

WAYS = {
    "random order": {"shuffle": True},
    "file order": {"shuffle": False},
    "random order, n_init=3": {"shuffle": True, "n_init": 3},
    "random order, n_init=10": {"shuffle": True, "n_init": 10},
}


def main() -> None:
    """Print and record every way on the three small sets."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = []
    for name in ("pendigits", "isolet", "mnist-test"):
        data = load(name)
        for way, options in WAYS.items():
            runs = [PAC(data.n_classes, random_state=s, **options).fit(data.X) for s in range(10)]
            acc = [100 * clustering_accuracy(data.y, pac.labels_) for pac in runs]
            results.append(
                {"data": name, "way": way, "acc": acc, "objective": [p.objective_ for p in runs]}
            )
            print(f"{name:11} {way:24} ACC {np.mean(acc):.1f} ± {np.std(acc):.1f}", flush=True)
    record("pac_order", results)
