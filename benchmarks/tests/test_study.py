"""The runner of the paper's tables (benchmarks/study.py)."""

import os
import signal
import subprocess
import sys

import pytest

from benchmarks import ROOT
from benchmarks.record import Cell, Results
from benchmarks.study import Study, beside_paper, main, percent, select, time_left

CELLS = [
    Cell(data, method, setting, seed)
    for data in ("digits", "isolet")
    for method in ("pac", "k-means")
    for setting in ("1.1", "1.2")
    for seed in range(2)
]
STUDY = """
import os, signal, sys
from pathlib import Path
from benchmarks.record import Cell
from benchmarks.study import Study, main

def cells(size, seeds):
    return [Cell("digits", "pac", seed=seed) for seed in range(seeds)]

def run(cell, size):
    with open("ran.txt", "a") as file:
        print(cell.seed, file=file)
    if cell.seed == 1 and Path("signal.txt").exists():
        number = int(Path("signal.txt").read_text())
        Path("signal.txt").unlink()
        os.kill(os.getpid(), number)
    return {"acc": 0.5 + cell.seed / 10}

main(Study("killed", cells, run, seeds=3))
"""


def make_study(**options):
    """A study of two seeds on two sets that notes what it runs."""
    ran = []

    def run(cell, size):
        ran.append(cell)
        return {"acc": 0.5, "rows": 3}

    def cells(size, seeds):
        return [Cell(data, "pac", seed=s) for data in ("digits", "isolet") for s in range(seeds)]

    return Study("table2", cells, run, seeds=2, **options), ran


def recorded(data, method, seconds, seed=0, **values):
    """A row as in a result file."""
    return Cell(data, method, seed=seed).row({"seconds": seconds, **values})


@pytest.mark.parametrize(
    ("words", "n"),
    [
        ((), 16),
        (("digits",), 8),
        (("digits", "isolet"), 16),
        (("digits", "pac"), 4),
        (("pac", "1.2"), 4),
        (("k-means", "pac", "isolet", "1.1"), 4),
    ],
)
def test_words_select_by_column(words, n):
    """Words of one column add cells; a word of another column narrows them."""
    found = select(CELLS, words)
    assert len(found) == n
    for cell in found:
        for column in ("data", "method", "setting"):
            asked = {word for word in words if word in {getattr(c, column) for c in CELLS}}
            assert not asked or getattr(cell, column) in asked


def test_an_unknown_word_names_those_that_are_possible():
    with pytest.raises(SystemExit, match=r"'pca'; possible are 1.1, 1.2, digits, isolet, k-means,"):
        select(CELLS, ["digits", "pca"])


def test_the_time_left_is_known_by_data_set_and_method():
    done = [recorded("digits", "pac", 2), recorded("digits", "pac", 4), recorded("mnist", "pac", 9)]
    missing = [Cell("digits", "pac", seed=2), Cell("digits", "pac", seed=3)]
    assert time_left(done, missing) == ", about 6.0 s left"
    assert time_left(done, [Cell("mnist", "pac", seed=1)]) == ", about 9.0 s left"


def test_the_time_of_another_method_or_setting_is_not_guessed():
    done = [recorded("digits", "pac", 2), recorded("digits", "k-means", 4)]
    assert time_left(done, [Cell("digits", "fcm")]) == ""
    missing = [Cell("digits", "pac", seed=5), Cell("digits", "pac", "paper")]
    expected = ", about 2.0 s left, and 1 more whose time is not known"
    assert time_left(done, missing) == expected


def test_a_pre_training_counts_once_for_all_runs_of_a_seed():
    values = {"seconds": 10.0, "pretrain_seconds": 100.0}
    done = [Cell("digits", method, seed=0).row(values) for method in ("jpac", "opa")]
    missing = [Cell("digits", method, seed=seed) for method in ("jpac", "opa") for seed in (0, 1)]
    assert time_left(done, missing) == ", about 2 min 20 s left"
    assert time_left(done, missing[:1]) == ", about 10 s left"


def test_the_help_lists_the_words_of_only(capsys):
    study, _ = make_study()
    with pytest.raises(SystemExit):
        main(study, ["--help"])
    assert "any of: digits, isolet, pac" in " ".join(capsys.readouterr().out.split())


def test_no_time_is_said_before_a_run_has_ended():
    assert time_left([], [Cell("digits", "pac")]) == ""


def test_only_what_is_missing_is_run(tmp_path, capsys):
    study, ran = make_study()
    main(study, ["--only", "digits", "--out", str(tmp_path)])
    assert [(cell.data, cell.seed) for cell in ran] == [("digits", 0), ("digits", 1)]
    ran.clear()
    main(study, ["--seeds", "3", "--out", str(tmp_path)])
    assert "2 of 6 runs recorded" in capsys.readouterr().out
    assert [(c.data, c.seed) for c in ran] == [("digits", 2), *(("isolet", s) for s in range(3))]
    ran.clear()
    main(study, ["--again", "--only", "isolet", "--out", str(tmp_path)])
    assert [(cell.data, cell.seed) for cell in ran] == [("isolet", 0), ("isolet", 1)]


def test_each_size_has_its_own_file(tmp_path):
    study, _ = make_study()
    for size in ("full", "small", "tiny"):
        main(study, ["--size", size, "--out", str(tmp_path)])
    names = {path.name for path in (tmp_path / "table2").iterdir()}
    assert names == {"full.json", "small.json", "tiny.json"}


def test_our_mean_is_beside_the_number_of_the_paper():
    shares = (0.6, 0.62, 0.6, 0.62)
    rows = [recorded("isolet", "pac", 1, seed=s, acc=acc) for s, acc in enumerate(shares)]
    (line,) = beside_paper(make_study()[0], rows)
    assert "n=4" in line
    assert "ACC 61.0 ± 1.2 | 61.8 | -0.8" in line


@pytest.mark.parametrize(
    ("shares", "printed"),
    [
        ((0.5,), "50.0"),
        ((0.5, 0.7), "50.0, 70.0"),
        ((0.5, 0.6, 0.7), "50.0, 60.0, 70.0"),
        ((0.5, 0.5, 0.7, 0.7), "60.0 ± 11.5"),
    ],
)
def test_up_to_three_values_are_printed_and_more_have_the_deviation_of_the_sample(shares, printed):
    """With n - 1: the deviation of (50, 50, 70, 70) is 20 / sqrt(3), not 10."""
    assert percent(*shares) == printed


def test_our_mean_stands_alone_where_the_paper_has_no_number():
    (line,) = beside_paper(make_study()[0], [recorded("digits", "pac", 1, acc=0.5)])
    assert line.endswith("ACC 50.0")


@pytest.fixture
def study_that_stops(tmp_path):
    """A function that runs a study of three seeds, which sends itself a signal in the second."""
    (tmp_path / "killed.py").write_text(STUDY)

    def run(number=None):
        if number is not None:
            (tmp_path / "signal.txt").write_text(str(int(number)))
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        return subprocess.run(
            [sys.executable, "killed.py", "--out", "."],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_study_goes_on_after_the_last_run_that_ended(study_that_stops, tmp_path, number):
    stopped = study_that_stops(number)
    assert stopped.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in stopped.stderr
    first = Results.open("killed", folder=tmp_path).rows
    assert [row.seed for row in first] == [0]
    resumed = study_that_stops()
    assert "1 of 3 runs recorded" in resumed.stdout, resumed.stderr
    rows = Results.open("killed", folder=tmp_path).rows
    assert [row.seed for row in rows] == [0, 1, 2]
    assert rows[0] == first[0]
    assert (tmp_path / "ran.txt").read_text().split() == ["0", "1", "1", "2"]
