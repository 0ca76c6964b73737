"""What the terminal shows: errors, results, progress. Exit codes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from probagg.progress import duration

if TYPE_CHECKING:
    from probagg.dpac.engine import Progress

MOST_BARS = 30
FAILED, INTERRUPTED = 1, 130  # the others are attributes of errors


def fail(message: str, code: int) -> NoReturn:
    """One line on standard error, and the end."""
    typer.echo(f"Error: {message}", err=True)
    sys.exit(code)


class Voice:
    """What a command says: on standard output, or beside it where that is kept for JSON.

    The lines are kept for log.txt, also those that `quiet` does not show.
    """

    def __init__(self, *, quiet: bool = False, aside: bool = False) -> None:
        self.quiet, self.aside = quiet, aside
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        """One line."""
        self.lines.append(text)
        if not self.quiet:
            typer.echo(text, err=self.aside)

    def warn(self, text: object) -> None:
        """One line that is shown always, on standard error."""
        self.lines.append(f"Warning: {text}")
        typer.echo(self.lines[-1], err=True)

    def say_sizes(self, sizes: list[int], names: dict[int, str] | None = None) -> None:
        """A bar for each cluster; of many, the largest and the smallest."""
        shown = list(range(len(sizes)))
        if len(sizes) > MOST_BARS:
            ranked = sorted(shown, key=lambda k: (-sizes[k], k))
            shown = [*ranked[: MOST_BARS - 5], -1, *ranked[-4:]]
        for k in shown:
            if k < 0:
                self.say("  ...")
                continue
            bar = "█" * round(30 * sizes[k] / max(max(sizes), 1))
            name = (names or {}).get(k, "")
            self.say(f"  cluster {k:>3}  {sizes[k]:>6}  {bar} {name}".rstrip())

    def say_scores(self, what: str, scores: dict[str, Any]) -> None:
        """ACC, NMI and ARI of one result."""
        numbers = (f"{name.upper()} {100 * scores[name]:.1f}" for name in ("acc", "nmi", "ari"))
        self.say(f"{what}: {'  '.join(numbers)}")


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
    """So many of so many in one line that is written over; a line for each tenth elsewhere."""

    def __init__(self, what: str, unit: str, wanted: bool, scale: float = 1.0) -> None:
        self.what, self.unit, self.scale = what, unit, scale
        self.wanted, self.live = wanted, sys.stderr.isatty()
        self._began, self._shown, self._tenth, self._width = time.monotonic(), 0.0, -1, 0
        self._first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show how far it is."""
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
