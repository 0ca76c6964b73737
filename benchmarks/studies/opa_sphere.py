"""OPA against batch size and m, on unit features of ten Gaussian clusters on a sphere.

python -m benchmarks opa_sphere        two minutes on one core, no data needed

N = 10,000 rows in D = 64 dimensions: ten random unit centres, Gaussian noise of length 1.2 around
them (0.15 in each dimension), scaled back to the sphere. A linear head, Adam, 300 steps each time.
"""

import argparse

import numpy as np
import torch

from benchmarks.record import record
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
    rows = []
    settings = [(1.03, batch) for batch in BATCHES] + [(m, 1024) for m in EXPONENTS]
    for m, batch in settings:
        probs = [train(X, m, batch, seed) for seed in range(SEEDS)]
        acc = [clustering_accuracy(y, P.argmax(1).numpy()) for P in probs]
        sharpness = [float(P.amax(1).mean()) for P in probs]
        rows.append({"m": m, "batch": batch, "acc": acc, "sharpness": sharpness})
        print(
            f"m {m:.2f}  batch {batch:4}  ACC {100 * np.mean(acc):.1f} ± {100 * np.std(acc):.1f}  "
            f"sharpness {np.mean(sharpness):.2f}",
            flush=True,
        )
    alive = [r["m"] for r in rows if r["batch"] == 1024 and np.mean(r["sharpness"]) > 2 / K]
    print(f"critical m: predicted {predicted:.3f}, largest m that left uniform {max(alive)}")
    settings = {"N": N, "D": D, "K": K, "noise": NOISE, "steps": STEPS, "seeds": SEEDS}
    record(
        "opa_sphere", {**settings, "critical_m": predicted, "largest_m": max(alive), "rows": rows}
    )
