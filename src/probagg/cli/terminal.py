"""What the terminal shows: messages, errors and progress."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NoReturn

import typer

from probagg.progress import duration
from probagg.run.monitor import Counter, Monitor

if TYPE_CHECKING:
    from probagg.run.monitor import Progress

FAILED, INTERRUPTED = 1, 130  # exit codes; the others belong to errors


def fail(message: str, code: int) -> NoReturn:
    """Print one line on standard error and exit."""
    typer.echo(f"Error: {message}", err=True)
    sys.exit(code)


class Terminal(Monitor):
    """Print messages on standard output, or on standard error where that is kept for JSON.

    All lines are kept for log.txt, also those that `quiet` does not show.
    """

    def __init__(self, *, quiet: bool = False, aside: bool = False) -> None:
        super().__init__()
        self.quiet, self.aside = quiet, aside
        self.shows_progress = not quiet
        self._training = TrainingLine(not quiet)

    def say(self, text: str) -> None:
        """Print one line."""
        super().say(text)
        if not self.quiet:
            typer.echo(text, err=self.aside)

    def warn(self, text: object) -> None:
        """Print one line on standard error, also when quiet."""
        super().say(f"Warning: {text}")
        typer.echo(self.lines[-1], err=True)

    def count(self, what: str, unit: str, scale: float = 1.0) -> Counter:
        """Return a progress line."""
        return CountLine(what, unit, not self.quiet, scale)

    def train(self, progress: Progress) -> None:
        """Show the progress of training."""
        self._training(progress)


class TrainingLine:
    """Show training in one line that is overwritten; without a terminal, a line per tenth."""

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.live = wanted, sys.stderr.isatty()
        self._shown, self._began, self._stage = 0.0, time.monotonic(), ""
        self._loss = self._last = ""

    def __call__(self, progress: Progress) -> None:
        """Show the progress."""
        if not self.wanted:
            return
        now = time.monotonic()
        if progress.stage != self._stage:
            self._stage, self._began, self._loss = progress.stage, now, ""
            self._first = progress.epoch + progress.step / progress.steps
        if progress.metrics:
            self._loss = f"  loss {progress.metrics['loss']:.4f}"
            self._loss += f"  {progress.metrics['images_per_second']:.0f} images/s"
        if self.live and (now - self._shown > 0.2 or progress.epoch == progress.epochs):
            self._shown = now
            self._write(progress, now)
        elif not self.live and progress.metrics and _is_a_tenth(progress):
            self._write(progress, now)

    def _write(self, progress: Progress, now: float) -> None:
        share = progress.epoch + progress.step / progress.steps
        done = share - self._first  # 0 after the only step of the first epoch
        rest = (now - self._began) * (progress.epochs - share) / done if done > 0.0 else 0.0
        left = f"  {duration(rest)} left" if done > 0.0 else ""
        text = f"{progress.stage:<10} epoch {progress.epoch}/{progress.epochs}{self._loss}"
        if progress.epoch == progress.epochs:
            typer.echo(f"{self._over()}{text}  {now - self._began:.0f} s", err=True)
            self._last = ""
        elif self.live:
            text += left
            typer.echo(f"{self._over()}{text}", err=True, nl=False)
            self._last = text
        else:
            typer.echo(f"{text}{left}", err=True)

    def _over(self) -> str:
        return f"\r{' ' * len(self._last)}\r" if self._last else ""


class CountLine:
    """Show a count in one line that is overwritten; without a terminal, a line per tenth."""

    def __init__(self, what: str, unit: str, wanted: bool, scale: float = 1.0) -> None:
        self.what, self.unit, self.scale = what, unit, scale
        self.wanted, self.live = wanted, sys.stderr.isatty()
        self._began, self._shown, self._tenth, self._width = time.monotonic(), 0.0, -1, 0
        self._first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show the count."""
        if not self.wanted:
            return
        self._first = done if self._first is None else self._first
        now, tenth = time.monotonic(), 10 * done // max(total, 1)
        due = tenth != self._tenth if not self.live else now - self._shown > 0.2 or done == total
        if not due:
            return
        self._shown, self._tenth = now, tenth
        text = f"{self.what}  {done / self.scale:,.0f} of {total / self.scale:,.0f} {self.unit}"
        if done > self._first and done < total:
            left = (now - self._began) * (total - done) / (done - self._first)
            text += f", {duration(left)} left"
        over = f"\r{text:<{self._width}}" if self.live else text
        self._width = len(text)
        typer.echo(over, err=True, nl=not self.live or done == total)


def _is_a_tenth(progress: Progress) -> bool:
    before = 10 * (progress.epoch - 1) // progress.epochs
    return 10 * progress.epoch // progress.epochs > before
