"""PAC on Dask: objective and passes beside the fit in memory, and bytes exchanged.

python -m benchmarks dask_scale [blobs] [sets]

Needs PROBAGG_DATA; half an hour on two cores. Parts that are not named keep their earlier results.
"""

import argparse
import time
from contextlib import contextmanager
from functools import partial
from itertools import product

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import probagg.pac.inputs as sources
from benchmarks.data import lab_matrix
from benchmarks.record import Cell, Results, Row
from probagg import PAC
from probagg.pac.dask import DaskChunks
from probagg.storage import fingerprint

SETS = ("digits", "pendigits", "isolet", "mnist-test")
ORDERS = ("shuffled", "sorted")
CHUNKS = (2, 6, 30, 200)
SEEDS = range(3)
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


PARTS = {"sets": study_sets, "blobs": study_blobs}


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
