"""Broken versions of every file that probagg reads: it returns, or raises its own error."""

import pytest
from faults.fuzz.__main__ import main
from faults.fuzz.oracle import Fuzz
from faults.fuzz.targets import TARGETS


@pytest.mark.parametrize("kind", TARGETS)
def test_a_broken_file_is_read_or_refused(kind, tmp_path):
    """Quickly, in little memory, and those that failed once stay mended."""
    fuzz = Fuzz(kind, tmp_path)
    fuzz.try_failed()
    fuzz.try_all(range(fuzz.target.quick))
    assert not fuzz.figures.failures, fuzz.figures.failures[0]
    assert fuzz.figures.returned
    assert fuzz.figures.refused


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_100_000_broken_files_of_every_kind_are_read_or_refused():
    """Hours; a test that was stopped goes on where it was. `make test-faults` shows the figures."""
    assert main([]) == 0
