"""Runs made from runs: what a review teaches, and what new samples bring."""

import json
import shutil

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import probagg
from probagg.app.assignments import Assignments
from probagg.app.review import Review, Split
from probagg.app.run.contents import write_review
from probagg.app.run.folder import RunFolderError
from probagg.app.run.learning import Changes, apart, beside, known_labels_of, refit
from probagg.errors import InputError, NoData


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows of four groups, the first two of which nearly touch, as a file."""
    centers = [[0.0, 0.0], [5.0, 0.0], [0.0, 40.0], [40.0, 0.0]]
    X, y = make_blobs([60, 60, 60, 60], centers=centers, cluster_std=1.5, random_state=0)
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, X)
    return path, X, y


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "rows"
    return probagg.cluster(data[0], 4, out=out, report=False, labels=data[2])


@pytest.fixture
def run(made, tmp_path):
    return probagg.open_run(shutil.copytree(made.path, tmp_path / "rows"))


def cluster_of(run, y, group):
    """The number of the cluster in which most rows of a group are."""
    return int(np.bincount(run.assignments.cluster[y == group]).argmax())


def names_in(run, k):
    return [str(row) for row in np.flatnonzero(run.assignments.cluster == k)]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- refine


def test_a_refined_run_keeps_moves_numbers_and_names_and_the_old_run_stays(run, data):
    _, _, y = data
    first, second = (cluster_of(run, y, group) for group in (0, 1))
    names = names_in(run, first)
    write_review(run.path, Review(names={first: "left"}, moved=dict.fromkeys(names[:3], second)))
    before, old = contents(run.path), run.assignments
    new = run.refine(report=False)
    assert new.path == run.path.with_name("rows-refined")
    assert contents(run.path) == before
    table = new.assignments
    rows = [table.names.index(name) for name in names[:3]]
    assert (table.cluster[rows] == second).all()
    assert (table.cluster == old.cluster).mean() > 0.9
    assert new.review.names == {first: "left"}
    assert new.config["parent"] == str(run.path)
    assert new.result["n_clusters"] == 4
    assert new.result["acc"] > 0.9
    assert new.result["refined"]["n_known"] == 3
    again = new.predict(np.load(data[0]))
    assert (again["cluster"] == table.cluster).mean() > 0.97


def test_corrections_are_known_in_the_next_refinement_too(run, data):
    target = cluster_of(run, data[2], 2)
    write_review(run.path, Review(moved={"0": target}))
    new = run.refine(report=False)
    assert new.assignments.cluster[0] == target
    write_review(new.path, Review(new.review.names, {}, new.review.moved | {"1": target}))
    newer = new.refine(report=False)
    assert newer.path.name == "rows-refined-2"
    assert (newer.assignments.cluster[:2] == target).all()


def test_the_parts_of_a_split_are_clusters_and_its_number_is_not_used_again(run, data):
    _, X, y = data
    a, b = (cluster_of(run, y, group) for group in (0, 2))
    merge = Review(merged={a: b})
    mine = merge.apply(run.assignments).cluster == b
    halves = np.where(X[:, 1] < 20, 4, 5)
    members = {str(row): int(halves[row]) for row in np.flatnonzero(mine)}
    means = np.array([[1.0, 0.0], [0.0, 1.0]], "<f4")
    split = Split(b, (4, 5), members, means.tobytes(), (0.5, 0.5), (0.1, 0.1))
    write_review(run.path, Review({b: "whole", 4: "low"}, {a: b}, splits=(split,)))
    new = run.refine(report=False)
    table = new.assignments
    assert set(np.unique(table.cluster)) == {*range(4)} - {a, b} | {4, 5}
    np.testing.assert_array_equal(table.cluster[mine] == 4, X[mine, 1] < 20)
    assert not new.review.splits
    assert new.review.name_of(4) == "low"
    assert new.n_clusters == 6
    found = new.predict(X)
    assert (found["cluster"] == table.cluster).all(), "the model has no row in a or b"
    assert a not in new.review.clusters(6)
    assert b not in new.review.clusters(6)


def test_merged_clusters_stay_merged_and_keep_their_members(run, data):
    _, X, y = data
    a, b = (cluster_of(run, y, group) for group in (2, 3))
    write_review(run.path, Review(merged={a: b}))
    new = run.refine(report=False)
    assert (new.assignments.cluster == run.assignments.cluster).mean() > 0.98
    assert new.review.merged == {a: b}
    assert set(new.predict(X[y == 2])["cluster"]) == {b}


def test_a_new_cluster_of_moved_samples_is_found_in_others_and_discarded_ones_do_not_count(
    run, data
):
    _, X, y = data
    own = cluster_of(run, y, 3)
    rows = np.flatnonzero((y == 3) & (X[:, 1] > 0))
    moved = {str(row): 4 for row in rows[:20]}
    review = Review(moved=moved, created=(4,), discarded=frozenset(["0", "1"]))
    write_review(run.path, review)
    new = run.refine(report=False)
    table = new.assignments
    assert (table.cluster[rows[:20]] == 4).all()
    assert (table.cluster[:2] == -1).all()
    free = rows[20:]
    assert (table.cluster[free] == 4).mean() > 0.5, "the others of the group follow"
    assert own in table.cluster
    assert new.predict(X[rows[:5]])["cluster"].tolist() == [4] * 5, "new samples go there"


def test_there_must_be_something_to_learn_and_a_place_for_it(run, data, tmp_path):
    with pytest.raises(InputError, match="holds no moves, merges, splits or discarded"):
        run.refine()
    write_review(run.path, Review(names={0: "only a name"}))
    with pytest.raises(InputError, match="holds no moves"):
        run.refine()
    write_review(run.path, Review(moved={"0": 1}))
    with pytest.raises(InputError, match="is the run itself"):
        run.refine(out=run.path, overwrite=True)
    new = run.refine(out=tmp_path / "other", report=False)
    with pytest.raises(RunFolderError, match="holds a finished run"):
        run.refine(out=new.path)
    assert run.refine(out=new.path, overwrite=True, report=False).path == new.path


def test_rows_that_are_gone_and_metrics_without_moments_are_refused(data, tmp_path):
    _, X, _ = data
    memory = probagg.cluster(X, 4, out=tmp_path / "memory", report=False)
    write_review(memory.path, Review(moved={"0": 1}))
    assert memory.refine(report=False).assignments.cluster[0] == 1
    with pytest.raises(NoData, match="were in memory"):
        probagg.open_run(memory.path).refine()
    other = probagg.cluster(X, 4, out=tmp_path / "l1", metric="manhattan", report=False)
    write_review(other.path, Review(moved={"0": 1}))
    with pytest.raises(InputError, match="metric 'manhattan', but refine fits PAC with sqeucl"):
        other.refine()


def test_the_page_shows_what_changed(run, data):
    first, second = (cluster_of(run, data[2], group) for group in (0, 1))
    names = names_in(run, first)
    write_review(run.path, Review(moved=dict.fromkeys(names[:20], second)))
    new = run.refine()
    page = (new.path / "report.html").read_text()
    assert "20 rows were moved by hand and kept their cluster" in page
    flows = new.result["refined"]["flows"]
    assert flows
    assert f"{flows[0][2]} from" in page
    lines = (new.path / "changes.csv").read_text().splitlines()
    assert lines[0] == "name,before,after"
    assert len(lines) == 1 + new.result["refined"]["n_changed"]
    assert json.loads((new.path / "result.json").read_text())["parent"] == str(run.path)


# ---- its parts


def test_a_run_made_from_another_has_its_name_and_a_word(tmp_path):
    assert beside(tmp_path / "photos", "refined").name == "photos-refined"
    assert beside(tmp_path / "photos-updated-3", "refined").name == "photos-refined"
    assert beside(tmp_path / "photos-20261118-120000", "updated").name == (
        "photos-20261118-120000-updated"
    )


def test_known_labels_are_moves_and_the_most_typical_of_each_cluster():
    P = np.array([[0.9, 0.1]] * 2 + [[0.8, 0.2]] * 6 + [[0.1, 0.9]])
    table = Assignments.of(P, P, None, range(9))
    known = known_labels_of(
        table.move(np.where(np.arange(9) == 7, 1, table.cluster)), {"7": 1}, 0.3
    )
    assert known.tolist() == [0, 0, -1, -1, -1, -1, -1, 1, 1]


def test_numbers_without_samples_stay_empty_in_every_model(data, tmp_path):
    """Between, before and after the others; far away too, where an empty cluster would score 0."""
    _, X, y = data
    known = np.where(np.arange(len(X)) % 10 == 0, np.array([1, 3, 4, 6])[y], -1)
    far = np.vstack([X, 1e4 * X, np.zeros((1, 2))])
    for smooth in (False, True):
        for balance in (0.0, 1.0, 2.0):
            params = {"m": 1.03, "balance": balance, "random_state": 0}
            model, P = refit(X, known, 8, params, smooth, np.arange(len(X)))
            assert P.shape == (len(X), 8)
            assert set(P.argmax(1)) == {1, 3, 4, 6}
            model.save(tmp_path / "model.safetensors")
            loaded = type(model).load(tmp_path / "model.safetensors")
            assert set(loaded.predict(far)) <= {1, 3, 4, 6}
            np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_neighbours_that_come_along_are_counted_once():
    X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
    before, after = np.array([1, 0, 0, 0, 0]), np.array([1, 1, 0, 0, 0])
    found = Changes.of(before, after, np.array([0]), X, "sqeuclidean")
    assert (found.neighbours, found.followed, found.rows.tolist()) == (4, 1, [1])
    assert found.facts()["flows"] == [[0, 1, 1]]


def test_merges_into_what_was_split_later_are_part_of_the_split():
    P = np.eye(4)[[0, 1, 2, 3]]
    table = Assignments.of(P, P, None, range(4))
    means = np.zeros((2, 4), "<f4").tobytes()
    split = Split(1, (4, 5), {"0": 5, "1": 4}, means, (1.0, 1.0), (1.0, 1.0))
    review = Review({1: "a"}, {0: 1, 3: 2}, {"2": 5}, splits=(split,))
    found, left = apart(review, table, 4)
    assert found.cluster.tolist() == [5, 4, 5, 3]
    assert left.merged == {0: 4, 3: 2, 1: 4}
    assert left.moved == {"2": 5}
    assert left.clusters(6) == [2, 4, 5]
    assert Review.from_json(left.to_json(), 6) == left
