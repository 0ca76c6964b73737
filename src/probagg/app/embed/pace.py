"""How fast features were extracted, and which stage took most of the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

READING, DECODING, NETWORK = "reading", "decoding", "network"


class Stopwatch:
    """Seconds by stage, measured in one thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


@dataclass(frozen=True)
class Pace:
    """Images whose features were computed, the time that took, and the time of each stage.

    >>> print(Pace(200, 4.0, {READING: 0.4, DECODING: 2.0, NETWORK: 5.6}))
    50 images/s, limited by the network (70 % of the time; decoding 25 %, reading 5 %)
    """

    n_images: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)  # seconds, summed over threads

    def __add__(self, other: Pace) -> Pace:
        stages = dict(self.stages)
        for stage, seconds in other.stages.items():
            stages[stage] = stages.get(stage, 0.0) + seconds
        return Pace(self.n_images + other.n_images, self.seconds + other.seconds, stages)

    @property
    def images_per_second(self) -> float:
        """How many images went from a file to features in a second."""
        return self.n_images / self.seconds if self.seconds else 0.0

    def shares(self) -> dict[str, float]:
        """Return the share of each stage in the time of all, the largest first."""
        total = sum(self.stages.values()) or 1.0
        ordered = sorted(self.stages.items(), key=lambda pair: -pair[1])
        return {stage: seconds / total for stage, seconds in ordered}

    def __str__(self) -> str:
        rate = self.images_per_second
        (first, most), *others = self.shares().items()
        limit = "the network" if first == NETWORK else first
        rest = ", ".join(f"{stage} {100 * share:.0f} %" for stage, share in others)
        shares = f"{100 * most:.0f} % of the time; {rest}"
        return f"{rate:.{0 if rate >= 10 else 1}f} images/s, limited by {limit} ({shares})"
