"""Confidence against the share of right rows: PAC's memberships, as they are and calibrated.

python -m benchmarks pac_probabilities [NAME ...]     needs PROBAGG_DATA; 2 CPU minutes

At most 3,000 rows of each set of pac_select (COIL-100: its first 20 objects), K as classes, two
seeds. A row is right where its cluster is matched to its class. The expected calibration error
(ECE) has 15 bins of equal width. "calibrated" is `probagg.calibrate`. "halves" takes its power from
how often clusters of the other half of the rows agree, over four fits. Labels report only.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.record import Cell, Results, Row
from benchmarks.studies.pac_select import DRAWN, WHOLE, load
from probagg import PAC, calibrate
from probagg.neighbours.smoothing import find_power, to_power

MOST_ROWS, BINS, N_SEEDS = 3_000, 15, 2
# Two classes that are not groups, and three of 16 rows each.
LEFT_OUT = ("cells", "soils")


def matched(labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return for each row whether its label is matched to its other one."""
    counts = np.zeros((labels.max() + 1, others.max() + 1))
    np.add.at(counts, (labels, others), 1)
    first, second = linear_sum_assignment(-counts)
    match = np.full(len(counts), -1)
    match[first] = second
    return match[labels] == others


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the mean difference of confidence and share of right rows, over bins."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    rows = [bins == b for b in np.unique(bins)]
    return float(sum(r.mean() * abs(confidence[r].mean() - right[r].mean()) for r in rows))


def halves(X: np.ndarray, P: np.ndarray, seed: int) -> np.ndarray:
    """Return P as confident as clusters of the other half agree."""
    K, labels = P.shape[1], P.argmax(1)
    rng, agreements = np.random.default_rng(seed), []
    for _ in range(2):
        order = np.array_split(rng.permutation(len(X)), 2)
        for half, other in (order, order[::-1]):
            found = PAC(K, m="auto", random_state=seed).fit(X[half]).predict(X[other])
            agreements.append(matched(labels[other], found).mean())
    return to_power(P, find_power(P, min(np.mean(agreements), 0.9999)))


def run(name: str, seed: int) -> list[Row]:
    """Return what a fit gives as it is, and calibrated in two ways."""
    X, y = load(name)
    if name == "coil100":
        X, y = X[y < 20], y[y < 20]
    some = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    X, y = X[some], np.unique(y[some], return_inverse=True)[1]
    pac = PAC(len(np.unique(y)), m="auto", random_state=seed).fit(X)
    P = np.maximum(np.asarray(pac.probabilities_, np.float64), 1e-30)
    right = matched(P.argmax(1), y)
    rows = []
    for method, Q in {
        "as it is": P,
        "calibrated": calibrate(P, X),
        "halves": halves(X, P, seed),
    }.items():
        confidence = Q.max(1)
        values = {
            "acc": right.mean(),
            "confidence": confidence.mean(),
            "above_99": (confidence > 0.99).mean(),
            "right_above_99": right[confidence > 0.99].mean() if confidence.max() > 0.99 else None,
            "ece": calibration_error(confidence, right),
        }
        values = {key: None if v is None else round(float(v), 4) for key, v in values.items()}
        settings = {"rows": len(X), "clusters": P.shape[1], "m": pac.m_}
        rows.append(Cell(name, method, seed=seed).row(values | {"settings": settings}))
    return rows


def main() -> None:
    """Run the sets that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    every = [name for name in (*DRAWN, *WHOLE) if name not in LEFT_OUT]
    parser.add_argument("names", nargs="*", default=every, metavar="NAME")
    warnings.simplefilter("ignore")
    for name in parser.parse_args().names:
        for seed in range(N_SEEDS):
            rows = run(name, seed)
            Results.open("pac_probabilities").put(*rows)
            print(name, seed, {row.method: row["ece"] for row in rows}, flush=True)
