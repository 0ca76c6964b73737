"""The commands for work on a finished run."""

import csv
import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from commands import probagg
from sklearn.datasets import make_blobs

import probagg as library
from probagg.app.review import Review
from probagg.app.run.contents import write_review


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """120 rows of a table in three clusters."""
    home = tmp_path_factory.mktemp("verbs")
    X, _ = make_blobs(120, 4, centers=3, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.insert(0, "customer", [f"c{row:03}" for row in range(120)])
    frame.to_csv(home / "rows.csv", index=False)
    return library.cluster(home / "rows.csv", 3, out=home / "run", report=False)


def lines_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_select_prints_or_writes_the_samples_to_look_at_first(run, tmp_path):
    shown = probagg("select", run.path, "-n", 9)
    assert shown.exit_code == 0, shown.stderr
    assert [line["customer"] for line in lines_of(shown.stdout)] == run.select(9).names
    assert "9 of 120 samples" in shown.stderr
    written = probagg("select", run.path, "-n", 9, "--out", tmp_path / "look.csv")
    assert written.exit_code == 0
    assert (tmp_path / "look.csv").read_text() == shown.stdout
    again = probagg("select", run.path, "--out", tmp_path / "look.csv")
    assert again.exit_code == 2
    assert "exists. Name a new file, or replace it with --overwrite" in again.stderr
    found = json.loads(probagg("select", run.path, "-n", 2, "--json").stdout)
    assert len(found["samples"]) == 2


def test_select_refuses_what_cannot_be_done_before_any_work(run):
    unknown = probagg("select", run.path, "--format", "excel")
    assert unknown.exit_code == 2
    assert "--format is 'excel'; possible are csv and label-studio" in unknown.stderr
    rows = probagg("select", run.path, "--format", "label-studio", "--out", "tasks")
    assert "Label Studio shows image files" in rows.stderr


def test_similar_finds_a_sample_of_the_run_by_its_name(run):
    shown = probagg("similar", run.path, "c007", "-n", 4)
    assert shown.exit_code == 0, shown.stderr
    lines = lines_of(shown.stdout)
    assert [line["customer"] for line in lines] == run.similar("c007", 4).names
    distances = [float(line["distance"]) for line in lines]
    assert np.all(np.diff(distances) >= 0)
    wrong = probagg("similar", run.path, "c999")
    assert wrong.exit_code == 3
    assert "c999" in wrong.stderr


def test_refine_writes_a_run_beside_the_old_one_and_says_what_moved(run, tmp_path):
    copy = tmp_path / "rows"
    shutil.copytree(run.path, copy)
    nothing = probagg("refine", copy)
    assert nothing.exit_code == 2
    assert "holds no moves, merges, splits or discarded samples to learn from" in nothing.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]
    write_review(copy, Review(moved={"c007": 1, "c008": 2}))
    made = probagg("refine", copy)
    assert made.exit_code == 0, made.stderr
    assert "2 known, " in made.stdout
    assert f"written to {copy}-refined; {copy} is as it was" in made.stdout
    assert (tmp_path / "rows-refined" / "report.html").is_file()
    again = probagg("refine", copy, "--json", "--no-report", "--out", tmp_path / "other")
    assert json.loads(again.stdout)["refined"]["n_known"] == 2


def test_update_adds_rows_and_says_how_clusters_drift(run, tmp_path):
    frame = pd.read_csv(run.config["source"])
    more = frame[:10].assign(customer=[f"n{row}" for row in range(10)])
    pd.concat([frame, more]).to_csv(tmp_path / "more.csv", index=False)
    made = probagg("update", run.path, tmp_path / "more.csv", "--out", tmp_path / "new")
    assert made.exit_code == 0, made.stderr
    assert "10 new rows, 0 of which fit no cluster" in made.stdout
    assert "mean distance" in made.stdout
    table = library.open_run(tmp_path / "new").assignments
    assert table.names == [*run.assignments.names, *more["customer"]]
    np.testing.assert_array_equal(table.cluster[120:], run.assignments.cluster[:10])
    wrong = probagg("update", run.path, tmp_path / "more.csv", "--new-clusters", "yes")
    assert wrong.exit_code == 2
    assert "new_clusters is 'yes'; possible are review, auto, none" in wrong.stderr


@pytest.mark.parametrize("verb", ["select", "similar", "refine", "update", "sort"])
def test_help_has_an_example(verb):
    shown = probagg(verb, "--help")
    assert f"probagg {verb} runs/photos" in shown.stdout
