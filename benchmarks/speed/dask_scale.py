"""PAC on Dask: objective and sweeps beside the fit in memory, bytes exchanged, a killed worker.

python benchmarks/speed/dask_scale.py        needs PROBAGG_DATA; about eight minutes on two cores
"""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import probagg.pac.solver as solver
from probagg import PAC
from probagg.data.benchmarks import load
from probagg.pac.dask_rows import DaskChunks
from probagg.pac.frame import Frame
from probagg.pac.parts import Tally
from probagg.pac.sweeps import Update

sys.path.insert(0, str(Path(__file__).parents[1]))
from record import record

SETS = ("digits", "pendigits", "isolet", "mnist-test")
SEEDS = range(3)  # in memory; Dask fits use the first
CHUNKS = {"all rows": (2, 6, 30, 200), "a tenth": (2, 30)}  # by the rows of the start's sample
BUDGET = float(os.environ.get("DASK_SCALE_SECONDS", 420))  # later cells are left out, and named
BEGAN = time.perf_counter()
WHOLE = solver.sample_size


class CountedChunks(DaskChunks):
    """Dask chunks that count the blocks."""

    blocks_summed = 0

    def sums(self, *arguments):
        """Return the sums of one block, and count it."""
        CountedChunks.blocks_summed += 1
        return super().sums(*arguments)


def cluster(n_workers: int) -> LocalCluster:
    """Return a cluster of processes with one thread each."""
    return LocalCluster(n_workers, threads_per_worker=1, dashboard_address=None)


def fitted(X, K: int, seed: int, **options) -> tuple[PAC, float]:
    """Return a fit and its seconds."""
    began = time.perf_counter()
    return PAC(K, random_state=seed, **options).fit(X), time.perf_counter() - began


def on_dask(X, K: int, n_chunks: int, seed: int, memory: list[PAC]) -> dict:
    """Fit chunks of X on the current cluster, beside the fits in memory."""
    chunked = da.from_array(X, chunks=(-(-len(X) // n_chunks), -1)).persist()
    CountedChunks.blocks_summed = 0
    pac, seconds = fitted(chunked, K, seed)
    rounds = CountedChunks.blocks_summed // pac.n_iter_
    sums = K * (X.shape[1] + 2) * 8
    return {
        "chunks": chunked.numblocks[0],
        "seed": seed,
        "objective_to_same_seed": pac.objective_ / memory[seed].objective_,
        "objective_to_median": pac.objective_ / float(np.median([p.objective_ for p in memory])),
        "sweeps": pac.n_iter_,
        "sweeps_in_memory": memory[seed].n_iter_,
        "blocks_per_sweep": rounds,
        "bytes_per_sweep": 2 * rounds * chunked.numblocks[0] * sums,
        "smallest_cluster": int(np.bincount(pac.labels_.compute(), minlength=K).min()),
        "seconds": seconds,
    }


def in_memory(name: str, order: str) -> dict:
    """Fit one data set in memory."""
    matrix = load(name)
    K = len(np.unique(matrix.y))
    shuffled = np.random.default_rng(0).permutation(len(matrix.X))
    X = matrix.X[shuffled if order == "shuffled" else np.argsort(matrix.y, kind="stable")]
    runs = [fitted(X, K, seed) for seed in SEEDS]
    seconds = float(np.median([seconds for _, seconds in runs]))
    return {"name": name, "order": order, "X": X, "K": K, "runs": runs, "seconds": seconds}


def study(sets: list[dict], sample: str) -> list[dict]:
    """Fit the data sets in chunks, starting from a sample of all rows or of a tenth."""
    cells = []
    for data in sets:
        X, K = data["X"], data["K"]
        rows = len(X) if sample == "all rows" else max(len(X) // 10, 60 * K)
        solver.sample_size = lambda K, rows=rows: rows
        for n_chunks in CHUNKS[sample]:
            cell = {"data": data["name"], "order": data["order"], "sample": sample, "rows": len(X)}
            if time.perf_counter() - BEGAN > BUDGET:
                cells.append(cell | {"asked_chunks": n_chunks, "left_out": "out of time"})
                continue
            cell |= on_dask(X, K, n_chunks, 0, [pac for pac, _ in data["runs"]])
            cells.append(cell | {"seconds_in_memory": data["seconds"]})
            print(cells[-1], flush=True)
    solver.sample_size = WHOLE
    return cells


def blobs(N: int, n_workers: int, beside_memory: bool) -> dict:
    """Fit blobs that the workers draw, N x 32 in float32 around 20 centres."""
    size = 100_000
    centers = np.random.default_rng(1).uniform(-10, 10, (20, 32)).astype(np.float32)

    def draw(block, centers=centers, block_info=None):
        start = block_info[0]["array-location"][0][0]
        rng = np.random.default_rng(start)
        X = centers[rng.integers(len(centers), size=len(block))]
        return X + 4 * rng.standard_normal(X.shape, np.float32)

    empty = da.zeros((N, 32), chunks=(size, -1), dtype=np.float32)
    X = empty.map_blocks(draw, dtype=np.float32, meta=np.empty((0, 0), np.float32)).persist()
    X.sum().compute()  # drawn
    CountedChunks.blocks_summed = 0
    pac, seconds = fitted(X, 20, 0)
    rounds = CountedChunks.blocks_summed // pac.n_iter_
    result = {"rows": N, "workers": n_workers, "seconds": seconds, "sweeps": pac.n_iter_}
    result |= {
        "blocks_per_sweep": rounds,
        "bytes_per_sweep": 2 * rounds * X.numblocks[0] * 20 * 34 * 8,
    }
    if beside_memory:
        whole, result["seconds_in_memory"] = fitted(X.compute(), 20, 0)
        result["objective_to_memory"] = pac.objective_ / whole.objective_
        result["sweeps_in_memory"] = whole.n_iter_
    print("blobs", result)
    return result


def killed(n_workers: int = 2) -> dict:
    """Compare the labels of a fit with those of one in which a worker is killed in a sweep."""
    X = da.from_array(load("pendigits").X, chunks=(1000, -1))
    solver.sample_size = lambda K: 60 * K
    with cluster(n_workers) as workers, Client(workers) as client:
        expected = PAC(10, random_state=0, max_iter=4).fit(X).labels_.compute()
        before = client.run(os.getpid)

        class Kill(logging.Handler):
            def emit(self, record):
                if "parts, sweep 2" in record.getMessage():
                    pid = next(iter(before.values()))
                    threading.Timer(0.05, os.kill, (pid, signal.SIGKILL)).start()

        handler = Kill()
        logging.getLogger("probagg").addHandler(handler)
        pac, seconds = fitted(X, 10, 0, verbose=2, max_iter=4)
        logging.getLogger("probagg").removeHandler(handler)
        labels = pac.labels_.compute()
        replaced = sorted(client.run(os.getpid).values()) != sorted(before.values())
    solver.sample_size = WHOLE
    same = bool((labels == expected).all())
    return {"workers": n_workers, "worker_died": replaced, "same_labels": same, "seconds": seconds}


def workers_do_not_matter(counts=(2, 4)) -> dict:
    """Fit Pendigits with several numbers of workers, and compare the sums to the bit."""
    solver.sample_size = lambda K: 60 * K
    results = {}
    for n_workers in counts:
        with cluster(n_workers) as workers, Client(workers):
            X = da.from_array(load("pendigits").X, chunks=(1000, -1)).persist()
            pac, seconds = fitted(X, 10, 0, max_iter=4)
            results[n_workers] = pac.moments_.first.tobytes(), pac.objective_, seconds
    solver.sample_size = WHOLE
    same = len({values[:2] for values in results.values()}) == 1
    return {"same_to_the_bit": same, "seconds": {n: r[2] for n, r in results.items()}}


def projection(N=10**9, D=768, K=1000, n_workers=64, chunk=10**6) -> dict:
    """Measure the kernel on one core, and compute what a sweep of a cluster would take."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8192, D), np.float32)
    P = rng.dirichlet(np.ones(K), len(X)).astype(np.float32)
    frame = Frame.of(X, "sqeuclidean")
    tally = Tally(frame, (P.T @ frame(X)).astype(float), Update(1.03))
    tally(X[:1024])
    began = time.perf_counter()
    tally(X)
    rate = len(X) / (time.perf_counter() - began)
    sums = K * (D + 2) * 8
    exchanged = 2 * K * (N // chunk) * sums / 1e9  # K blocks once assignments settle, 4 K before
    return {
        "measured_rows_per_second_and_core": rate,
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "computed_for": {"rows": N, "features": D, "clusters": K, "workers": n_workers},
        "assumed": {"cores_per_worker": 1, "rows_per_chunk": chunk, "blocks_per_sweep": K},
        "seconds_per_sweep_on_one_core_each": N / n_workers / rate,
        "gigabytes_exchanged_per_sweep": exchanged,
        "gigabytes_per_worker_and_sweep": exchanged / n_workers,
        "gigabytes_per_worker_and_sweep_summed_on_workers_first": 2 * K * sums / 1e9,
        "terabytes_of_rows_in_float32": N * D * 4 / 1e12,
    }


def main() -> None:
    """Run everything, and write results/dask.json after each part."""
    import probagg.pac.sources as sources

    sources.DaskChunks = CountedChunks
    results = {"seeds_in_memory": len(SEEDS), "projection": projection(), "sets": [], "blobs": []}
    results["kill"] = killed()
    results["workers"] = workers_do_not_matter()
    keep(results)
    with cluster(2) as workers, Client(workers):
        for name in SETS:
            sets = [in_memory(name, order) for order in ("shuffled", "sorted")]
            results["sets"] += study(sets, "all rows") + study(sets, "a tenth")
            keep(results)
    for n_workers in (2, 4):
        with cluster(n_workers) as workers, Client(workers):
            results["blobs"].append(blobs(10**6, n_workers, beside_memory=n_workers == 2))
            keep(results)
    if time.perf_counter() - BEGAN < BUDGET:
        with cluster(2) as workers, Client(workers):
            results["blobs"].append(blobs(10**7, 2, beside_memory=False))
            keep(results)


def keep(results: dict) -> None:
    """Write what there is so far."""
    record("dask", results | {"seconds": time.perf_counter() - BEGAN})


if __name__ == "__main__":
    main()
