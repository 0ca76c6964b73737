"""The files of a run, read from its folder."""

import json

import numpy as np
import pytest

from probagg.app.assignments import Assignments
from probagg.app.review import FORMAT, Review, ReviewError
from probagg.app.run.contents import read_contents, read_review, write_review
from probagg.app.run.folder import RunFolderError


@pytest.fixture
def run(tmp_path):
    (tmp_path / "result.json").write_text('{"n_clusters": 5}')
    return tmp_path


@pytest.fixture
def matrix_run(run):
    """The files that a page cannot do without."""
    P = np.eye(5)[[0, 1, 1]]
    (run / "config.toml").write_text('source = "rows.npy"\nmethod = "pac"\nkind = "matrix"\n')
    (run / "assignments.csv").write_text(Assignments.of(P, P, None, range(3)).to_csv())
    return run


def test_a_review_comes_back_from_its_file_as_it_was(run):
    """A file name need not be valid UTF-8: Python holds such bytes as lone surrogates."""
    review = Review({0: "Katzen 猫 🐱"}, {3: 1}, {"a\udcff/ü\n.jpg": 2, "__proto__": 4})
    write_review(run, review)
    assert read_review(run) == review
    assert "猫" in (run / "review.json").read_text(errors="replace"), "a person can read it"
    assert sorted(path.name for path in run.iterdir()) == ["result.json", "review.json"]


def test_without_a_file_nothing_is_changed(run):
    assert not read_review(run)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000])
def test_a_file_that_is_not_a_review_is_refused(run, content):
    (run / "review.json").write_bytes(content)
    with pytest.raises(ReviewError, match=r"is not a review of this run: .*\. Correct it, or rem"):
        read_review(run)


def test_a_review_of_another_run_says_what_is_wrong_and_what_to_do(run):
    (run / "review.json").write_text(json.dumps({"format": FORMAT, "merged": {"7": 1}}))
    with pytest.raises(ReviewError, match=r'review\.json is not a .*Cluster "7".*Correct it'):
        read_review(run)


def test_a_run_without_its_number_of_clusters_is_refused(tmp_path):
    write_review(tmp_path, Review(names={0: "x"}))
    with pytest.raises(RunFolderError, match=r"result\.json does not give the number of clusters"):
        read_review(tmp_path)


def test_a_folder_that_is_not_a_run_is_refused_in_one_line(tmp_path):
    with pytest.raises(RunFolderError, match=r"has no config\.toml. Give the folder of a finished"):
        read_contents(tmp_path)


def test_only_three_files_are_needed(matrix_run):
    contents = read_contents(matrix_run)
    assert contents.sizes == {0: 1, 1: 2, 2: 0, 3: 0, 4: 0}
    assert (contents.profiles, contents.pairs) == (None, [])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", "a = "),
        ("env.json", "{"),
        ("overlaps.csv", "first,second,mean_probability,samples\n0,9,0.1,3\n"),
        ("profiles.csv", "cluster,column,mean\n0,a,1\n"),
        ("cells.csv", "place,column,cell\n1000000,a,1\n"),
    ],
)
def test_a_damaged_file_is_named(matrix_run, name, content):
    (matrix_run / name).write_text(content)
    with pytest.raises(RunFolderError, match=rf"{name} cannot be read \(.*\. Restore it, or run"):
        read_contents(matrix_run)
