"""Every error as one line and an exit code; a bug as a traceback."""

from __future__ import annotations

import errno
import json
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probagg.app.cli.stopping import Stopped
from probagg.app.cli.terminal import FAILED, INTERRUPTED, Terminal, deliver, fail, show
from probagg.app.run.layout import is_finished, unfinished
from probagg.errors import InputError, Interrupted, ProbaggError, first_line
from probagg.progress import logger, printable

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


@contextmanager
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
        kind = type(error).__name__  # by name, so that neither package is imported for this
        if kind == "InvalidParameterError":  # scikit-learn's, of an estimator's parameter
            fail(str(error), InputError.exit_code)
        if kind == "OutOfMemoryError":  # torch's
            fail(OUT_OF_MEMORY.format(first_line(error)), FAILED)
        if isinstance(error, MemoryError) or "allocate memory" in str(error):  # NumPy's, torch's
            fail(NO_MEMORY.format(first_line(error)), FAILED)
        for line in traceback.format_exc().splitlines():
            show(printable(line), err=True)
        fail(BUG, FAILED)


@contextmanager
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
