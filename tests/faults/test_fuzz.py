"""Damaged versions of every file that probagg reads: it returns, or raises its own error."""

from collections import Counter
from pathlib import Path

import pytest
from faults.fuzz.damage import damaged
from faults.fuzz.limits import read_or_refuse
from faults.fuzz.targets import TARGETS
from hypothesis import HealthCheck, given, note, settings
from hypothesis.database import DirectoryBasedExampleDatabase

FAILED = Path(__file__).parent / "fuzz/failed"  # inputs that failed once: failed/kind/digest-name


@pytest.mark.parametrize("kind", TARGETS)
def test_a_damaged_file_is_read_or_refused(kind, tmp_path):
    """Quickly, in little memory, and those that failed once stay mended."""
    found = _try_damaged(kind, tmp_path, TARGETS[kind].quick, derandomize=True, database=None)
    assert found["read"]
    assert found["refused"]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", TARGETS)
def test_100_000_damaged_files_of_a_kind_are_read_or_refused(kind, tmp_path):
    """Hours, with other inputs each time; hypothesis tries again first what failed before."""
    database = DirectoryBasedExampleDatabase("runs/fuzz")
    found = _try_damaged(kind, tmp_path, 100_000, database=database)
    print(f"{kind}: {found['read']:,} read, {found['refused']:,} refused")  # noqa: T201


def _try_damaged(kind, folder, inputs, **how):
    """Damage the good files of a kind, one at a time, and count what became of them."""
    target, found = TARGETS[kind], Counter()
    target.make(folder)
    good = {path.name: path.read_bytes() for path in folder.iterdir()}

    def attempt(name, data):
        path = folder / name
        path.write_bytes(data)
        try:
            found[read_or_refuse(target.read, path)] += 1
        finally:
            path.write_bytes(good[name])

    for name in good:
        target.read(folder / name)  # a good file must be read, or nothing is tested
    for path in (FAILED / kind).glob("*"):
        attempt(path.name.partition("-")[2], path.read_bytes())

    @settings(max_examples=inputs, deadline=None, suppress_health_check=list(HealthCheck), **how)
    @given(damaged(good))
    def every_input(drawn):
        note(f"{drawn[0]}: {drawn[1]!r}")
        attempt(*drawn)

    every_input()
    return found
