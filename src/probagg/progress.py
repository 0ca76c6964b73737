"""The log of the library, what a run reports while it works, and times in words.

Only the command line prints.
"""

import logging
import unicodedata
from collections.abc import Callable
from typing import Any

# Called with how much is done and the total (0: unknown).
Progress = Callable[[int, int], None]

logger = logging.getLogger("probagg")
# Categories of control characters, lone surrogates and line separators.
_UNSEEN = ("Cc", "Cs", "Zl", "Zp")
# Characters that change the reading direction.
_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def log_progress(wanted: bool, message: str, *values: Any) -> None:
    """Log to "probagg", and to the terminal where nobody has set up logging."""
    if wanted:
        if not logger.hasHandlers():
            logger.addHandler(logging.StreamHandler())
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
        logger.info(message, *values)


def printable(text: str) -> str:
    """Return text as one line, with escapes for characters that control a terminal or reorder it.

    File names may hold any of them.

    >>> printable("café 猫.png"), printable("two\\nlines\\x1b[2J.png")
    ('café 猫.png', 'two\\\\nlines\\\\x1b[2J.png')
    """
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _controls(c) else c for c in text)


def _controls(character: str) -> bool:
    category, direction = unicodedata.category(character), unicodedata.bidirectional(character)
    return category in _UNSEEN or direction in _TURNING


def duration(seconds: float) -> str:
    """Return a time in a few characters.

    >>> duration(0.031), duration(0.41), duration(75), duration(7260)
    ('0.031 s', '0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        digits = 0 if seconds >= 10 else 1 if seconds >= 0.1 else 3
        return f"{seconds:.{digits}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


class Monitor:
    """Collect the messages of a run, which become its log.txt; log them, too, where wanted."""

    def __init__(self, verbose: bool = False) -> None:
        self.lines: list[str] = []
        self.shows_progress = verbose

    def say(self, text: str) -> None:
        """Receive one line; control characters of the names in it become escapes."""
        self.lines.append(printable(text))
        log_progress(self.shows_progress, "%s", self.lines[-1])

    def count(self, what: str, unit: str) -> Progress:
        """Return a callback for progress in `unit`, which logs each tenth."""
        last = -1

        def show(done: int, total: int) -> None:
            nonlocal last
            if (tenth := 10 * done // max(total, 1)) != last:
                last = tenth
                amount = f"{done:,} of {total:,} {unit}"
                log_progress(self.shows_progress, "%s: %s", what, amount)

        return show

    def train(self, progress: Any) -> None:
        """Receive the progress of DPAC's training; log the end of each epoch."""
        if progress.metrics:
            loss = progress.metrics.get("loss", float("nan"))
            place = f"{progress.stage} epoch {progress.epoch}/{progress.epochs}"
            log_progress(self.shows_progress, "%s, loss %.4f", place, loss)
