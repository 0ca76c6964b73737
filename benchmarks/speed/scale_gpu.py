"""PAC on a CUDA GPU beside a plain Lloyd in torch, on the same tensors.

python -m benchmarks scale_gpu [--out FOLDER] [--small]        about two minutes on an H200

ImageNet's shape: 1,281,167 x 768, K = 1000, a mixture with overlap. Then the time of a sweep over
10^8 x 128 in half precision, generated on the device. Then five times as many rows as a tensor, as
an array in memory, and as a file four times as large as what the process may take of the GPU's
memory.
"""

import argparse
import multiprocessing
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score

from benchmarks.record import RESULTS, Cell, Results
from probagg import PAC
from probagg.pac import on_device
from probagg.pac.assignment import Update
from probagg.pac.clusters import LinearClusters
from probagg.pac.coordinates import Coordinates
from probagg.pac.sweeps import Blocks
from probagg.pac.tensors import TensorChunks


def mixture(N, D, K, seed=0, dtype=torch.float32, separation=0.9, device="cuda"):
    """Draw N rows around K centres, both with variances 1/j along axis j, as features have them.

    Two components are about 8 `separation` standard deviations apart, and K - 1 are around each.
    """
    generator = torch.Generator(device).manual_seed(seed)
    scale = torch.arange(1, D + 1, device=device) ** -0.5
    centers = torch.randn(K, D, generator=generator, device=device) * scale * separation
    y = torch.randint(K, (N,), generator=generator, device=device)
    X = torch.empty(N, D, dtype=dtype, device=device)
    for rows in torch.arange(N, device=device).split(2**20):
        noise = torch.randn(len(rows), D, generator=generator, device=device)
        X[rows] = (centers[y[rows]] + noise * scale).to(dtype)
    return X, y


def lloyd(X, K, seed=0, tol=1e-4, max_iter=300):
    """Run k-means from random rows until the centres settle, as scikit-learn's rule says."""
    generator = torch.Generator(X.device).manual_seed(seed)
    centers = X[torch.randperm(len(X), generator=generator, device=X.device)[:K]].clone()
    limit = tol * float(X[:100_000].var(0).mean())
    squares = None
    for n_iter in range(1, max_iter + 1):  # noqa: B007
        first = torch.zeros_like(centers)
        mass = torch.zeros(K, device=X.device)
        labels, squares = [], 0.0
        for part in X.split(2**17):
            d = torch.addmm((centers * centers).sum(1)[None], part, centers.T, alpha=-2.0)
            least, near = d.min(1)
            squares += least.double().sum() + (part.double() ** 2).sum()
            first.index_add_(0, near, part)
            mass.index_add_(0, near, torch.ones_like(least))
            labels.append(near)
        new = torch.where(mass[:, None] > 0, first / mass.clip(1)[:, None], centers)
        moved = float(((new - centers) ** 2).sum())
        centers = new
        if moved <= limit:
            break
    return torch.cat(labels), n_iter, float(squares)


def timed(function, *arguments, **options):
    """Return the result and the seconds it took."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    found = function(*arguments, **options)
    torch.cuda.synchronize()
    return found, time.perf_counter() - began


def inertia(X, labels, K):
    """Return k-means' objective of a partition."""
    D = X.shape[1]
    first = torch.zeros(K, D, device=X.device, dtype=torch.float64)
    mass = torch.zeros(K, device=X.device, dtype=torch.float64)
    total = 0.0
    for part, near in zip(X.split(2**17), labels.split(2**17), strict=True):
        first.index_add_(0, near, part.double())
        mass.index_add_(0, near, torch.ones(len(part), device=X.device, dtype=torch.float64))
        total += float((part.double() ** 2).sum())
    return total - float(((first**2).sum(1) / mass.clip(1)).sum())


def product_limit(D, K, rows=2**17):
    """Return the rate of the plain matrix product of the same shape, in TFLOP/s."""
    A, B = torch.randn(rows, D, device="cuda"), torch.randn(K, D, device="cuda")
    A @ B.T
    _, seconds = timed(lambda: [A @ B.T for _ in range(20)])
    return 20 * 2e-12 * rows * D * K / seconds


def sweep_seconds(X, K, size):
    """Return the seconds of one sweep in the smallest or the largest blocks."""
    size = getattr(Blocks.out_of_core("auto", len(X), K, 1.03), size)
    scale = torch.arange(1, X.shape[1] + 1, device=X.device) ** -0.5
    sums = torch.randn(K, X.shape[1] + 2, device=X.device, dtype=torch.float64) * len(X) / K
    sums[:, :-2] *= scale
    sums[:, -2:] = len(X) / K
    data = TensorChunks(X, None)
    coordinates = Coordinates.of(X[:5000].float(), "sqeuclidean")
    clusters = LinearClusters(Update(1.03), float("inf"), coordinates, sums)

    def sweep(n_rounds):
        for number in range(n_rounds):
            for _, block in data.blocks(number, size):
                for _, rows in block:
                    clusters.sums_of(rows, X)

    sweep(1)
    return timed(sweep, data.n_rounds)[1]


def beside_lloyd(name, N, D, K, separation, save, precisions=("highest",)):
    """Fit both to convergence; "highest" is single precision, "high" has TF32 products."""
    X, y = mixture(N, D, K, separation=separation)
    truth = y.cpu().numpy()
    settings = {"N": N, "D": D, "K": K, "separation": separation}
    PAC(K, max_iter=1, random_state=0).fit(X)  # kernels are compiled
    for precision in precisions:
        torch.set_float32_matmul_precision(precision)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        pac, seconds = timed(PAC(K, random_state=0).fit, X)
        peak = torch.cuda.max_memory_allocated() - before
        sweep, limit = sweep_seconds(X, K, "largest"), product_limit(D, K)
        found = {
            "seconds": seconds,
            "sweeps": pac.n_iter_,
            "ari": adjusted_rand_score(truth, pac.labels_.cpu().numpy()),
            "inertia": inertia(X, pac.labels_, K),
            "objective": pac.objective_,
            "peak_gb_above_x": peak / 1e9,
            "sweep_seconds": sweep,
            "sweep_seconds_in_small_blocks": sweep_seconds(X, K, "smallest"),
            "product_tflops": limit,
            "share_of_product_limit": 4e-12 * N * (D + 2) * K / sweep / limit,
        }
        save(Cell(name, "pac", precision).row(found | {"settings": settings}))
        (labels, iterations, _), seconds = timed(lloyd, X, K)
        found = {
            "seconds": seconds,
            "iterations": iterations,
            "ari": adjusted_rand_score(truth, labels.cpu().numpy()),
            "inertia": inertia(X, labels, K),
        }
        save(Cell(name, "lloyd", precision).row(found | {"settings": settings}))
    torch.set_float32_matmul_precision("high")
    tf32 = pac.predict(X)
    torch.set_float32_matmul_precision("highest")
    equal = float((pac.predict(X) == tf32).double().mean())  # labels of one model
    save(Cell(name, "tf32").row({"labels_equal_tf32": equal, "settings": settings}))


def from_the_host(N, D, K, save):
    """Fit a tensor, the same rows as an array, and as a file that the GPU may not keep."""
    X, y = mixture(N, D, K, separation=1.2)
    truth, settings = y.cpu().numpy(), {"N": N, "D": D, "K": K}
    pac, seconds = timed(PAC(K, random_state=0).fit, X)
    array = X.cpu().numpy()
    save(_fitted("tensor", pac, seconds, truth, settings))
    del X, y, pac
    torch.cuda.empty_cache()
    pac, seconds = timed(PAC(K, device="cuda", random_state=0).fit, array)
    save(_fitted("array", pac, seconds, truth, settings))
    torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.npy")
        np.save(path, array)
        del array
        # In a process of its own nothing else has taken memory.
        with multiprocessing.get_context("spawn").Pool(1) as process:
            pac, seconds, read = process.apply(_fit_file, (path, K, settings))
    save(_fitted("file", pac, seconds, truth, settings, read))


def _fit_file(path, K, settings):
    """Fit a file with a quarter of its size as the GPU's memory."""
    n_bytes = 4 * settings["N"] * settings["D"]
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(n_bytes / 4 / total)
    on_device.SHARE = 0.0
    rows = on_device.DeviceRows(np.load(path, mmap_mode="r"), "cuda")
    _, once = timed(lambda: sum(len(some) for _, some in rows.in_order()))
    pac, seconds = timed(PAC(K, device="cuda", random_state=0).fit, path)
    peak = torch.cuda.max_memory_reserved() / n_bytes
    return pac, seconds, {"seconds_to_copy_it_once": once, "peak_share_of_x": peak}


def _fitted(source, pac, seconds, truth, settings, more=None):
    labels = pac.labels_ if isinstance(pac.labels_, np.ndarray) else pac.labels_.cpu().numpy()
    found = {"sweeps": pac.n_iter_, "objective": pac.objective_}
    found |= {"ari": adjusted_rand_score(truth, labels), "settings": settings}
    return Cell("from the host", "pac", source).row({"seconds": seconds} | found | (more or {}))


def main() -> None:
    """Print and write all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--small", action="store_true", help="a tenth of the rows, K = 100")
    parser.add_argument("--only", choices=("tensors", "host"), help="a part of it")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = Results("scale_gpu", "small" if options.small else "full", folder=options.out)
    results.settings["device"] = torch.cuda.get_device_name()

    def save(row) -> None:
        print(row.cell, row.seconds, row.values, flush=True)
        results.put(row)

    N, K = (128_116, 100) if options.small else (1_281_167, 1000)
    if options.only != "host":
        beside_lloyd("imagenet 1.2", N, 768, K, 1.2, save, ("highest", "high"))
        X, _ = mixture(10**7 if options.small else 10**8, 128, K, dtype=torch.float16)
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            found = {"sweep_seconds": sweep_seconds(X, K, "largest")}
            found |= {"settings": {"N": len(X), "D": 128, "K": K}}
            save(Cell("half", "pac", precision).row(found))
        del X
        torch.set_float32_matmul_precision("highest")
        beside_lloyd("imagenet 0.9", N, 768, K, 0.9, save)
    if options.only != "tensors":
        from_the_host(5 * N, 768, K, save)


if __name__ == "__main__":
    main()
