"""Doctests are those of src: of a test module that fails to import they hide the error."""

from pathlib import Path

import pytest

SRC = Path(__file__).parent / "src"


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Collect doctests of src alone."""
    found = yield
    if file_path.is_relative_to(SRC):
        return found
    return [collector for collector in found if type(collector).__name__ != "DoctestModule"]
