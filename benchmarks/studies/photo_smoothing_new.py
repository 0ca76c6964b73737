"""Clusters smoothed over the kNN graph, for new photos.

    python -m benchmarks photo_smoothing_new [NAME ...]      needs PROBAGG_DATA

A fifth of each set is held out. PAC clusters the rest, three starts, as `probagg cluster photos/`
does. ACC of fitted and of held-out photos by PAC, by the smoothing that `predict` and exported
models use, and by a linear head fitted to the smoothed probabilities, which would be smaller. Where
the smoothing keeps a sample of the fitted photos, ACC with all of them too. Clusters are matched
with classes on the fitted and on the held-out photos separately.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import photo_sets
from benchmarks.record import Cell, record
from probagg import PAC, clustering_accuracy
from probagg.aggregation import embed
from probagg.neighbours import smoothing
from probagg.neighbours.smoothing import Smoothing

NAMES = ("dogs:lite0", "cifar10:lite0", "imagenette:lite0", "cifar10:simclr")
SEEDS, STEPS = 3, 60
MOST = 60_000  # rows of a set
METRIC = "cosine"


def measure(name: str, seed: int) -> dict[str, Any]:
    """Return ACC of fitted and of held-out photos for one division of a set."""
    X, y = photo_sets.load(name)
    K = len(np.unique(y))
    order = np.random.default_rng(seed).permutation(len(X))
    new, old = order[: len(X) // 5], np.sort(order[len(X) // 5 :])
    settings: dict[str, Any] = {"m": "auto", "metric": METRIC, "n_init": 3}
    pac = PAC(K, **settings, random_state=seed).fit(X[old])
    began = time.perf_counter()
    model, P = Smoothing.fit(X[old], pac.probabilities_, seed)
    seconds = time.perf_counter() - began
    head = fit_linear(unit(X[old]), torch.from_numpy(P))
    ways = {
        "pac": (pac.labels_, pac.predict(X[new])),
        "smoothed": (P.argmax(1), model.predict_proba(X[new]).argmax(1)),
        "linear": (head(unit(X[old])), head(unit(X[new]))),
    }
    if len(model.rows) < len(old):
        ways["smoothed_all_rows"] = with_all_rows(X[old], pac.probabilities_, X[new])
    return {
        "kept": len(model.rows),
        "bytes": model.rows.nbytes + model.P.nbytes,
        "seconds": round(seconds, 1),
        "settings": {"rows": len(X)},
        "fitted": {way: float(clustering_accuracy(y[old], a)) for way, (a, _) in ways.items()},
        "new": {way: float(clustering_accuracy(y[new], b)) for way, (_, b) in ways.items()},
    }


def with_all_rows(X: np.ndarray, P: np.ndarray, new: np.ndarray) -> tuple[Any, Any]:
    """Return labels of fitted and of new photos by a smoothing that keeps every fitted photo."""
    sample, smoothing.SAMPLE = smoothing.SAMPLE, len(X)
    try:
        model, smoothed = Smoothing.fit(X, P)
    finally:
        smoothing.SAMPLE = sample
    return smoothed.argmax(1), model.predict_proba(new).argmax(1)


def unit(X: np.ndarray) -> Tensor:
    """Return rows of length 1."""
    return F.normalize(torch.from_numpy(embed(X, METRIC)), dim=1)


def fit_linear(X: Tensor, Q: Tensor) -> Any:
    """Return a function from rows to labels: a linear classifier fitted by L-BFGS."""
    center = X.mean(0)
    scale = (X - center).square().mean().sqrt()
    layer = torch.nn.Linear(X.shape[1], Q.shape[1])
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    rows = (X - center) / scale
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(layer(rows), Q)
        value.backward()
        return value

    optimizer.step(loss)
    return lambda new: layer((new - center) / scale).detach().argmax(1).numpy()


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    warnings.simplefilter("ignore")
    photo_sets.ROWS = MOST
    rows = []
    for name in parser.parse_args().names or NAMES:
        for seed in range(SEEDS):
            rows.append(Cell(name, "smoothing", seed=seed).row(measure(name, seed)))
            print(rows[-1].cell, rows[-1].values, flush=True)
    record("photo_smoothing_new", rows)
