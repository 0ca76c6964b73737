"""Feed broken files to a reader: it returns or raises probagg's own error, soon and in memory."""

import contextlib
import faulthandler
import hashlib
import logging
import random
import resource
import signal
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from faults.fuzz.mutations import mutate, mutate_values
from faults.fuzz.targets import TARGETS, VALUES

from probagg.errors import ProbaggError

SECONDS = 10.0  # of the processor, so that a busy machine is no failure
BYTES = 2 * 2**30
FAILED = Path(__file__).parent / "failed"  # inputs that failed once: failed/kind/digest-name


class Hang(BaseException):
    """A reader that took too long; not an Exception, so that no reader can catch it."""


@dataclass
class Figures:
    """What became of the inputs of a kind."""

    inputs: int = 0
    returned: int = 0
    refused: int = 0
    slowest: float = 0.0  # seconds
    largest: int = 0  # bytes above what the process had before
    failures: list[str] = field(default_factory=list)


class Fuzz:
    """The good files of a kind in a folder, and the reader to try on broken ones."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.target = kind, folder, TARGETS[kind]
        self.figures = Figures()
        self.target.make(folder)
        self.good = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        for name in self.good:
            self.target.read(folder / name)  # a good file must be read, or nothing is tested

    def input(self, number):
        """Return the name and the bytes of an input; they depend on its number alone."""
        rng = random.Random(f"{self.kind} {number}")
        name = rng.choice(list(self.good))
        if name.endswith(VALUES) and rng.random() < 0.6:
            return name, mutate_values(self.good[name], name, rng)
        return name, mutate(self.good[name], rng, list(self.good.values()))

    def try_all(self, numbers):
        """Try the inputs of these numbers."""
        for number in numbers:
            self.try_one(*self.input(number))

    def try_failed(self):
        """Try the inputs that failed once."""
        for path in sorted((FAILED / self.kind).glob("*")):
            self.try_one(path.name.partition("-")[2], path.read_bytes())

    def try_one(self, name, data):
        """Try one input, and put the good file back."""
        path, figures = self.folder / name, self.figures
        path.write_bytes(data)
        figures.inputs += 1
        before, began, problem = _forget_peak(), time.process_time(), ""
        try:
            with _limited(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.target.read(path)
            figures.returned += 1
        except ProbaggError:
            figures.refused += 1
        except Hang:
            problem = f"more than {SECONDS:.0f} s\n{traceback.format_exc()}"
        except BaseException as error:  # a panic of Rust code is not an Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            problem = traceback.format_exc()
        seconds, taken = time.process_time() - began, _peak() - before
        figures.slowest, figures.largest = (
            max(figures.slowest, seconds),
            max(figures.largest, taken),
        )
        if seconds > SECONDS or taken > BYTES:
            problem = problem or f"{seconds:.1f} s, {taken / 1e9:.1f} GB"
        if problem:
            digest = hashlib.sha256(data).hexdigest()[:12]
            figures.failures.append(f"{self.kind}/{digest}-{name}\n{problem}")
        path.write_bytes(self.good[name])
        return problem


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
