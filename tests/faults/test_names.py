"""Names that somebody chose to do harm: in the terminal, in the log and in a spreadsheet."""

import csv
import os
import warnings

import numpy as np
import pytest
from commands import cluster_by_pac, probagg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from probagg import cluster
from probagg.app.assignments import Assignments
from probagg.data.cells import PATH, QUOTE, marked, text_table, unmarked
from probagg.progress import printable

CLEAR = "\x1b[2J\x1b]0;pwned\x07"  # clears the screen and renames the window
FORMULA = "=HYPERLINK(0).png"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    names = [FORMULA, "-1+1.png", "@SUM(A1).png", f"{CLEAR}.png", "\x9b2Jc1.png", "\u202egnp.png"]
    for name in [*names, *(f"{i}.png" for i in range(10))]:
        pixels = rng.integers(0, 255, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / f"broken{CLEAR}\nforged line.png").write_bytes(b"not a picture")
    return folder


@pytest.fixture(scope="module")
def made(photos, tmp_path_factory):
    """A run of these photos, and what its command printed."""
    home = tmp_path_factory.mktemp("made")
    (home / "pixels_of.py").write_text(
        "import torch\n"
        "def build():\n"
        "    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        made = cluster_by_pac(photos, "-k", 2, "--backbone", "pixels_of:build", "--out", "run")
        assert made.exit_code == 0, made.output
        yield home / "run", made


def is_harmless(text):
    return all(printable(line) == line for line in text.split("\n"))


def test_names_cannot_control_the_terminal(made, photos, monkeypatch):
    """Neither those of photos that are left out, nor the table of predict where a person reads."""
    run, command = made
    assert is_harmless(command.output)
    monkeypatch.chdir(run.parent)
    monkeypatch.setattr("probagg.app.cli.terminal.is_terminal", lambda stream: True)
    result = probagg("predict", run, photos, "--trust-code")
    assert result.exit_code == 0, result.output
    assert is_harmless(result.output.replace("\r", "")), "but for the progress in one line"
    assert r"broken\x1b[2J\x1b]0;pwned\x07\nforged line.png is left out" in result.output
    assert r"\x1b[2J\x1b]0;pwned\x07.png,0" in result.output.replace(",1,", ",0,")


def test_a_program_that_reads_the_table_gets_the_names_as_they_are(made, photos, monkeypatch):
    run, _ = made
    monkeypatch.chdir(run.parent)
    result = probagg("predict", run, photos, "--trust-code")
    assert f"{CLEAR}.png," in result.stdout


def test_the_log_of_a_run_can_be_shown_in_a_terminal(made):
    assert is_harmless((made[0] / "log.txt").read_text())


def test_an_error_about_a_name_cannot_control_the_terminal(tmp_path):
    result = probagg("predict", tmp_path / f"no{CLEAR}run", "rows.csv")
    assert result.exit_code != 0
    assert is_harmless(result.output)
    assert r"no\x1b[2J" in result.output


def test_a_traceback_of_a_bug_cannot_control_the_terminal(tmp_path, monkeypatch):
    def fail(run):
        raise RuntimeError(f"{CLEAR}\n{CLEAR}")

    monkeypatch.setattr("probagg.app.cli.commands.open_run", fail)
    result = probagg("evaluate", tmp_path)
    assert "This is a bug" in result.output
    assert is_harmless(result.output)


def test_a_warning_of_the_log_cannot_control_the_terminal(tmp_path, monkeypatch, clustered):
    from probagg.progress import logger

    def warn(run):
        logger.warning("about %s", CLEAR)
        raise OSError("enough")

    monkeypatch.setattr("probagg.app.cli.commands.open_run", warn)
    result = probagg("evaluate", clustered)
    assert "Warning: about \\x1b[2J" in result.output
    assert is_harmless(result.output)


@pytest.mark.parametrize("name", ["café.png", "猫 1.png", "\U0001f431\u200d\U0001f680.png", "a b"])
def test_names_in_any_language_are_shown_as_they_are(name):
    assert printable(name) == name


# ---- spreadsheets


@pytest.mark.parametrize("table", ["assignments.csv", "skipped.csv"])
def test_no_path_in_a_table_begins_a_formula(made, photos, table):
    with (made[0] / table).open(newline="", encoding="utf-8") as file:
        paths = [row["path"] for row in csv.DictReader(file)]
    assert not any(path[0] in "=+-@\t\r" for path in paths)
    assert all((photos / path).exists() for path in paths), "they still lead to the files"


def test_the_run_knows_its_photos_by_their_names(made, photos):
    names = Assignments.read(made[0] / "assignments.csv").names
    assert FORMULA in names
    assert set(names) <= set(os.listdir(photos))


def test_a_class_that_is_a_folder_named_as_a_formula_is_marked_and_read_back(tmp_path):
    from probagg.data.labels import Classes, read_labels

    rows = [("=a/1.png", "=a"), ("-b/2.png", "'=b"), ("c/3.png", "-1")]
    text = text_table("path class", rows)
    assert text.splitlines()[1:] == ["./=a/1.png,'=a", "./-b/2.png,''=b", "c/3.png,-1"]
    (tmp_path / "classes.csv").write_text(text)
    classes: Classes = read_labels(tmp_path / "classes.csv", [path for path, _ in rows])
    assert [classes.names[k] for k in classes.y] == ["=a", "'=b", "-1"]


def test_a_column_named_as_a_formula_is_marked_in_the_profiles_and_read_back(tmp_path):
    from probagg.app.run.contents import read_contents

    lines = [f"{x},{10 * x},{'+b' if x > 9 else 'a'}" for x in range(-10, 30)]
    (tmp_path / "t.csv").write_text("\n".join(["=1+1,x,@kind", *lines]))
    run = cluster(tmp_path / "t.csv", 2, out=tmp_path / "run", report=False)
    with (run.path / "profiles.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["column"] for row in rows} == {"'=1+1", "x", "'@kind = +b", "'@kind = a"}
    assert not any(row["mean"].startswith("'") for row in rows), "numbers are not marked"
    assert read_contents(run.path).profiles.columns == ["=1+1", "x", "@kind = +b", "@kind = a"]


def test_a_name_of_a_cluster_is_marked_and_numbers_and_ids_are_not(tmp_path):
    """Ids are the user's own and must match the table that they came from."""
    P = np.array([[0.9, 0.1], [0.2, 0.8]])
    table = Assignments.of(P, P, None, ["@alice", "-7"], heading="user")
    table.cluster_names.update({0: "=1+1", 1: "-2.5e3"})
    lines = table.to_csv().splitlines()
    assert lines[1].startswith("@alice,0,")
    assert lines[1].endswith(",'=1+1")
    assert lines[2].startswith("-7,1,")
    assert lines[2].endswith(",-2.5e3")
    (tmp_path / "a.csv").write_text(table.to_csv())
    read = Assignments.read(tmp_path / "a.csv")
    assert read.cluster_names == table.cluster_names
    assert read.names == table.names


def test_ids_are_the_same_in_every_table_of_a_run(tmp_path):
    ids = ["=c0", "+c1", "@c2", "'c3", "c4"]
    values = ["1", "", "2", "8", "9"]
    rows = [f"{id},{value},{kind}" for id, value, kind in zip(ids, values, "ababa", strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["user,x,kind", *rows]) + "\n")
    run = cluster(
        tmp_path / "rows.csv", 2, id="user", labels="kind", out=tmp_path / "run", report=False
    )
    with (run.path / "assignments.csv").open(newline="") as file:
        clustered = [row["user"] for row in csv.DictReader(file)]
    with (run.path / "skipped.csv").open(newline="") as file:
        skipped = [row["path"] for row in csv.DictReader(file)]
    with (run.path / "classes.csv").open(newline="") as file:
        known = [row["name"] for row in csv.DictReader(file)]
    assert clustered == known == [id for id in ids if id != "+c1"]
    assert skipped == ["+c1"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.evaluate()["n_labelled"] == 4


@given(st.text("=+-@'./\t\r1.5ea ", max_size=8), st.sampled_from([PATH, QUOTE]))
def test_a_mark_comes_off_as_it_was_put_on(cell, mark):
    assert unmarked(marked(cell, mark), mark) == cell
