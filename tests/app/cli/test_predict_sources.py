"""New photos named in several ways, and their table compared with known classes."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
from commands import probagg
from PIL import Image

from probagg import open_run
from probagg.app.review import Review
from probagg.app.run.contents import write_review

NETWORK = """
import torch
def build_mean():
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Dark and bright photos, clustered once, and new ones of both kinds."""
    home, rng = tmp_path_factory.mktemp("home"), np.random.default_rng(0)
    (home / "mean_network.py").write_text(NETWORK)
    for folder, n in (("photos", 8), ("new", 3)):
        (home / folder / "deep").mkdir(parents=True)
        for kind, low in (("dark", 0), ("bright", 200)):
            for i in range(n):
                pixels = rng.integers(low, low + 50, (16, 16, 3), dtype=np.uint8)
                place = "deep/" * (i == 2)
                Image.fromarray(pixels).save(home / folder / f"{place}{kind}{i}.png")
    (home / "new" / "notes.txt").write_text("?")
    return home


@pytest.fixture
def run(home, monkeypatch):
    monkeypatch.chdir(home)
    if not (home / "run").exists():
        how = ("--backbone", "mean_network:build_mean", "--method", "pac", "--no-report")
        result = probagg("cluster", "photos", "-k", 2, *how, "--out", "run")
        assert result.exit_code == 0, result.output
    return "run"


def paths_of(result):
    assert result.exit_code == 0, result.stderr
    return [row["path"] for row in csv.DictReader(io.StringIO(result.stdout))]


def predict(run, *sources):
    return probagg("predict", run, *sources, "--trust-code")


def test_several_files_keep_their_order(run):
    given = ["new/dark0.png", "new/bright0.png", "new/deep/dark2.png"]
    result = predict(run, *given, given[0])
    assert paths_of(result) == given
    clusters = [row["cluster"] for row in csv.DictReader(io.StringIO(result.stdout))]
    assert clusters[0] == clusters[2] != clusters[1]


def test_photos_that_fit_no_cluster_are_counted(run, home, tmp_path):
    striped = np.zeros((16, 16, 3), np.uint8)
    striped[:, 8:] = (250, 0, 120)
    for name, pixels in (("a.png", striped), ("b.png", striped[::-1, ::-1])):
        Image.fromarray(pixels).save(tmp_path / name)
    result = predict(run, tmp_path)
    assert result.exit_code == 0
    assert "2 of 2 fit no cluster" in result.stderr
    opened = open_run(run, trust_code=True)
    with pytest.warns(UserWarning, match="2 of 2 fit no cluster"):
        opened.predict(tmp_path)
    assert (
        "0 of 3 fit no cluster"
        in predict(run, *(f"new/bright{i}.png" for i in (0, 1)), "new/dark0.png").stderr
    )


def test_two_tables_of_another_program_are_compared(tmp_path):
    (tmp_path / "a.csv").write_text("file,group\nx.jpg,red\ny.jpg,red\nz.jpg,blue\n")
    (tmp_path / "b.csv").write_text("x.jpg;1\ny.jpg;1\nz.jpg;2\n")
    result = probagg("evaluate", tmp_path / "a.csv", "--labels", tmp_path / "b.csv", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["acc"] == 1.0
    assert [c["name"] for c in found["clusters"]] == ["blue", "red"]


def test_what_cannot_be_found_is_an_error(run):
    failed = predict(run, "new/dark0.png", "new/drak1.png")
    assert (failed.exit_code, "new/drak1.png is not a file. Did you mean" in failed.stderr) == (
        3,
        True,
    )
    failed = predict(run, "new", "photos")
    assert (failed.exit_code, "Name one folder, or files" in failed.stderr) == (3, True)


def test_a_moved_photo_stays_moved_among_several(run, home):
    reviewed = shutil.copytree(home / run, home / "reviewed", dirs_exist_ok=True)
    both = ["photos/dark0.png", "photos/dark1.png"]
    first = list(csv.DictReader(io.StringIO(predict(run, *both).stdout)))
    other = 1 - int(first[0]["cluster"])
    write_review(reviewed, Review(moved={"dark0.png": other}))
    again = list(csv.DictReader(io.StringIO(predict(reviewed, *both).stdout)))
    assert [int(row["cluster"]) for row in again] == [other, 1 - other]


def test_the_table_of_new_photos_is_evaluated(run, home):
    assert predict(run, "new", "--out", "new.csv", "--overwrite").exit_code == 0
    truth = ["path,photographer,class"]
    truth += [f"{path},me,{path.stem[:-1]}" for path in sorted((home / "new").rglob("*.png"))]
    (home / "truth.csv").write_text("\n".join(truth))
    result = probagg("evaluate", "new.csv", "--labels", "truth.csv", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["acc"], found["n_labelled"], found["classes"]) == (1.0, 6, ["bright", "dark"])
    failed = probagg("evaluate", "new.csv")
    assert (failed.exit_code, "without known classes" in failed.stderr) == (3, True)


def test_a_run_is_evaluated_by_absolute_paths_and_by_another_table(run, home):
    truth = [f"{path},{path.stem[:-1]}" for path in sorted((home / "photos").rglob("*.png"))]
    (home / "truth.csv").write_text("\n".join(truth))
    for labels in ("truth.csv", "run/assignments.csv"):
        result = probagg("evaluate", run, "--labels", labels, "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["acc"] == 1.0
