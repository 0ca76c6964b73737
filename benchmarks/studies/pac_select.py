"""How many clusters: `select_n_clusters` on blobs, on clouds without clusters and on real sets.

python -m benchmarks pac_select [--quick] [--as now] [NAME ...]   needs PROBAGG_DATA; 5 CPU minutes

Every set is drawn at several sizes, with "auto" candidates (COIL-100 of 2,000 rows and more: 2 to
130). The rule and its constants were chosen on the sets of DESIGN; the others report only. Labels
are for reporting. PROBAGG_FEATURES may name a folder with NAME.npz (X, y), else features of photos
are computed. With another version of probagg on PYTHONPATH, `--as before` records its answers
beside those of `now`. Sets named on the command line replace theirs; the others stay.
"""

import argparse
import time
import warnings

import numpy as np

from benchmarks.data import open_lab_rows
from benchmarks.record import Cell, Results
from probagg.pac.n_clusters import select_n_clusters

DESIGN = ("blobs", "clouds", "digits", "pendigits", "isolet", "imagenette")
UNSEEN = ("blobs of many shapes", "mnist-test", "coil100", "imagenet-dogs", "cifar10-simclr")
RUNS = ((150, 0), (150, 1), (600, 0), (600, 1), (2000, 0), (5000, 0))  # rows, seed
QUICK = ((150, 0), (600, 0))
CLOUDS = [(kind, D) for kind in ("normal", "uniform") for D in (1, 2, 8, 64)]
BLOBS = [(3, 2, 1), (5, 8, 1), (10, 2, 2), (20, 64, 1), (40, 8, 1)]  # K, columns, ratio of sizes


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


def shapes(N, D, K, seed):
    """Gaussians with other variances in every column, some of which overlap."""
    rng = np.random.default_rng(seed)
    y, spread = rng.integers(K, size=N), rng.uniform(0.3, 2.0, (K, D))
    return rng.uniform(-10, 10, (K, D))[y] + spread[y] * rng.standard_normal((N, D))


def samples(name, runs):
    """Yield the variant, rows, true K (0 for none), metric and seed of every run."""
    if name == "blobs":
        for N, seed in runs:
            for K, D, ratio in BLOBS:
                if K * K <= 2 * N:  # within "auto"
                    yield f"{K} in {D} columns", blobs(N, D, K, ratio, seed + K + D), K, None, seed
    elif name == "blobs of many shapes":
        for N, seed in runs:
            for K, D in ((8, 10), (4, 3)):
                yield f"{K} in {D} columns", shapes(N, D, K, seed), K, None, seed
    elif name == "clouds":
        for N, seed in runs:
            for kind, D in CLOUDS:
                rng = np.random.default_rng(seed + D)
                yield f"{kind}, {D} columns", getattr(rng, kind)(size=(N, D)), 0, None, seed
    else:
        X, y, metric = open_lab_rows(name)
        for N, seed in runs:
            some = np.random.default_rng(seed).permutation(len(X))[:N]
            yield "", X[some], len(np.unique(y[some])), metric, seed


def run(name, runs, version):
    """Return the choice on every sample of a set."""
    rows = []
    for variant, X, truth, metric, seed in samples(name, runs):
        if rows and len(X) == rows[-1].settings["rows"] == 1797:
            continue  # all of digits
        wide = {"candidates": (2, 130)} if name == "coil100" and len(X) >= 2000 else {}
        began = time.process_time()  # of one thread: the machine may be shared
        found = select_n_clusters(X, metric=metric or "sqeuclidean", random_state=seed, **wide)
        values = {"truth": truth, "chosen": found.n_clusters, "clear": found.clear}
        values |= {"interval": getattr(found, "interval", None), "reason": found.reason}
        values |= {"cpu_seconds": round(time.process_time() - began, 2)}
        setting = ", ".join(filter(None, (variant, f"{len(X)} rows")))
        values |= {"settings": {"variant": variant, "rows": len(X)}}
        rows.append(Cell(name, version, setting, seed).row(values))
        wrong = found.clear if truth == 0 else abs(found.n_clusters - truth) > max(1, truth // 10)
        print(rows[-1].cell, "WRONG" if wrong else "right", rows[-1].values, flush=True)
    return rows


def main() -> None:
    """Run what is named, or everything, and record it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=(*DESIGN, *UNSEEN), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="150 and 600 rows, one seed")
    parser.add_argument("--as", dest="version", default="now", help="under which key to record")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.names:
        Results.open("pac_select").put(*run(name, QUICK if given.quick else RUNS, given.version))
