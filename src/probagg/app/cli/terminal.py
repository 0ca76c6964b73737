"""What the terminal shows: messages, progress, and every error as one line with an exit code."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from probagg.app.cli import Stopped
from probagg.app.run.folder import is_finished, unfinished
from probagg.app.run.monitor import Counter, Monitor
from probagg.errors import InputError, Interrupted, ProbaggError, first_line
from probagg.progress import duration, logger, printable
from probagg.storage import encode

if TYPE_CHECKING:
    from probagg.app.run.monitor import Progress

FAILED, INTERRUPTED = 1, 130  # exit codes; the others belong to errors
# Seconds after which training is reported without a terminal too.
SILENCE = 60.0
# The same for its first step, from which the time left is known.
SOON = 10.0
# Replacements for encodings that lack these characters.
_PLAIN = str.maketrans({"█": "#", "±": "~"})


def show(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text; where nobody reads it any more, or a disk is full, the work goes on in silence.

    Characters that the encoding lacks, as Windows' cp1252 lacks the bars, are replaced.
    """
    stream = sys.stderr if err else sys.stdout
    try:
        typer.echo(_encodable(text, stream), err=err, nl=nl)
    except OSError:
        _silence(stream)


def deliver(text: str) -> None:
    """Print a result on standard output: a program gets its exact bytes, a terminal no controls.

    A reader who has had enough is an exit code without a message; a full disk is an error.
    """
    try:
        if is_terminal(sys.stdout):
            lines = "\n".join(map(printable, text.split("\n")))
            typer.echo(_encodable(lines, sys.stdout), nl=False)
        else:
            typer.echo(encode(text), nl=False)
    except BrokenPipeError:
        _silence(sys.stdout)
        sys.exit(FAILED)
    except OSError as error:
        # Otherwise Python would fail again when it exits.
        _silence(sys.stdout)
        fail(f"The result cannot be written to standard output ({error.strerror}).", FAILED)


def fail(message: str, code: int) -> NoReturn:
    """Print one line on standard error and exit."""
    show(f"Error: {printable(message)}", err=True)
    sys.exit(code)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person reads a stream; None is one that was closed before the start."""
    return stream is not None and stream.isatty()


def _encodable(text: str, stream: TextIO | None) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    return text


def _silence(stream: TextIO) -> None:
    """Send what is written to a stream from now on, also by others, to nowhere."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


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
            show(self.lines[-1], err=self.aside)

    def warn(self, text: object) -> None:
        """Print one line on standard error, also when quiet."""
        super().say(f"Warning: {text}")
        show(self.lines[-1], err=True)

    def count(self, what: str, unit: str) -> Counter:
        """Return a progress line."""
        return CountLine(what, unit, not self.quiet)

    def train(self, progress: Progress) -> None:
        """Show the progress of training."""
        self._training(progress)


class LiveLine:
    """A line on standard error that the next one replaces; without a terminal, each is kept."""

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.live = wanted, is_terminal(sys.stderr)
        self._began, self._shown, self._last = time.monotonic(), 0.0, ""

    def write(self, text: str, *, ends: bool) -> None:
        """Show the line; where it ends, the next one is a new line."""
        over = f"\r{' ' * len(self._last)}\r" if self._last else ""
        show(f"{over}{text}", err=True, nl=ends or not self.live)
        self._last = text if self.live and not ends else ""


class TrainingLine(LiveLine):
    """Show training; without a terminal, at each tenth of the epochs and at least every minute."""

    def __init__(self, wanted: bool) -> None:
        super().__init__(wanted)
        self._stage = self._loss = ""
        # Whether the time left has been shown.
        self._estimated = False

    def __call__(self, progress: Progress) -> None:
        """Show the progress."""
        if not self.wanted:
            return
        now, begins = time.monotonic(), progress.stage != self._stage
        share = progress.epoch + progress.step / progress.steps
        if begins:
            self._stage, self._began, self._loss = progress.stage, now, ""
            self._estimated, self._first = False, share
        if progress.metrics:
            self._loss = f"  loss {progress.metrics['loss']:.4f}"
            self._loss += f"  {progress.metrics['images_per_second']:.0f} images/s"
        ends = progress.epoch == progress.epochs
        wait = 0.2 if self.live else SILENCE if self._estimated else SOON
        before, after = (10 * n // progress.epochs for n in (progress.epoch - 1, progress.epoch))
        tenth = not self.live and progress.metrics and after > before
        if not (begins or ends or tenth or now - self._shown > wait):
            return
        self._shown, done = now, share - self._first
        text = f"{progress.stage:<10} epoch {progress.epoch}/{progress.epochs}"
        if progress.step or not done:
            text += f" step {progress.step}/{progress.steps}"
        if ends:
            left = f"{now - self._began:.0f} s"
        elif done:
            left = f"{duration((now - self._began) * (progress.epochs - share) / done)} left"
            self._estimated = True
        else:
            left = "time left: known after a step"
        self.write(f"{text}{self._loss}  {left}", ends=ends)


class CountLine(LiveLine):
    """Show a count; without a terminal, at each tenth."""

    def __init__(self, what: str, unit: str, wanted: bool) -> None:
        super().__init__(wanted)
        self.what, self.unit = what, unit
        self._tenth, self._first = -1, -1

    def __call__(self, done: int, total: int) -> None:
        """Show the count."""
        if not self.wanted:
            return
        self._first = done if self._first < 0 else self._first
        now, tenth = time.monotonic(), 10 * done // max(total, 1)
        due = now - self._shown > 0.2 or done == total if self.live else tenth != self._tenth
        if not due:
            return
        self._shown, self._tenth = now, tenth
        text = f"{self.what}  {done:,} of {total:,} {self.unit}"
        if self._first < done < total:
            left = (now - self._began) * (total - done) / (done - self._first)
            text += f", {duration(left)} left"
        self.write(text, ends=done == total)


Give = Callable[[Any], None]
BUG = "This is a bug in probagg, not in what you gave it. Please report it with the lines above."
OUT_OF_MEMORY = (
    "The GPU has too little memory ({}). Lower the batch with --set pretrain.batch_size=128, or "
    "split it with --set pretrain.accumulate=2."
)

FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL = "The disk is full ({}). Free some space there, or name a folder on another disk."
NO_MEMORY = (
    "The memory is full ({}). Use fewer or smaller images (--set views.size, "
    "--set pretrain.batch_size), fewer rows or clusters, or a larger machine."
)


@contextlib.contextmanager
def guarded(terminal: Terminal, out: Path | None = None, as_json: bool = False) -> Iterator[Give]:
    """Show warnings and errors in one line each; yield a function that prints a result as JSON."""

    def give(result: Any) -> None:
        if as_json:
            deliver(json.dumps(result) + "\n")

    try:
        with warnings.catch_warnings(), _logged(terminal):
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: terminal.warn(message)
            yield give
    except ProbaggError as error:
        resume = f" Run the same command with --out {out} to go on."
        is_saved = isinstance(error, Interrupted) and out is not None
        fail(f"{error}{resume if is_saved else ''}", error.exit_code)
    except (OSError, ImportError) as error:
        full = isinstance(error, OSError) and error.errno in FULL
        fail(DISK_FULL.format(error) if full else str(error), FAILED)
    except Stopped as stop:
        fail(f"{stop} {_left(out)}", stop.exit_code)
    except KeyboardInterrupt:  # Ctrl-C for the second time in training
        fail(f"Interrupted. {_left(out)}", INTERRUPTED)
    except Exception as error:
        # Errors of scikit-learn and torch are told by name, so that neither is imported for this.
        kind = type(error).__name__
        if kind == "InvalidParameterError":
            fail(str(error), InputError.exit_code)
        if kind == "OutOfMemoryError":
            fail(OUT_OF_MEMORY.format(first_line(error)), FAILED)
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            fail(NO_MEMORY.format(first_line(error)), FAILED)
        for line in traceback.format_exc().splitlines():
            show(printable(line), err=True)
        fail(BUG, FAILED)


@contextlib.contextmanager
def _logged(terminal: Terminal) -> Iterator[None]:
    """Show the warnings in the log of the library like all others."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: terminal.warn(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _left(out: Path | None) -> str:
    """Return in words what an interrupted command leaves behind."""
    if out is not None and (unfinished(out) / "checkpoints").exists():
        return f"The same command with --out {out} resumes from what was saved last."
    if out is not None and is_finished(out):
        return f"{out} holds a finished run; probagg report {out} writes its page."
    return "Nothing was written."
