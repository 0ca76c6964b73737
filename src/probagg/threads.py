"""Work in threads: Pillow and NumPy release Python's lock while they compute."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int | None = None
) -> Iterator[Result]:
    """Yield `work(item)` for each item, in order, computed on all cores or in so many threads."""
    if len(items) < 2 or threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(min(threads or cores(), len(items))) as pool:
        for start in range(0, len(items), 1024):  # a million waiting tasks would fill the memory
            yield from pool.map(work, items[start : start + 1024])


def stack_in_threads(
    work: Callable[[Item], np.ndarray], items: Sequence[Item], shape: tuple[int, ...]
) -> np.ndarray:
    """Return the uint8 arrays `work(item)` of one shape, stacked, computed on all cores."""
    stack = np.empty((len(items), *shape), np.uint8)

    def fill(position: int) -> None:
        stack[position] = work(items[position])

    for _ in in_threads(fill, range(len(items))):
        pass
    return stack


def read_ahead(
    load: Callable[[Item], Result],
    pieces: Iterable[Item],
    threads: int = 1,
    begin: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """Yield `load(piece)` for each piece, in order, while threads load the next ones.

    Each thread calls `begin` first. At the end, also at an early one, no thread is at work: what is
    being loaded is waited for, and what waits is not loaded.
    """
    pool, coming = ThreadPoolExecutor(threads, initializer=begin), deque[Future[Result]]()
    try:
        for piece in pieces:
            coming.append(pool.submit(load, piece))
            if len(coming) > threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
