"""Time, memory and objective over three decades of N, D and K, beside k-means.

python -m benchmarks scale [--size full|small] [--only N|D|K]    20 minutes

Each cell is a process of one thread, which reads the same blobs from a file; its seconds are the
processor time of `fit`, its memory the largest anonymous (not file-backed) above that before. "pac
file" fits the memory map in a process that may not allocate more than a quarter of X and 256 MiB.
Cells that are recorded already are not run again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.record import Cell, Results

METHODS = ("pac", "pac file", "k-means", "mini-batch k-means", "faiss k-means")
CENTER = {"N": 10**5, "D": 32, "K": 20}
DECADES = {
    "N": (10**4, 10**5, 10**6, 10**7),
    "D": (8, 80, 800),
    "K": (10, 100, 1000),
}
SMALL = {"N": (10**4, 10**5, 10**6), "D": (8, 80), "K": (10, 100)}


def write_blobs(path: Path, N: int, D: int, K: int) -> None:
    """Write overlapping blobs in pieces, as float32."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-10, 10, (K, D)).astype(np.float32)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (N, D))
    for start in range(0, N, 10**5):
        stop = min(N, start + 10**5)
        noise = rng.standard_normal((stop - start, D), np.float32)
        X[start:stop] = centers[rng.integers(K, size=stop - start)] + 4 * noise
    X.flush()


def anonymous_memory() -> int:
    """Return the resident memory of this process that no file backs, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def fit(method: str, path: str, K: int, rows: int | None = None):
    """Return a function that fits the rows of a file, or its first ones."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    from probagg import PAC

    X = np.load(path, mmap_mode="r")[:rows]
    if method == "pac file":
        return lambda: PAC(K, random_state=0).fit(X)
    X = np.array(X)
    if method == "pac":
        return lambda: PAC(K, random_state=0).fit(X)
    if method == "faiss k-means":
        import faiss

        points = max(1, -(-len(X) // K))
        model = faiss.Kmeans(X.shape[1], K, niter=25, seed=0, max_points_per_centroid=points)
        return lambda: model.train(X)
    kind = KMeans if method == "k-means" else MiniBatchKMeans
    return lambda: kind(K, n_init=1, random_state=0).fit(X)


def run_cell(method: str, path: str, K: int) -> None:
    """Fit once, and print seconds, memory and the number of passes as JSON."""
    warnings.simplefilter("ignore")
    import resource

    size = Path(path).stat().st_size
    fit(method, path, K, 10 * K)()  # libraries are loaded
    work = fit(method, path, K)
    before, peak, done = anonymous_memory(), [0], threading.Event()
    if method == "pac file":
        data = next(
            1024 * int(line.split()[1])
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmData")
        )
        limit = data + size // 4 + 2**28
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous_memory())

    threading.Thread(target=watch, daemon=True).start()
    began = time.process_time()  # as good as the clock's on a busy machine
    model = work()
    seconds = time.process_time() - began
    done.set()
    found = {
        "seconds": seconds,
        "memory_mb": (max(peak[0], before) - before) / 1e6,
        "passes": getattr(model, "n_iter_", 25),
    }
    if model is not None and hasattr(model, "labels_"):
        found["mean_square"] = mean_square(np.load(path, mmap_mode="r"), model.labels_, K)
    print(json.dumps(found))


def mean_square(X, labels, K: int) -> float:
    """Return k-means' objective of a partition, per row."""
    first, mass, total = np.zeros((K, X.shape[1])), np.zeros(K), 0.0
    for start in range(0, len(X), 10**5):
        part, near = X[start : start + 10**5].astype(np.float64), labels[start : start + 10**5]
        first += indicator(near, K) @ part
        mass += np.bincount(near, minlength=K)
        total += (part**2).sum()
    return float((total - ((first**2).sum(1) / np.maximum(mass, 1)).sum()) / len(X))


def indicator(labels, K: int):
    """Return the sparse (K, rows) matrix of a partition."""
    from scipy.sparse import csr_array

    n = len(labels)
    return csr_array((np.ones(n), (labels, np.arange(n))), shape=(K, n))


def main() -> None:
    """Run the cells that are missing, and record all."""
    if sys.argv[1:2] == ["cell"]:
        run_cell(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--only", choices=tuple(DECADES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds per cell")
    options = parser.parse_args()
    results = Results.open("scale")
    known = {row.cell for row in results.rows}
    for axis, values in (DECADES if options.size == "full" else SMALL).items():
        if options.only not in (None, axis):
            continue
        for value in values:
            shape = CENTER | {axis: value}
            cells = [Cell("blobs", method, f"{axis} {value}") for method in options.methods]
            missing = [cell for cell in cells if cell not in known]
            if not missing:
                continue
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "rows.npy"
                write_blobs(path, shape["N"], shape["D"], shape["K"])
                for cell in missing:
                    command = [sys.executable, "-m", "benchmarks", "scale", "cell", cell.method]
                    command += [str(path), str(shape["K"])]
                    try:
                        run = subprocess.run(
                            command,
                            capture_output=True,
                            text=True,
                            timeout=options.timeout,
                            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                        )
                        lines = run.stdout.splitlines()
                        found = json.loads(lines[-1]) if run.returncode == 0 else None
                        error = run.stderr.strip().splitlines()[-1:] if found is None else []
                    except subprocess.TimeoutExpired:
                        found, error = None, [f"more than {options.timeout:g} s"]
                    results.put(cell.row((found or {"error": error}) | {"settings": shape}))
                    print(cell, found or error, flush=True)
