"""Limits for a reader: 10 s of the processor, 2 GB, and errors of probagg's own only."""

import contextlib
import faulthandler
import logging
import resource
import signal
import time
import warnings
from pathlib import Path

from probagg.errors import ProbaggError

SECONDS = 10.0  # of the processor, so that a busy machine is no failure
BYTES = 2 * 2**30


class Hang(BaseException):
    """A reader that took too long; not an Exception, so that no reader can catch it."""


def read_or_refuse(read, path):
    """Return "read" or "refused"; anything else that `read` does is an AssertionError."""
    before, began, found = _forget_peak(), time.process_time(), "read"
    try:
        with _limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
    except ProbaggError:
        found = "refused"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of Rust code is not an Exception
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    seconds, taken = time.process_time() - began, _peak() - before
    assert seconds <= SECONDS, f"{seconds:.1f} s"
    assert taken <= BYTES, f"{taken / 1e9:.1f} GB"
    return found


@contextlib.contextmanager
def _limited():
    """Raise `Hang` in the reader after the allowed time; end the process where it is stuck in C."""

    def stop(*_):
        raise Hang

    signals = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(number, stop) for number in signals]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 6 * SECONDS)  # of a reader that only waits
    faulthandler.dump_traceback_later(12 * SECONDS, exit=True)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _forget_peak():
    """Set the process's peak of memory to what it has now, and return that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
