"""Every error as one line and an exit code; a bug as a traceback."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from probagg.cli.terminal import FAILED, INTERRUPTED, Terminal, fail
from probagg.errors import InputError, Interrupted, ProbaggError, first_line
from probagg.run.folder import MANIFEST

Give = Callable[[Any], None]
BUG = "This is a bug in probagg, not in what you gave it. Please report it with the lines above."
OUT_OF_MEMORY = (
    "The GPU has too little memory ({}). Lower the batch with --set pretrain.batch_size=128, or "
    "split it with --set pretrain.accumulate=2."
)

NO_MEMORY = (
    "The memory is full ({}). Use fewer or smaller images (--set views.size, "
    "--set pretrain.batch_size), fewer rows or clusters, or a larger machine."
)


@contextmanager
def guarded(terminal: Terminal, out: Path | None = None, as_json: bool = False) -> Iterator[Give]:
    """Show warnings and errors in one line each; yield a function that prints a result as JSON."""

    def give(result: Any) -> None:
        if as_json:
            typer.echo(json.dumps(result))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: terminal.warn(message)
            yield give
    except ProbaggError as error:
        resume = f" Run the same command with --out {out} to go on."
        is_saved = isinstance(error, Interrupted) and out is not None
        fail(f"{error}{resume if is_saved else ''}", error.exit_code)
    except BrokenPipeError:  # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (OSError, ImportError) as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        fail(f"Interrupted. {_left(out)}", INTERRUPTED)
    except Exception as error:
        kind = type(error).__name__  # by name, so that neither package is imported for this
        if kind == "InvalidParameterError":  # scikit-learn's, of an estimator's parameter
            fail(str(error), InputError.exit_code)
        if kind == "OutOfMemoryError":  # torch's
            fail(OUT_OF_MEMORY.format(first_line(error)), FAILED)
        if isinstance(error, MemoryError) or "allocate memory" in str(error):  # NumPy's, torch's
            fail(NO_MEMORY.format(first_line(error)), FAILED)
        traceback.print_exc()
        fail(BUG, FAILED)


def _left(out: Path | None) -> str:
    """Return in words what an interrupted command leaves behind."""
    if out is not None and (out / MANIFEST).exists():
        return f"The run in {out} is finished; probagg report {out} writes its page."
    if out is not None and (out / "checkpoints").exists():
        return f"The same command with --out {out} resumes from what was saved last."
    return "Nothing was written."
