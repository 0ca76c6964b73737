"""The command line. Only this package prints."""

from probagg.app.cli.stopping import leave, stop
from probagg.environment import keep_memory
from probagg.signals import on_signals


def main() -> None:
    """Run the console script; Ctrl-C and other signals are handled from its first moment."""
    keep_memory()
    with on_signals(leave):
        from probagg.app.cli.commands import app  # takes seconds

        with on_signals(stop):
            app()
