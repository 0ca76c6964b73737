"""Work in threads: Pillow and NumPy release Python's lock while they compute."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield `work(item)` for each item, in order, computed on all cores."""
    if len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
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
    load: Callable[[Item], Result], pieces: Iterable[Item]
) -> Generator[Result, None, None]:
    """Yield `load(piece)` for each piece, while a thread loads the next one."""
    with ThreadPoolExecutor(1) as reader:
        coming = None
        for piece in pieces:
            now, coming = coming, reader.submit(load, piece)
            if now is not None:
                yield now.result()
        if coming is not None:
            yield coming.result()
