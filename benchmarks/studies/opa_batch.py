"""OPA with balance 1 and 0.5 and PAC's objective, by batch size, on frozen features.

python -m benchmarks opa_batch        four minutes on one core

The SimCLR features of CIFAR-10, centred, unit length. A linear head from random weights, Adam at
0.08 / sqrt(D) that decays to zero, 2,000 steps. `stability` is what `diagnose` reads from a batch
of that size at the end: labels are only for the report.
"""

import argparse
import itertools

import numpy as np
import torch

from benchmarks.data import open_lab_rows
from benchmarks.record import Cell, record
from benchmarks.study import percent
from probagg import OPALoss, PACLoss, clustering_accuracy, diagnose

LOSSES = {"OPA": OPALoss(), "OPA, balance 0.5": OPALoss(balance=0.5), "J_pac": PACLoss()}
BATCHES, STEPS, SEEDS, K = (64, 256, 1024), 2000, 3, 10


def train(X: torch.Tensor, loss_of: torch.nn.Module, batch: int, seed: int) -> torch.nn.Linear:
    """Return a linear head after the steps."""
    torch.manual_seed(seed)
    head = torch.nn.Linear(X.shape[1], K)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.08 / X.shape[1] ** 0.5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        rows = X[torch.randint(len(X), (batch,))]
        optimizer.zero_grad()
        loss_of(rows, head(rows)).backward()
        optimizer.step()
        schedule.step()
    return head


def main() -> None:
    """Print and record ACC of all rows and what the batches themselves say."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    features, y, _ = open_lab_rows("cifar10-simclr")
    X = torch.nn.functional.normalize(torch.as_tensor(features - features.mean(0)))
    X *= X.shape[1] ** 0.5  # a mean square of 1; the cosine does not see it
    recorded = []
    for (name, loss_of), batch in itertools.product(LOSSES.items(), BATCHES):
        found = []
        for seed in range(SEEDS):
            head = train(X, loss_of, batch, seed)
            with torch.no_grad():
                P = head(X).softmax(1)
            part = diagnose(X[:batch], P[:batch], balance=loss_of.balance, warn=False)
            values = {"acc": clustering_accuracy(y, P.argmax(1).numpy())}
            values |= {"sharpness": float(P.amax(1).mean()), "stability": part.stability}
            values |= {"settings": {"batch": batch, "state": part.state}}
            found.append(Cell("cifar10-simclr", name, f"batch {batch}", seed).row(values))
        acc, stable = percent(*(r["acc"] for r in found)), np.mean([r["stability"] for r in found])
        print(f"{name:18} batch {batch:4}  ACC {acc}  stability {stable:.2f}", flush=True)
        recorded += found
    record("opa_batch", recorded, settings={"steps": STEPS, "seeds": SEEDS, "K": K})
