"""What OPALoss costs: forward and backward beside cross-entropy plus one B x B x D product.

python -m benchmarks opa_cost [cpu|cuda]        seconds; by default on CUDA where there is one
"""

import argparse
import time

import numpy as np
import torch

from benchmarks.record import Cell, record
from probagg import OPALoss

B, D, K = 1024, 512, 100


def milliseconds(step, device, repeats=50) -> float:
    """The median of some runs, each waited for."""
    times = []
    for i in range(repeats + 10):
        began = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        if i >= 10:
            times.append(time.perf_counter() - began)
    return 1e3 * float(np.median(times))


def peak_mebibytes(step, device) -> float | None:
    """Memory at the peak above what was there before; only CUDA tells."""
    if device != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def main() -> None:
    """Time, memory and their ratio, eager and compiled."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("device", nargs="?", choices=("cpu", "cuda"), default=here)
    device = parser.parse_args().device
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(B, D, generator=generator).to(device)
    logits = torch.randn(B, K, generator=generator).to(device).requires_grad_()
    labels = torch.randint(K, (B,), generator=generator).to(device)
    settings = {"B": B, "D": D, "K": K, "device": device, "torch": torch.__version__}
    if device == "cuda":
        settings["gpu"] = torch.cuda.get_device_name()
    rows = []

    def cross_entropy_and_product():
        logits.grad = None
        torch.nn.functional.cross_entropy(logits, labels).backward()
        return features @ features.T

    for name in ("eager", "compiled"):
        loss_of = OPALoss()
        loss_of = torch.compile(loss_of) if name == "compiled" else loss_of

        def opa(loss_of=loss_of):
            logits.grad = None
            loss_of(features, logits).backward()

        ours, theirs = milliseconds(opa, device), milliseconds(cross_entropy_and_product, device)
        found = {
            "opa_ms": ours,
            "cross_entropy_and_product_ms": theirs,
            "ratio": ours / theirs,
            "opa_peak_mib": peak_mebibytes(opa, device),
            "cross_entropy_and_product_peak_mib": peak_mebibytes(cross_entropy_and_product, device),
        }
        print(name, {key: round(value, 3) for key, value in found.items() if value})
        rows.append(Cell("random", "OPALoss", name, None).row(found))
    record("opa_cost", rows, device, settings)
