"""How many clusters: `select_n_clusters` on blobs, on clouds without clusters and on real sets.

python benchmarks/pac_select.py [blobs] [clouds] [NAME ...]   needs PROBAGG_DATA; about 20 minutes

The rule was fixed on blobs and clouds before a real set was looked at. Labels are for reporting.
Parts named on the command line replace theirs in results/pac_select.json; the others stay.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from record import HERE, record
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from probagg import PAC
from probagg.data.benchmarks import load
from probagg.metrics import evaluate
from probagg.pac.select import select_n_clusters
from probagg.pac.selection import PENALTY

SETS = {  # name -> candidates, seeds, runs of each
    "digits": ("auto", 3, 5),
    "pendigits": ("auto", 2, 5),
    "isolet": ("auto", 1, 5),
    "mnist-test": ("auto", 1, 5),
    "cifar10-simclr": ("auto", 1, 5),
    "coil100": ((20, 140, 4), 1, 2),
}


def centres(K, D, rng, apart=6.0):
    """Random points of a box, no two nearer than `apart`; the box grows until they fit."""
    side = max(20.0, 1.5 * apart * K ** (1 / D))
    while True:
        found = [rng.uniform(0, side, D)]
        for point in rng.uniform(0, side, (50 * K, D)):
            if len(found) < K and np.linalg.norm(found - point, axis=1).min() >= apart:
                found.append(point)
        if len(found) == K:
            return np.array(found)
        side *= 1.05


def blobs(N, D, K, ratio, seed):
    """Round Gaussians of deviation 1; the largest is `ratio` times as likely as the smallest."""
    rng = np.random.default_rng(seed)
    share = np.linspace(1.0, ratio, K)
    y = rng.choice(K, N, p=share / share.sum())
    return centres(K, D, rng)[y] + rng.standard_normal((N, D))


def by_silhouette(X, numbers):
    """What the largest silhouette of k-means, on 2,000 rows, would have chosen."""
    rng = np.random.default_rng(0)
    X = X[rng.choice(len(X), min(len(X), 2000), replace=False)]
    fits = {K: KMeans(K, n_init=3, random_state=0).fit_predict(X) for K in numbers}
    return max(fits, key=lambda K: silhouette_score(X, fits[K]))


def choose(X, seed=0, **options):
    """The choice, its circumstances and the table behind it."""
    began = time.process_time()  # of one thread: the machine is shared
    selection = select_n_clusters(X, random_state=seed, **options)
    return {
        "chosen": selection.n_clusters,
        "clear": selection.clear,
        "by_stability": max(selection.table, key=lambda row: row.stability).n_clusters,
        "cpu_seconds": time.process_time() - began,
        "reason": selection.reason,
    }, selection


def run_blobs():
    """Every K and N at three D; unequal sizes at one."""
    results = []
    for N in (300, 1000, 4000, 20_000):
        for K in (3, 5, 10, 20, 40):
            if K * K > 2 * N or (N == 20_000 and K not in (5, 40)):
                continue  # beyond "auto"; the largest N only twice
            for D, ratio in ((2, 1), (8, 1), (8, 2), (64, 1)) if N < 20_000 else ((16, 1),):
                X = blobs(N, D, K, ratio, seed=K + D)
                found, selection = choose(X)
                if N == 1000:
                    numbers = [row.n_clusters for row in selection.table]
                    found["by_silhouette"] = int(by_silhouette(X, numbers))
                results.append({"N": N, "D": D, "K": K, "ratio": ratio, **found})
                print(N, D, K, ratio, found, flush=True)
    right = sum(row["chosen"] == row["K"] for row in results)
    print(f"blobs: {right} of {len(results)} exact", flush=True)
    return results


def run_clouds():
    """Single Gaussians and uniform boxes, 2,000 rows: there is nothing to find."""
    results = []
    for D in (1, 2, 8, 64):
        for kind in ("normal", "uniform"):
            rng = np.random.default_rng(D)
            X = rng.normal(size=(2000, D)) if kind == "normal" else rng.uniform(size=(2000, D))
            found, selection = choose(X)
            per_cluster = max(row.score / row.n_clusters + PENALTY for row in selection.table)
            found["largest_value"] = per_cluster  # what the price of a cluster must exceed
            results.append({"cloud": kind, "D": D, **found})
            print(kind, D, found, flush=True)
    return results


def open_set(name):
    """Rows, classes and metric of a set."""
    if name == "cifar10-simclr":
        with np.load(Path(os.environ["PROBAGG_DATA"]) / "cifar10_simclr.npz") as file:
            return file["X"].astype(np.float32), file["y"], "cosine"
    data = load(name)
    return data.X, data.y, "sqeuclidean"


def scores(X, y, K, metric):
    """PAC at K, the best of three starts, against the classes."""
    labels = PAC(K, m="auto", metric=metric, n_init=3, random_state=0).fit_predict(X)
    return evaluate(y, labels)


def run_set(name):
    """Some seeds, and the scores of PAC at the chosen and at the true K."""
    X, y, metric = open_set(name)
    candidates, seeds, n_runs = SETS[name]
    candidates = candidates if isinstance(candidates, str) else range(*candidates)
    runs, tables = [], []
    for seed in range(seeds):
        found, selection = choose(
            X, seed, candidates=candidates, metric=metric, n_runs=n_runs, m="auto"
        )
        runs.append(found)
        tables.append(selection.to_csv())
        print(name, found, flush=True)
    truth = len(np.unique(y))
    result = {"set": name, "classes": truth, "candidates": str(candidates), "runs": runs}
    result |= {"n_runs": n_runs, "table": tables[0]}
    result["at_chosen"] = scores(X, y, runs[0]["chosen"], metric)
    result["at_classes"] = scores(X, y, truth, metric)
    if name in ("digits", "pendigits"):
        result["by_silhouette"] = int(by_silhouette(X, range(2, 61)))
    print(name, truth, result["at_chosen"], result["at_classes"], flush=True)
    return result


def main() -> None:
    """Run what is named, or everything, and record it."""
    warnings.simplefilter("ignore")
    path = HERE / "results" / "pac_select.json"
    for name in sys.argv[1:] or ("blobs", "clouds", *SETS):
        run = {"blobs": run_blobs, "clouds": run_clouds}.get(name)
        result = run() if run else run_set(name)
        before = json.loads(path.read_text())["results"] if path.exists() else {}
        record("pac_select", before | {name: result})


if __name__ == "__main__":
    main()
