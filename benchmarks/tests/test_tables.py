"""Every script of benchmarks/paper, run at its tiny size."""

import math
import sys
from types import SimpleNamespace

import pytest

from benchmarks.__main__ import main, scripts
from benchmarks.record import Results

NAMES = sorted(
    name
    for name, path in scripts().items()
    if path.parent.name == "paper" and "STUDY = " in path.read_text()
)


@pytest.fixture(scope="module", params=NAMES)
def study(request, tmp_path_factory):
    """A script that has been run: its name, its options and its result file."""
    name, out = request.param, tmp_path_factory.mktemp(request.param)
    options = ["--size", "tiny", "--seeds", "1", "--out", str(out)]
    study = SimpleNamespace(
        name=name, options=options, results=lambda: Results.open(name, "tiny", out)
    )
    with pytest.MonkeyPatch.context() as patch:
        run(study, patch)
    return study


def run(study, monkeypatch, *more):
    """Run the script in this process, which has imported torch already."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", study.name, *study.options, *more])
    main()


def numbers(value):
    """All floating-point numbers in a JSON value."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)


def test_table2_is_among_the_scripts():
    assert "table2" in NAMES


def test_a_row_has_scores_and_circumstances(study):
    found = study.results()
    assert found.rows
    for row in found.rows:
        assert row.seconds is not None
        assert row.settings["hash"]
        assert all(map(math.isfinite, numbers(row.values)))
        assert all(0 <= row[score] <= 1 for score in ("acc", "nmi") if score in row.values)
        here = found.environments[row.environment]
        assert {"commit", "processor", "packages", "python"} <= set(here)


def test_no_run_is_recorded_twice(study):
    cells = [row.cell for row in study.results().rows]
    assert len(set(cells)) == len(cells)


def test_a_second_call_runs_nothing(study, monkeypatch, capsys):
    before = study.results()
    run(study, monkeypatch)
    n = len(before.rows)
    assert f"{study.name}, tiny: {n} of {n} runs recorded." in capsys.readouterr().out
    assert study.results() == before


def test_an_unknown_word_is_an_error_that_names_the_possible_ones(study, monkeypatch):
    with pytest.raises(SystemExit) as error:
        run(study, monkeypatch, "--only", "nonsense")
    first = study.results().rows[0]
    assert str(error.value).startswith("--only has 'nonsense'; possible are ")
    assert all(word in str(error.value) for word in (first.data, first.method))
