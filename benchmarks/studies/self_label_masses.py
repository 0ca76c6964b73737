"""Refreshing the pseudo-labels of self-labelling on fixed features: which masses they are held to.

    python -m benchmarks self_label_masses               needs PROBAGG_DATA; 10 minutes on two cores
    python -m benchmarks self_label_masses FILE.npz      features X and classes y of your own

A refresh smooths the head's probabilities over the kNN graph, sharpens them and fits the head to
the result. Smoothing is held to given cluster masses. Sharpening moves them, so that masses taken
from the refresh before drift; those of the classifier, as the stage began, do not.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.data import read_features
from benchmarks.record import Cell, Row, record
from probagg import PAC
from probagg.dpac.start import fit_head
from probagg.metrics import evaluate
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph

REFRESHES = 13  # as many as 60 epochs of self-labelling have
ROWS = 10_000
WAYS = ("of the refresh before", "of the classifier")


def refresh(X: Tensor, start: Tensor, way: str) -> list[np.ndarray]:
    """Return the head's labels after each refresh, from the probabilities of a classifier."""
    K = start.shape[1]
    head, near = nn.Linear(X.shape[1], K), smoothing_graph(X, K, "cosine")
    found, P, mass = [], start, start.sum(0)
    for _ in range(REFRESHES):
        Q = sharpen(smooth(near, P, mass=mass), to=sharpness(start))
        if way == WAYS[0]:
            mass = Q.sum(0)
        fit_head(head, X, Q, 0)
        with torch.no_grad():
            P = head(X).softmax(1)
        found.append(P.argmax(1).numpy())
    return found


def measure(path: Path) -> list[Row]:
    """Return sizes and scores of both ways on some rows of a file of features."""
    X, y = read_features(path)
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[:ROWS])
    X, y = X[rows], y[rows]
    K = len(np.unique(y))
    pac = PAC(K, metric="cosine", m=1.02, balance=1.0, random_state=0).fit(X)
    results = []
    for way in WAYS:
        labels = refresh(torch.from_numpy(X), torch.from_numpy(pac.probabilities_).float(), way)
        sizes = [np.bincount(each, minlength=K) for each in labels]
        found = {
            "smallest": [int(each.min()) for each in sizes],
            "largest": [int(each.max()) for each in sizes],
            "acc": [evaluate(y, each)["acc"] for each in labels],
            "settings": {"rows": len(X)},
        }
        row = Cell(path.stem, "refresh", way).row(found)
        print(path.stem, "masses", way, row["smallest"], row["largest"], np.round(row["acc"], 3))
        results.append(row)
    return results


def main() -> None:
    """Measure the files named, or CIFAR-10's SimCLR features."""
    usual = Path(os.environ.get("PROBAGG_DATA", "")) / "cifar10_simclr.npz"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=[usual], help=".npz with X and y")
    paths = parser.parse_args().files
    record("self_label_masses", [row for path in paths for row in measure(path)])
