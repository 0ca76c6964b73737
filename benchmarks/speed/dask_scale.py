"""PAC on Dask: objective and passes beside the fit in memory, bytes exchanged, a killed worker.

python -m benchmarks dask_scale [checks] [blobs] [sets] [forced] [clusters]

Needs PROBAGG_DATA; an hour on two cores. Parts that are not named keep their earlier results.
"""

import argparse
import logging
import os
import signal
import threading
import time
from contextlib import contextmanager
from functools import partial
from itertools import product

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import probagg.pac.dask as dask_rows
import probagg.pac.inputs as sources
import probagg.pac.solver as solver
from benchmarks.data import lab_matrix
from benchmarks.record import Cell, Results, Row
from probagg import PAC
from probagg.pac.assignment import Update
from probagg.pac.clusters import LinearClusters
from probagg.pac.coordinates import Coordinates
from probagg.pac.dask import DaskChunks
from probagg.storage import fingerprint

SETS = ("digits", "pendigits", "isolet", "mnist-test")
ORDERS = ("shuffled", "sorted")
CHUNKS = (2, 6, 30, 200)
SEEDS = range(3)
SHORT = ("digits", "pendigits")  # few passes
LONG = 8  # seconds of CPU time, from which one seed is enough
BLOBS, PIECE = (10**7, 32, 20), 50_000  # rows, columns, clusters; rows that are drawn at once


class CountedChunks(DaskChunks):
    """Dask chunks that count blocks, their tasks and the bytes that workers send."""

    def sample(self, indices):
        """Return the sample, and start counting."""
        found = super().sample(indices)
        CountedChunks.n_blocks = CountedChunks.n_tasks = 0
        CountedChunks.sent_before = sent()
        return found

    def blocks(self, number, size):
        """Yield the blocks, and count them."""
        for share, block in super().blocks(number, size):
            CountedChunks.n_blocks += 1
            CountedChunks.n_tasks += len(block)
            yield share, block


def sent() -> int:
    """Return the bytes that all workers have sent."""
    try:
        client = Client.current()
    except ValueError:
        return 0
    found = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
    return sum(found.values())


@contextmanager
def cluster(n_workers: int):
    """Start a cluster of processes with one thread each."""
    with (
        LocalCluster(n_workers, threads_per_worker=1, dashboard_address=":0") as workers,
        Client(workers) as client,
    ):
        yield client


@contextmanager
def as_if_large(n_rows: int, own_tasks: bool = True):
    """Treat rows as many are: a start from a tenth of them, and tasks of every chunk."""
    before = solver.sample_size, dask_rows.SMALL, dask_rows.JOINED
    solver.sample_size = lambda K: max(n_rows // 10, 60 * K)
    if own_tasks:
        dask_rows.SMALL = dask_rows.JOINED = 0
    yield
    solver.sample_size, dask_rows.SMALL, dask_rows.JOINED = before


def fitted(X, K: int, seed: int, **options) -> dict:
    """Fit, and return what is compared."""
    CountedChunks.n_blocks = CountedChunks.n_tasks = CountedChunks.sent_before = 0
    began, worked = time.perf_counter(), time.process_time()
    pac = PAC(K, random_state=seed, **options).fit(X)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    n = pac.n_iter_
    return {
        "objective": pac.objective_,
        "passes": n,
        "bits": fingerprint([str(pac.objective_history_), pac.moments_.first.tobytes()]),
        "seconds": seconds,
        "client_cpu_seconds": worked,
        "blocks_per_pass": CountedChunks.n_blocks / n,
        "tasks_per_pass": CountedChunks.n_tasks / n,
        "bytes_between_workers_per_pass": (sent() - CountedChunks.sent_before) / n,
    }


def compare(cell: Cell, settings: dict, runs: list[dict], memory: list[dict]) -> Row:
    """Return a row with objective and passes relative to fits in memory, medians over seeds."""
    found = runs[0] | {"memory_seconds": memory[0]["seconds"]}
    for name in ("objective", "passes"):
        here, there = ([run[name] for run in some] for some in (runs, memory))
        found |= {name: float(np.median(here) / np.median(there)), f"all_{name}": [here, there]}
    found["within"] = found["objective"] <= 1.005 and found["passes"] <= 1.5
    print(cell, "J {objective:.4f}, passes {passes:.2f}, {seconds:.1f} s".format(**found))
    if not found["within"]:
        print("MISSED:", found["all_objective"], found["all_passes"], flush=True)
    return cell.row(found | {"settings": settings | {"seeds": len(runs)}})


def cell_of(data: str, part: str, **settings: str | int) -> Cell:
    """Return the cell of a part of the study."""
    setting = "{order}, {chunks} chunks, {workers} workers".format(**settings)
    return Cell(data, part, setting, None)


def ordered(name: str, order: str):
    """Return a data set in random order or sorted by class, and its number of classes."""
    matrix = lab_matrix(name)
    places = np.random.default_rng(0).permutation(len(matrix.X))
    X = matrix.X[places if order == "shuffled" else np.argsort(matrix.y, kind="stable")]
    return X, len(np.unique(matrix.y))


def chunked(X, n_chunks: int):
    """Return rows as a Dask array in the workers' memory."""
    return da.from_array(X, chunks=(-(-len(X) // n_chunks), -1)).persist()


def study_sets() -> list[Row]:
    """Fit the data sets as a user does: they are small enough for the fit in memory."""
    cells, memory = [], {}
    for n_workers in (2, 4):
        with cluster(n_workers):
            for name, order, n_chunks in product(SETS, ORDERS, CHUNKS):
                X, K = ordered(name, order)
                if (name, order) not in memory:
                    memory[name, order] = [fitted(X, K, seed) for seed in SEEDS]
                Z = chunked(X, n_chunks)
                runs = [fitted(Z, K, seed) for seed in SEEDS[: 3 if n_workers == 2 else 1]]
                settings = {"order": order, "chunks": n_chunks, "workers": n_workers}
                cell = cell_of(name, "sets", **settings)
                cells.append(compare(cell, settings, runs, memory[name, order][: len(runs)]))
    return cells


def study_forced() -> list[Row]:
    """Fit the data sets as if they were large, by Dask's synchronous scheduler.

    Chunks of Isolet and MNIST-10k are joined as usual, which makes one task of a sweep.
    """
    cells = []
    for name, order in product(SETS, ORDERS):
        X, K = ordered(name, order)
        memory = [fitted(X, K, seed) for seed in SEEDS]
        for n_chunks in CHUNKS:
            Z = da.from_array(X, chunks=(-(-len(X) // n_chunks), -1))
            large = as_if_large(len(X), own_tasks=name in SHORT)
            with large, dask.config.set(scheduler="synchronous"):
                runs = [fitted(Z, K, 0)]
                if runs[0]["client_cpu_seconds"] < LONG:
                    runs += [fitted(Z, K, seed) for seed in SEEDS[1:]]
            settings = {"order": order, "chunks": n_chunks, "workers": 0}
            cells.append(compare(cell_of(name, "forced", **settings), settings, runs, memory))
        Results.open("dask_scale").put(*cells)
    return cells


def study_clusters() -> list[Row]:
    """Fit some of these by clusters, whose result must be that of the synchronous scheduler."""
    cells, local = [], {}
    for n_workers in (0, 2, 4):
        with cluster(n_workers) if n_workers else dask.config.set(scheduler="synchronous"):
            for name, order, n_chunks in product(SHORT, ORDERS, CHUNKS[2:]):
                X, K = ordered(name, order)
                with as_if_large(len(X)):
                    run = fitted(chunked(X, n_chunks), K, 0)
                settings = {"order": order, "chunks": n_chunks, "workers": n_workers}
                bits = local.setdefault((name, order, n_chunks), run["bits"])
                found = run | {"same_bits": run["bits"] == bits, "settings": settings}
                cells.append(cell_of(name, "clusters", **settings).row(found))
                print(cells[-1].cell, found, flush=True)
    return cells


def draw(start: int, stop: int, order: str) -> np.ndarray:
    """Return rows of 20 overlapping blobs; start and stop are multiples of PIECE."""
    N, D, K = BLOBS
    centers = np.random.default_rng(1).uniform(-10, 10, (K, D)).astype(np.float32)
    pieces = []
    for first in range(start, stop, PIECE):
        rng = np.random.default_rng(first)
        is_sorted = order == "sorted"
        y = np.arange(first, first + PIECE) * K // N if is_sorted else rng.integers(K, size=PIECE)
        pieces.append(centers[y] + 8 * rng.standard_normal((PIECE, D), np.float32))
    return np.concatenate(pieces)


def draw_chunk(block, order: str, block_info=None) -> np.ndarray:
    """Return the rows of one chunk."""
    start, stop = block_info[0]["array-location"][0]
    return draw(start, stop, order)


def study_blobs() -> list[Row]:
    """Fit ten million rows that the workers draw, beside the same rows in memory.

    Two chunks are no work for four workers.
    """
    N, D, K = BLOBS
    cells, memory, first = [], {}, {}
    for order in ORDERS:
        memory[order] = [fitted(draw(0, N, order), K, 0)]
        print(f"in memory, {order}: {memory[order][0]['seconds']:.1f} s", flush=True)
    for n_workers in (2, 4):
        with cluster(n_workers):
            for order, n_chunks in product(ORDERS, CHUNKS if n_workers == 2 else CHUNKS[2:]):
                pieces = np.array_split(np.arange(N // PIECE), n_chunks)
                sizes = tuple(len(some) * PIECE for some in pieces)
                X = da.zeros((N, D), chunks=(sizes, -1), dtype=np.float32).map_blocks(
                    partial(draw_chunk, order=order), dtype=np.float32, meta=np.empty((0, 0), "f4")
                )
                X = X.persist()
                wait(X)
                run = fitted(X, K, 0)
                same = run["bits"] == first.setdefault((order, n_chunks), run["bits"])
                settings = {"order": order, "chunks": n_chunks, "workers": n_workers}
                cell, run = cell_of("blobs", "blobs", **settings), run | {"same_bits": same}
                cells.append(compare(cell, settings, [run], memory[order]))
                del X
    return cells


def check_kill() -> dict:
    """Compare a fit with one in which a worker is killed in the middle of a sweep."""
    X, K = ordered("pendigits", "sorted")
    with cluster(2) as client, as_if_large(len(X)):
        Z = chunked(X, 30)
        expected = fitted(Z, K, 0)
        before = client.run(os.getpid)

        class Kill(logging.Handler):
            def emit(self, record):
                if "parts, sweep 2" in record.getMessage():
                    pid = next(iter(before.values()))
                    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()

        handler = Kill()
        logging.getLogger("probagg").addHandler(handler)
        run = fitted(Z, K, 0, verbose=2)
        logging.getLogger("probagg").removeHandler(handler)
        after = client.run(os.getpid)
    return {
        "worker_died": sorted(after.values()) != sorted(before.values()),
        "same_bits": run["bits"] == expected["bits"],  # of the sums, and so the same labels
        "seconds": run["seconds"],
        "seconds_without": expected["seconds"],
    }


def check_optima(n_seeds: int = 20) -> dict:
    """Return the objectives of Pendigits over many seeds: the start decides between two optima."""
    X, K = ordered("pendigits", "shuffled")
    memory = [fitted(X, K, seed)["objective"] for seed in range(n_seeds)]
    solver.sample_size, before = lambda K: len(X) // 10, solver.sample_size
    with dask.config.set(scheduler="synchronous"):
        Z = da.from_array(X, chunks=(1000, -1))
        parts = [fitted(Z, K, seed)["objective"] for seed in range(n_seeds)]
    solver.sample_size = before
    return {"memory": memory, "parts": parts}


def kernel_seconds(D: int, K: int, n_rows: int) -> float:
    """Return the seconds per row of one thread that assigns rows and sums them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, D), np.float32)
    P = rng.dirichlet(np.ones(K), n_rows).astype(np.float32)
    coordinates = Coordinates.of(X, "sqeuclidean")
    sums = (P.T @ coordinates.lift(X)).astype(float)
    clusters = LinearClusters(Update(1.03), np.inf, coordinates, sums)
    clusters.sums_of(slice(None), X)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        clusters.sums_of(slice(None), X)
        times.append(time.perf_counter() - began)
    return min(times) / n_rows


def task_seconds(n_tasks: int = 3000) -> float:
    """Return the seconds per task of a graph of tasks that do nothing, on two workers."""
    tasks = [dask.delayed(abs)(number, dask_key_name=f"task-{number}") for number in range(n_tasks)]
    with cluster(2):
        dask.compute(*tasks[:100])
        began = time.perf_counter()
        dask.compute(*tasks)
        return (time.perf_counter() - began) / n_tasks


def project(N=10**9, D=768, K=1000, n_workers=64, n_chunks=2000) -> dict:
    """Compute what a pass on 64 workers would take, from the cost of a row and of a task.

    kernel: N x seconds per row / workers. Tasks: blocks x chunks of a part, and one in 8 to add up
    their sums, scheduled one after the other. Bytes of a worker: its share of these sums, and the
    sums of all rows, once per block.
    """
    per_row, per_task, sums = kernel_seconds(D, K, 8192), task_seconds(), K * (D + 2) * 8
    stride = next(n for n in dask_rows.STRIDES if n * max(6, K / 4) <= n_chunks or n == 1)
    tasks = n_chunks / stride * 9 / 8
    passes = {}
    for when, blocks in (("first", 16), ("few rows move", 144), ("many rows move", 4 * K)):
        passes[when] = {
            "blocks": blocks,
            "kernel_seconds": N * per_row / n_workers,
            "scheduling_seconds": blocks * tasks * per_task,
            "gigabytes_per_worker": blocks * (tasks / n_workers + 1) * sums / 1e9,
        }
    return {
        "kernel_seconds_per_row": per_row,
        "kernel_seconds_per_row_32_columns_20_clusters": kernel_seconds(32, 20, 10**5),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "rows_columns_clusters_workers_chunks": [N, D, K, n_workers, n_chunks],
        "every_nth_chunk": stride,
        "seconds_per_task": per_task,
        "passes": passes,
        "terabytes_of_rows_in_float32": N * D * 4 / 1e12,
    }


PARTS = {
    "checks": lambda: [
        Cell("pendigits", "kill", seed=None).row(check_kill()),
        Cell("pendigits", "optima", seed=None).row(check_optima()),
        Cell("1e9 x 768, projected", "paper", seed=None).row(project()),
    ],
    "sets": study_sets,
    "blobs": study_blobs,
    "forced": study_forced,
    "clusters": study_clusters,
}


def main() -> None:
    """Run parts, write the result file after each, and print what missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    names = parser.parse_args().parts
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"{unknown[0]!r} is not a part; possible are {', '.join(PARTS)}.")
    sources.DaskChunks = CountedChunks
    for name in names or PARTS:
        Results.open("dask_scale").put(*PARTS[name]())
    missed = [row for row in Results.open("dask_scale").rows if row.get("within") is False]
    print(f"{len(missed)} combinations missed 0.5 % or 1.5 times the passes:")
    for row in missed:
        print(row.cell, {name: row[name] for name in ("objective", "passes")})
