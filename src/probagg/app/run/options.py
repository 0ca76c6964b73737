"""What was asked for: a source, a number of clusters, a folder."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

from probagg.app.run.folder import is_finished
from probagg.app.run.monitor import Monitor
from probagg.data import benchmarks
from probagg.errors import InputError


@dataclass(frozen=True)
class Request:
    """What was asked for, before it is known how to do it."""

    source: Any
    k: int | tuple[int, int] | str | None
    out: Path
    seed: int
    labels: Any
    monitor: Monitor
    max_bad: int | None = None
    outline: Any = None  # in place of a source that is not to be downloaded

    @property
    def data(self) -> Any:
        """What to open: the source, or its outline."""
        return self.source if self.outline is None else self.outline

    @property
    def title(self) -> str:
        """The source in a message."""
        return title_of(self.source)

    def check_skipped(self, skipped: Sequence[tuple[str, str]]) -> None:
        """Raise where more files or rows cannot be used than `max_bad` allows."""
        if self.max_bad is None or len(skipped) <= self.max_bad:
            return
        some = "; ".join(f"{name} ({reason})" for name, reason in skipped[:3])
        raise InputError(
            f"{len(skipped):,} files or rows of {self.title} cannot be used, more than the "
            f"{self.max_bad:,} allowed: {some}{'; ...' * (len(skipped) > 3)}. Mend or remove them, "
            "or raise --max-bad (max_bad)."
        )

    def clusters(self) -> int | tuple[int, int] | str:
        """Return K as given, or the number of classes of a named set."""
        if self.k is not None:
            return self.k
        if isinstance(self.source, str) and self.source in benchmarks.ALL_NAMES:
            return benchmarks.n_classes(self.source)
        raise InputError(
            f"The number of clusters is missing. Give one for {self.title}, as 10 (-k 10), or let "
            "it be chosen with auto or a range (-k auto, -k 5:40)."
        )


def default_out(source: Any) -> Path:
    """Return runs/SOURCE-TIME, with a number where a run that began in the same second is there."""
    is_path = isinstance(source, str | PathLike) and Path(source).exists()
    name = Path(source).resolve().stem if is_path else title_of(source)
    first = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = itertools.chain([first], (f"{first}-{n}" for n in itertools.count(2)))
    return next(out for out in map(Path("runs").joinpath, names) if not is_finished(out))


def title_of(source: Any) -> str:
    """Return a source's path or name, or what kind of data it is."""
    return str(source) if isinstance(source, str | PathLike) else type(source).__name__


def check_k(k: Any) -> int | tuple[int, int] | str | None:
    """Return the number of clusters as given, or raise where it cannot be used."""
    if k is None or k == "auto":
        return k
    if isinstance(k, Integral) and not isinstance(k, bool):
        if k < 1:
            raise InputError(f"The number of clusters is {k}, but at least 1 is needed.")
        return int(k)
    if isinstance(k, tuple) and len(k) == 2 and all(isinstance(end, Integral) for end in k):
        if not 2 <= k[0] < k[1]:
            raise InputError(
                f"The range of K is {k[0]} to {k[1]}, but it must begin at 2 or more and end "
                "higher, as 5 to 40."
            )
        return (int(k[0]), int(k[1]))
    raise InputError(
        f"The number of clusters is {k!r}, but a whole number, a range (low, high) or 'auto' is "
        "needed."
    )
