"""The command line: its entry, and how a signal ends it. Only this package prints."""

import os
import signal
import time
from types import FrameType
from typing import NoReturn

from probagg.environment import keep_memory
from probagg.processes import on_signals

STARTED = time.perf_counter()


def main() -> None:
    """Run the console script; Ctrl-C and other signals are handled from its first moment."""
    keep_memory()
    with on_signals(leave):
        # Importing it takes seconds.
        from probagg.app.cli.commands import app

        with on_signals(stop):
            app()


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end; `exit_code` is the shell's for that signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Stopped by {signal.Signals(number).name}.")
        self.exit_code = 128 + number


def stop(number: int, frame: FrameType | None) -> NoReturn:
    """Raise `Stopped` in whatever runs, so that it cleans up."""
    raise Stopped(number)


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """End the process while it only imports: an exception there would look like a broken package.

    Modules catch what they import with, and compiled ones print it.
    """
    os.write(2, f"Error: {Stopped(number)} Nothing was written.\n".encode())
    os._exit(Stopped(number).exit_code)
