"""Is the linear form Algorithm 1? The largest difference after some sweeps.

python -m benchmarks pac_equality        about ten seconds, no data needed
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances

from benchmarks.paper.algorithm_1 import algorithm_1
from benchmarks.record import Cell, record
from probagg import PAC

N, K, M = 300, 10, 1.03


def main() -> None:
    """300 digits in float64, near-uniform start, block_size=1, file order."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    X = load_digits().data[:N]
    rng = np.random.default_rng(0)
    start = 1 + 0.02 * rng.random((N, K))
    start /= start.sum(1, keepdims=True)
    rows = []
    for metric in ("sqeuclidean", "cosine"):
        D = pairwise_distances(X, metric=metric)
        for name, weights in (("equal", None), ("random", rng.random(N) + 0.5)):
            for n_sweeps in (1, 2, 10):
                options = {"init": start, "block_size": 1, "shuffle": False, "tol": 0.0}
                pac = PAC(K, m=M, metric=metric, max_iter=n_sweeps, **options)
                P = pac.fit(X, sample_weight=weights).probabilities_
                exact = algorithm_1(D, start, M, n_sweeps, w=weights)
                difference = float(np.abs(P - exact).max())
                settings = {"weights": name, "sweeps": n_sweeps}
                cell = Cell("digits", metric, f"{name} weights, {n_sweeps} sweeps")
                rows.append(cell.row({"max_diff": difference, "settings": settings}))
                print(f"{metric:12} {name:7} weights  {n_sweeps:2} sweeps  {difference:.1e}")
    record("pac_equality", rows, settings={"n": N, "n_clusters": K, "m": M})
