"""Does the order of the samples matter, and what do more starts buy? Ten seeds of each.

python -m benchmarks pac_order        needs PROBAGG_DATA; about three minutes on two cores
"""

import argparse
import warnings

from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import lab_matrix
from benchmarks.record import Cell, record
from benchmarks.study import percent
from probagg import PAC, clustering_accuracy

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
    rows = []
    for name in ("pendigits", "isolet", "mnist-test"):
        data = lab_matrix(name)
        for way, options in WAYS.items():
            runs = [PAC(data.n_classes, random_state=s, **options).fit(data.X) for s in range(10)]
            acc = [clustering_accuracy(data.y, pac.labels_) for pac in runs]
            for seed, pac in enumerate(runs):
                found = {"acc_percent": 100 * acc[seed], "objective": pac.objective_}
                rows.append(Cell(name, "pac", way, seed).row(found))
            print(f"{name:11} {way:24} ACC {percent(*acc)}", flush=True)
    record("pac_order", rows)
