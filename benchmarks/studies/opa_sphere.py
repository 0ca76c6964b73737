"""OPA against batch size and m, on unit features of ten Gaussian clusters on a sphere.

python -m benchmarks opa_sphere        two minutes on one core, no data needed

N = 10,000 rows in D = 64 dimensions: ten random unit centres, Gaussian noise of length 1.2 around
them (0.15 in each dimension), scaled back to the sphere. A linear head, Adam, 300 steps each time.
"""

import argparse

import numpy as np
import torch

from benchmarks.record import Cell, record
from benchmarks.study import percent
from probagg import OPALoss, clustering_accuracy, critical_m

N, D, K, NOISE, STEPS, SEEDS = 10_000, 64, 10, 0.15, 300, 3
BATCHES = (64, 128, 256, 512, 1024)
EXPONENTS = (1.01, 1.02, 1.03, 1.05, 1.06, 1.07, 1.08, 1.1, 1.2)


def sphere() -> tuple[torch.Tensor, np.ndarray]:
    """Unit features and their clusters."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((K, D))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    y = rng.integers(K, size=N)
    X = centers[y] + NOISE * rng.standard_normal((N, D))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return torch.tensor(X, dtype=torch.float32), y


def train(X, m: float, batch: int, seed: int) -> torch.Tensor:
    """P of a linear head after the steps."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    head = torch.nn.Linear(D, K)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    loss_of = OPALoss(m)
    for _ in range(STEPS):
        rows = torch.randint(N, (batch,), generator=generator)
        optimizer.zero_grad()
        loss_of(X[rows], head(X[rows])).backward()
        optimizer.step()
    with torch.no_grad():
        return head(X).softmax(1)


def main() -> None:
    """Both series, and where m stops working beside where it should."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    X, y = sphere()
    predicted = critical_m(X, "cosine")
    rows, alive = [], []
    for m, batch in dict.fromkeys([(1.03, b) for b in BATCHES] + [(m, 1024) for m in EXPONENTS]):
        found = []
        for seed in range(SEEDS):
            P = train(X, m, batch, seed)
            values = {"acc": clustering_accuracy(y, P.argmax(1).numpy())}
            values |= {"sharpness": float(P.amax(1).mean()), "settings": {"m": m, "batch": batch}}
            found.append(Cell("sphere", "opa", f"m {m}, batch {batch}", seed).row(values))
        acc, sharp = percent(*(r["acc"] for r in found)), np.mean([r["sharpness"] for r in found])
        print(f"m {m:.2f}  batch {batch:4}  ACC {acc}  sharpness {sharp:.2f}", flush=True)
        alive += [m] if batch == 1024 and sharp > 2 / K else []
        rows += found
    print(f"critical m: predicted {predicted:.3f}, largest m that left uniform {max(alive)}")
    prediction = {"critical_m": predicted, "largest_m": max(alive)}
    rows.append(Cell("sphere", "prediction", seed=None).row(prediction))
    settings = {"N": N, "D": D, "K": K, "noise": NOISE, "steps": STEPS, "seeds": SEEDS}
    record("opa_sphere", rows, settings=settings)
