"""What a run reports while it works: messages and progress. Nothing here prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from probagg.progress import log_progress, printable

if TYPE_CHECKING:
    from probagg.dpac.engine import Progress

# Called with how much is done and the total.
Counter = Callable[[int, int], None]


class Monitor:
    """Collect the messages of a run, which become its log.txt, and show nothing."""

    shows_progress = False

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        """Receive one line; control characters of the names in it become escapes."""
        self.lines.append(printable(text))

    def count(self, what: str, unit: str) -> Counter:
        """Return a callback for progress in `unit`."""
        return lambda done, total: None

    def train(self, progress: Progress) -> None:
        """Receive the progress of DPAC's training."""


class LogMonitor(Monitor):
    """Send messages to the "probagg" log, and progress at every tenth of the work."""

    shows_progress = True

    def say(self, text: str) -> None:
        """Log one line."""
        super().say(text)
        log_progress(True, "%s", self.lines[-1])

    def count(self, what: str, unit: str) -> Counter:
        """Return a callback that logs each tenth."""
        last = -1

        def show(done: int, total: int) -> None:
            nonlocal last
            tenth = 10 * done // max(total, 1)
            if tenth != last:
                last = tenth
                amount = f"{done:,} of {total:,} {unit}"
                log_progress(True, "%s: %s", what, amount)

        return show

    def train(self, progress: Progress) -> None:
        """Log the end of each epoch."""
        if progress.metrics:
            loss = progress.metrics.get("loss", float("nan"))
            place = f"epoch {progress.epoch}/{progress.epochs}"
            log_progress(True, "%s %s, loss %.4f", progress.stage, place, loss)
