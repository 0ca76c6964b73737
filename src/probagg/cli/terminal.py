"""What the terminal shows: errors, results, progress. Exit codes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from probagg.dpac.engine import Progress

FAILED, WRONG_USAGE, NO_DATA, SAVED, INTERRUPTED = 1, 2, 3, 75, 130


def fail(message: str, code: int) -> NoReturn:
    """One line on standard error, and the end."""
    typer.echo(f"Error: {message}", err=True)
    sys.exit(code)


def show_sizes(sizes: list[int]) -> None:
    """A bar for each cluster."""
    widest = max(sizes)
    for label, size in enumerate(sizes):
        typer.echo(f"  cluster {label:>3}  {size:>6}  {'█' * round(30 * size / widest)}")


def show_scores(what: str, scores: dict[str, Any]) -> None:
    """ACC, NMI and ARI of one result."""
    numbers = "  ".join(
        f"{name.upper()} {100 * scores[name]:.1f}" for name in ("acc", "nmi", "ari")
    )
    typer.echo(f"{what}: {numbers}")


class ProgressLine:
    """Training in one line that is written over; a line for each tenth where no terminal is."""

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.live = wanted, sys.stderr.isatty()
        self._shown, self._began, self._stage = 0.0, time.monotonic(), ""
        self._loss = self._last = ""

    def __call__(self, progress: Progress) -> None:
        """Show where training is."""
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
        left = (now - self._began) * (progress.epochs - share) / max(share - self._first, 1e-9)
        text = f"{progress.stage:<10} epoch {progress.epoch}/{progress.epochs}{self._loss}"
        if progress.epoch == progress.epochs:
            typer.echo(f"{self._over()}{text}  {now - self._began:.0f} s", err=True)
            self._last = ""
        elif self.live:
            text += f"  {_duration(left)} left"
            typer.echo(f"{self._over()}{text}", err=True, nl=False)
            self._last = text
        else:
            typer.echo(f"{text}  {_duration(left)} left", err=True)

    def _over(self) -> str:
        return f"\r{' ' * len(self._last)}\r" if self._last else ""


class DownloadLine:
    """A download in one line for each tenth of it."""

    def __init__(self, wanted: bool) -> None:
        self.wanted, self._shown = wanted, -1

    def __call__(self, done: int, total: int) -> None:
        """Show how far it is."""
        tenth = 10 * done // max(total, 1)
        if self.wanted and tenth != self._shown:
            self._shown = tenth
            typer.echo(f"downloading  {done / 1e6:.0f} of {total / 1e6:.0f} MB", err=True)


def _is_a_tenth(progress: Progress) -> bool:
    before = 10 * (progress.epoch - 1) // progress.epochs
    return 10 * progress.epoch // progress.epochs > before


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
