"""What the terminal shows: messages, progress, and every error as one line with an exit code."""

import contextlib
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO

import typer

from probagg.app.cli import Stopped
from probagg.app.run.folder import is_finished, unfinished
from probagg.errors import InputError, Interrupted, ProbaggError, first_line
from probagg.progress import Monitor, Progress, duration, logger, printable
from probagg.storage import FULL, encode

FAILED, INTERRUPTED = 1, 130  # exit codes; the others belong to errors
# Seconds after which progress is reported without a terminal too.
SILENCE = 60.0
# Replacements for encodings that lack these characters.
_PLAIN = str.maketrans({"±": "~"})


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
    """Print messages on standard output, or on standard error where that is kept for a result.

    All lines are kept for log.txt, also those that `quiet` does not show. With `as_json`, a result
    is printed.
    """

    def __init__(self, *, quiet: bool = False, aside: bool = False, as_json: bool = False) -> None:
        super().__init__(verbose=not quiet)
        self.quiet, self.aside, self.as_json = quiet, aside or as_json, as_json
        self._stage = ""

    def give(self, result: Any) -> None:
        """Print the result of a command as JSON, where that is wanted."""
        if self.as_json:
            deliver(json.dumps(result) + "\n")

    def say(self, text: str) -> None:
        """Print one line."""
        self.lines.append(printable(text))
        if not self.quiet:
            show(self.lines[-1], err=self.aside)

    def warn(self, text: object) -> None:
        """Print one line on standard error, also when quiet."""
        self.lines.append(printable(f"Warning: {text}"))
        show(self.lines[-1], err=True)

    def count(self, what: str, unit: str) -> Progress:
        """Return a progress line."""
        line = ProgressLine(not self.quiet)
        return lambda done, total: line(f"{what}  {done:,} of {total:,} {unit}", done, total)

    def train(self, progress: Any) -> None:
        """Show the epochs and steps of training, stage by stage."""
        if progress.stage != self._stage:
            self._line, self._stage, self._loss = ProgressLine(not self.quiet), progress.stage, ""
        if progress.metrics:
            self._loss = f"  loss {progress.metrics['loss']:.4f}"
            self._loss += f"  {progress.metrics['images_per_second']:.0f} images/s"
        text = f"{progress.stage:<10} epoch {progress.epoch}/{progress.epochs}"
        if progress.step:
            text += f" step {progress.step}/{progress.steps}"
        done = progress.epoch + progress.step / progress.steps
        self._line(f"{text}{self._loss}", done, progress.epochs)


class ProgressLine:
    """A line on standard error that the next one replaces.

    Without a terminal, lines stay, one for each tenth of the work, and at least one per minute.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.live = wanted, is_terminal(sys.stderr)
        self._began, self._shown, self._last = time.monotonic(), -SILENCE, ""
        self._first = self._tenth = -1.0

    def __call__(self, text: str, done: float, total: float) -> None:
        """Show how far the work is, with the time left, unless that was shown just now."""
        if not self.wanted:
            return
        self._first = done if self._first < 0 else self._first
        now, tenth = time.monotonic(), 10 * done // max(total, 1)
        pause = now - self._shown
        is_due = pause > 0.2 if self.live else pause > SILENCE or tenth != self._tenth
        if not is_due and done != total:
            return
        self._shown, self._tenth = now, tenth
        if self._first < done < total:
            left = (now - self._began) * (total - done) / (done - self._first)
            text += f", {duration(left)} left"
        over = f"\r{' ' * len(self._last)}\r" if self._last else ""
        show(f"{over}{text}", err=True, nl=done == total or not self.live)
        self._last = text if self.live and done != total else ""


BUG = "This is a bug in probagg, not in what you gave it. Please report it with the lines above."
OUT_OF_MEMORY = (
    "The GPU has too little memory ({}). Lower the batch with --set pretrain.batch_size=128, or "
    "split it with --set pretrain.accumulate=2."
)

DISK_FULL = "The disk is full ({}). Free some space there, or name a folder on another disk."
NO_MEMORY = (
    "The memory is full ({}). Use fewer or smaller images (--set views.size, "
    "--set pretrain.batch_size), fewer rows or clusters, or a larger machine."
)


@contextlib.contextmanager
def guarded(out: Path | None = None, **options: bool) -> Iterator[Terminal]:
    """Yield a terminal with these options, on which warnings and errors are one line each."""
    terminal, logged = Terminal(**options), logging.Handler(logging.WARNING)
    # Warnings in the log of the library are shown like all others.
    logged.emit = lambda record: terminal.warn(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(logged)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: terminal.warn(message)
            yield terminal
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
    finally:
        logger.removeHandler(logged)


def _left(out: Path | None) -> str:
    """Return in words what an interrupted command leaves behind."""
    if out is not None and (unfinished(out) / "checkpoints").exists():
        return f"The same command with --out {out} resumes from what was saved last."
    if out is not None and is_finished(out):
        return f"{out} holds a finished run; probagg report {out} writes its page."
    return "Nothing was written."
