"""The long part: tries 100,000 inputs of every kind, and can be resumed.

`make test-faults` calls it; `PYTHONPATH=tests python -m faults.fuzz --help` tells more. Figures go
to `fuzz.json` in the folder `--out`, from where the next call goes on; inputs that fail go to its
`failed/`: copy them to `tests/faults/fuzz/failed/`, where the quick part tries them for ever.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from faults.fuzz.oracle import Figures, Fuzz
from faults.fuzz.targets import TARGETS

SLICE = 3.0  # seconds after which it is the next kind's turn


def main(arguments=None):
    """Try inputs, print figures, and return 1 if any input ever failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="of every kind")
    parser.add_argument("--kinds", nargs="*", default=list(TARGETS))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--minutes", type=float, default=1e9)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    failures, until = 0, time.monotonic() + 60 * given.minutes
    state = _State(given.out / "fuzz.json")
    with contextlib.ExitStack() as stack:
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        fuzzes = {}
        for kind in given.kinds:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))
            fuzzes[kind] = Fuzz(kind, folder)
            fuzzes[kind].figures = state.figures(kind)
        while time.monotonic() < until:
            waiting = [f for f in fuzzes.values() if f.figures.inputs < given.inputs]
            if not waiting:
                break
            for fuzz in waiting:
                _try_some(fuzz, given.inputs, given.out / "failed")
                state.save(fuzz.kind, fuzz.figures)
    for kind, fuzz in fuzzes.items():
        failures += len(fuzz.figures.failures)
        sys.stdout.write(_line(kind, fuzz.figures))
    return 1 if failures else 0


def _try_some(fuzz, most, failed):
    """Try the next inputs of a kind for a while, and keep those that fail."""
    until = time.monotonic() + SLICE
    while fuzz.figures.inputs < most and time.monotonic() < until:
        name, data = fuzz.input(fuzz.figures.inputs)
        if fuzz.try_one(name, data):
            found = fuzz.figures.failures[-1]
            place = failed / found.partition("\n")[0]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            sys.stdout.write(found)
            sys.stdout.flush()


class _State:
    def __init__(self, path):
        self.path = path
        self.all = json.loads(path.read_text()) if path.exists() else {}

    def figures(self, kind):
        return Figures(**self.all.get(kind, {}))

    def save(self, kind, figures):
        self.all[kind] = asdict(figures)
        self.path.write_text(json.dumps(self.all, indent=1))


def _line(kind, f):
    return (
        f"{kind:12} {f.inputs:8,} inputs: {f.returned:8,} read, {f.refused:8,} refused, "
        f"{len(f.failures)} failed; slowest {f.slowest:.2f} s, "
        f"most memory {f.largest / 1e6:.0f} MB\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
