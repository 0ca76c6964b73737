"""What was asked of `probagg cluster`, before it is known how to do it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probagg.cli.terminal import Voice
from probagg.data import benchmarks
from probagg.errors import InputError

Range = tuple[int, int]


@dataclass(frozen=True)
class Job:
    """One clustering: the source, the number of clusters, where the result goes."""

    source: str
    k: int | Range | str | None  # a number, a range, "auto", or nothing said
    out: Path
    seed: int
    labels: Path | None
    voice: Voice

    @property
    def loud(self) -> bool:
        """Whether progress is shown."""
        return not self.voice.quiet

    def clusters(self) -> int | Range | str:
        """K as given, or the number of classes of a named set."""
        if self.k is not None:
            return self.k
        if self.source in benchmarks.ALL_NAMES:
            return benchmarks.n_classes(self.source)
        raise InputError(
            f"-k is missing: say how many clusters {self.source} should have, as -k 10, or let it "
            "be chosen with -k auto or -k 5:40."
        )


def parse_k(text: str | None) -> int | Range | str | None:
    """-k as a number, a range A:B, or auto."""
    if text is None or text == "auto":
        return text
    low, colon, high = text.partition(":")
    try:
        k: int | Range = (int(low), int(high)) if colon else int(low)
    except ValueError:
        raise InputError(
            f"-k is {text!r}, but a number, a range as 5:40, or auto is needed."
        ) from None
    if isinstance(k, tuple) and not 2 <= k[0] < k[1]:
        raise InputError(f"-k is {text!r}, but a range goes from 2 or more up to more, as 5:40.")
    if isinstance(k, int) and k < 1:
        raise InputError(f"-k is {k}, but at least 1 cluster is needed.")
    return k
