"""OPAHead beside PAC, k-means, a Gaussian mixture and spectral clustering: ten seeds each.

python -m benchmarks opa_head        needs PROBAGG_DATA; about fifteen minutes on two cores
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from benchmarks.data import lab_matrix
from benchmarks.record import Cell, record
from benchmarks.study import percent
from probagg import PAC, OPAHead
from probagg.metrics import evaluate

NAMES = ("digits", "pendigits", "isolet", "mnist-test")
SEEDS = 10
METHODS = {
    "OPAHead": lambda K, seed: OPAHead(K, init="random", random_state=seed),
    "PAC": lambda K, seed: PAC(K, random_state=seed),
    "k-means": lambda K, seed: KMeans(K, n_init=1, random_state=seed),
    "Gaussian mixture (diagonal)": lambda K, seed: make_pipeline(  # fails in float32
        FunctionTransformer(np.float64),
        GaussianMixture(K, covariance_type="diag", reg_covar=1e-3, random_state=seed),
    ),
    "spectral": lambda K, seed: SpectralClustering(
        K, affinity="nearest_neighbors", random_state=seed
    ),
}


def main() -> None:
    """Print and record every combination."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in NAMES:
        data = lab_matrix(name)
        for method, make in METHODS.items():
            found = []
            for seed in range(SEEDS):
                began = time.perf_counter()
                labels = make(data.n_classes, seed).fit_predict(data.X)
                seconds = time.perf_counter() - began
                scores = evaluate(data.y, labels) | {"seconds": seconds}
                found.append(Cell(name, method, seed=seed).row(scores))
            acc, nmi, ari = (percent(*(row[s] for row in found)) for s in ("acc", "nmi", "ari"))
            print(f"{name:11} {method:28} ACC {acc}  NMI {nmi}  ARI {ari}", flush=True)
            rows += found
    record("opa_head", rows)
