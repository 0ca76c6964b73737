"""Table 2: PAC, k-means, fuzzy c-means and spectral clustering on raw features, ours | paper.

python benchmarks/pac_accuracy.py [NAME ...]        needs PROBAGG_DATA; about half an hour for all
"""

import sys
import time
import warnings

import numpy as np
import skfuzzy
from paper.expected import expected
from record import record
from sklearn.cluster import KMeans, SpectralClustering

from probagg import PAC
from probagg.data.benchmarks import load
from probagg.metrics import evaluate

NAMES = ("pendigits", "isolet", "mnist-test", "coil100")
SEEDS = 10
FEWER = {("fcm", "coil100"): 2}  # minutes a run


def fcm(X, K, seed):
    """Fuzzy c-means at the paper's m = 1.1, from scikit-fuzzy."""
    U = skfuzzy.cmeans(X.T, K, m=1.1, error=5e-3, maxiter=100, seed=seed)[1]
    return U.argmax(0)


METHODS = {
    "pac": lambda X, K, seed: PAC(K, random_state=seed).fit_predict(X),
    "pac, n_init=10": lambda X, K, seed: PAC(K, n_init=10, random_state=seed).fit_predict(X),
    "k-means": lambda X, K, seed: KMeans(K, n_init=1, random_state=seed).fit_predict(X),
    "k-means, n_init=10": lambda X, K, seed: KMeans(K, n_init=10, random_state=seed).fit_predict(X),
    "spectral": lambda X, K, seed: SpectralClustering(
        K, affinity="nearest_neighbors", random_state=seed
    ).fit_predict(X),
    "fcm": fcm,
}


def run(method: str, name: str) -> dict:
    """Ten seeds of one method on one data set; one seed where ten starts are inside."""
    data = load(name)
    n = 1 if "n_init" in method else FEWER.get((method, name), SEEDS)
    rows = []
    for seed in range(n):
        began = time.perf_counter()
        labels = METHODS[method](data.X, data.n_classes, seed)
        seconds = time.perf_counter() - began
        rows.append(evaluate(data.y, labels) | {"seconds": seconds})
    summary = {
        key: {
            "mean": float(np.mean([r[key] for r in rows])),
            "std": float(np.std([r[key] for r in rows])),
        }
        for key in rows[0]
    }
    return {"data": name, "method": method, "n": n, "summary": summary, "runs": rows}


def main() -> None:
    """Print and record every combination."""
    warnings.simplefilter("ignore")
    paper = expected("table2")
    results = []
    for name in sys.argv[1:] or NAMES:
        for method in METHODS:
            result = run(method, name)
            results.append(result)
            acc, seconds = result["summary"]["acc"], result["summary"]["seconds"]
            theirs = paper[name].get(method)
            beside = f"paper {theirs['acc']} ± {theirs['std']}" if theirs else ""
            print(
                f"{name:11} {method:18} ACC {100 * acc['mean']:.1f} ± {100 * acc['std']:.1f} "
                f"(n={result['n']})  {seconds['mean']:7.2f} s   {beside}",
                flush=True,
            )
    record("pac_accuracy", results)


if __name__ == "__main__":
    main()
