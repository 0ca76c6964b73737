"""Clusters smoothed over the kNN graph, for new photos: which model can follow?

    probagg bench photo_smoothing_new      needs PROBAGG_DATA

A fifth of each set is held out. PAC clusters the rest, and its probabilities are smoothed (five
rounds). ACC of the held-out photos by PAC itself, by a linear head fitted to the smoothed
probabilities, by PAC's clusters refitted to them, and by the mean of the smoothed probabilities of
the nearest fitted photos. Clusters are matched with classes on the held-out photos alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the modules below are

import argparse
import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from photo_sets import load
from record import record
from torch import Tensor

from probagg import PAC, Moments, aggregate, clustering_accuracy
from probagg.aggregation import assign, embed
from probagg.dpac.neighbours import nearest, smooth

NAMES = ("dogs:lite0", "cifar10:lite0")
SEEDS, ROUNDS, STEPS = 3, 5, 60
METRIC = "cosine"


def measure(name: str, seed: int) -> dict[str, Any]:
    """Return ACC of fitted and of held-out photos for one division of a set."""
    X, y = load(name)
    K = len(np.unique(y))
    order = np.random.default_rng(seed).permutation(len(X))
    new, old = order[: len(X) // 5], order[len(X) // 5 :]
    settings: dict[str, Any] = {"m": "auto", "metric": METRIC, "balance": "auto"}
    pac = PAC(K, **settings, random_state=seed).fit(X[old])
    rows = torch.from_numpy(X[old])
    near = nearest(rows, K, METRIC)
    Q = smooth(near, torch.from_numpy(pac.probabilities_).float(), rounds=ROUNDS)
    head = fit_linear(unit(X[old]), Q)
    moments = Moments.of(X[old], Q.numpy(), METRIC)
    found = unit(X[new]) @ unit(X[old]).T
    ways = {
        "pac": pac.predict(X[new]),
        "linear": head(unit(X[new])).argmax(1).numpy(),
        "refitted": assign(aggregate(X[new], moments, METRIC, balance=pac.balance_), pac.m_).argmax(
            1
        ),
        "neighbours": Q[found.topk(near.shape[1]).indices].mean(1).argmax(1).numpy(),
    }
    linear = head(unit(X[old])).argmax(1)
    return {
        "fitted": {
            "pac": float(clustering_accuracy(y[old], pac.labels_)),
            "smoothed": float(clustering_accuracy(y[old], Q.argmax(1).numpy())),
            "linear": float(clustering_accuracy(y[old], linear.numpy())),
            "linear_agrees": float((linear == Q.argmax(1)).float().mean()),
        },
        "new": {way: float(clustering_accuracy(y[new], labels)) for way, labels in ways.items()},
    }


def unit(X: np.ndarray) -> Tensor:
    """Return rows of length 1."""
    return F.normalize(torch.from_numpy(embed(X, METRIC)), dim=1)


def fit_linear(X: Tensor, Q: Tensor) -> Any:
    """Return a linear classifier fitted to probabilities by L-BFGS."""
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
    return lambda new: layer((new - center) / scale).detach()


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    warnings.simplefilter("ignore")
    results = []
    for name in parser.parse_args().names or NAMES:
        runs = [measure(name, seed) for seed in range(SEEDS)]
        results.append({"data": name, "seeds": runs})
        for part in ("fitted", "new"):
            means = {way: 100 * np.mean([run[part][way] for run in runs]) for way in runs[0][part]}
            print(name, part, {way: round(float(mean), 1) for way, mean in means.items()})
    record("photo_smoothing_new", results)


if __name__ == "__main__":
    main()
