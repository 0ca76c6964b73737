"""Every error a user can cause, as one line and an exit code."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer

from probagg.cli.terminal import (
    FAILED,
    INTERRUPTED,
    NO_DATA,
    SAVED,
    WRONG_USAGE,
    Voice,
    fail,
)
from probagg.data import NoData
from probagg.runs import MANIFEST, RunFolderError


class Saved(RuntimeError):
    """Work that was left and can be taken up; the message says how."""


@contextmanager
def guarded(
    voice: Voice, out: Path | None = None, as_json: bool = False
) -> Iterator[Callable[[Any], None]]:
    """Warnings and errors in one line each; the value handed over is printed as JSON if wanted."""

    def give(result: Any) -> None:
        if as_json:
            typer.echo(json.dumps(result))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: voice.warn(message)
            yield give
    except NoData as error:
        fail(str(error), NO_DATA)
    except (RunFolderError, ValueError) as error:
        fail(str(error), WRONG_USAGE)
    except BrokenPipeError:  # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (OSError, ImportError) as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        fail(f"Interrupted. {_left(out)}", INTERRUPTED)
    except Saved as error:
        fail(str(error), SAVED)
    except RuntimeError as error:
        _fail_in_training(error, out)


def _left(out: Path | None) -> str:
    """What an interrupted command leaves behind."""
    if out is not None and (out / MANIFEST).exists():
        return f"The run in {out} is finished; probagg report {out} writes its page."
    if out is not None and (out / "checkpoints").exists():
        return f"The same command with --out {out} goes on from what was saved last."
    return "Nothing was written."


def _fail_in_training(error: RuntimeError, out: Path | None) -> NoReturn:
    from probagg.dpac.engine import CannotResume, Diverged, Interrupted

    if isinstance(error, Interrupted):
        fail(f"{error} Run the same command with --out {out} to go on.", SAVED)
    if isinstance(error, CannotResume | Diverged):
        fail(str(error), WRONG_USAGE if isinstance(error, CannotResume) else FAILED)
    if type(error).__name__ == "ExportError":
        fail(str(error), FAILED)
    if type(error).__name__ == "OutOfMemoryError":
        fail(
            f"The GPU has too little memory ({str(error).splitlines()[0]}). Lower the batch with "
            "--set pretrain.batch_size=128, or split it with --set pretrain.accumulate=2.",
            FAILED,
        )
    raise error
