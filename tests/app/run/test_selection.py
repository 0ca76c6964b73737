"""What to look at first, and what is most similar."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs

import probagg
from probagg.app.assignments import Assignments
from probagg.app.report.contents import Contents
from probagg.app.review import Review
from probagg.app.run.contents import write_review
from probagg.app.run.selection import look_first
from probagg.errors import InputError, NoData


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """300 rows around three centres, the first two of which touch."""
    centers = [[0.0, 0.0], [4.0, 0.0], [0.0, 30.0]]
    X, y = make_blobs(300, centers=centers, cluster_std=1.3, random_state=0)
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    pd.DataFrame(X, columns=["a", "b"]).to_csv(path, index=False)
    return path, X, y


@pytest.fixture
def run(rows, tmp_path):
    return probagg.cluster(rows[0], 3, out=tmp_path / "run", report=False, smooth=False, m=1.2)


def contents_of(P, X, representatives=None, review=None):
    table = Assignments.of(P, X, None, range(len(P)))
    return Contents(
        run=None, config={}, config_text="", env={}, result={},
        review=review or Review(), n_clusters=P.shape[1], assigned=table, classes=None,
        overlaps=[], all_profiles=None, candidates=[], skipped=[],
        representatives=representatives,
    )  # fmt: skip


def test_the_first_samples_are_typical_borderline_and_spread_in_turn(run):
    table, chosen = run.assignments, run.select(30)
    assert len(chosen) == len(set(chosen.names)) == 30
    assert set(chosen.cluster) == {0, 1, 2}
    margin = table.probability - table.second_probability
    least = [table.names[row] for row in np.argsort(margin, kind="stable")]
    assert chosen.names[1] == least[0], "the second is the most doubtful of all"
    assert len(set(chosen.names[:12]) & set(least[:8])) >= 4
    assert chosen.names == run.select(30).names


def test_the_most_typical_sample_of_every_cluster_is_among_the_first(run):
    table, chosen = run.assignments, run.select(9)
    for k in range(3):
        mine = np.flatnonzero((table.cluster == k) & (table.flag == ""))
        best = mine[np.lexsort((table.distance[mine], -table.probability[mine]))][0]
        assert table.names[best] in chosen.names


def test_a_run_whose_table_is_gone_spreads_over_distances(run, rows, tmp_path):
    path, _, _ = rows
    moved = path.rename(tmp_path / "elsewhere.csv")
    try:
        assert len(set(probagg.open_run(run.path).select(30).names)) == 30
    finally:
        moved.rename(path)


def test_all_samples_are_chosen_where_more_are_asked_for(run):
    assert sorted(map(int, run.select(1000).names)) == list(range(300))
    with pytest.raises(InputError, match="n is 0, but at least 1"):
        run.select(0)


def test_spread_samples_cover_groups_that_probabilities_do_not_show():
    """One cluster has a far corner of ten rows: as certain as the others, and never seen else."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal((1, 0), 0.01, (290, 2)), rng.normal((0, 1), 0.01, (10, 2))])
    P = np.column_stack([np.ones(300), np.zeros(300)])
    P[:290] -= rng.uniform(0, 0.1, 290)[:, None] * [1, -1]
    contents = contents_of(P, X)
    assert set(look_first(contents, X, 12)) & set(range(290, 300))


def test_only_one_of_near_duplicates_is_chosen_and_none_that_a_person_decided():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    P = rng.dirichlet(np.ones(3), 40)
    first = np.arange(40) // 2 * 2
    review = Review(moved={"0": 1}, discarded=frozenset(["2"]))
    found = look_first(contents_of(P, X, first, review), X, 40)
    assert sorted(found) == list(range(4, 40, 2))


def test_the_most_similar_rows_are_the_nearest_ones(run, rows):
    _, X, _ = rows
    found = run.similar("7", 5)
    distances = np.linalg.norm(X - X[7], axis=1)
    assert found.names == [str(row) for row in np.argsort(distances)[1:6]]
    np.testing.assert_allclose(found.distance, np.sort(distances)[1:6], rtol=1e-5)
    new = run.similar(pd.DataFrame(X[7:8] + 1e-6, columns=["a", "b"]), 3)
    assert new.names == ["7", *found.names[:2]]
    np.testing.assert_array_equal(
        found.cluster, run.assignments.cluster[[int(name) for name in found.names]]
    )


def test_similar_needs_one_sample_and_rows_that_can_be_read(run, rows, tmp_path):
    _, X, _ = rows
    with pytest.raises(InputError, match="has 2 rows, but one is needed"):
        run.similar(pd.DataFrame(X[:2], columns=["a", "b"]))
    with pytest.raises(InputError, match="n is 0"):
        run.similar("7", 0)
    memory = probagg.cluster(X, 3, out=tmp_path / "memory", report=False)
    assert len(memory.similar("7")) == 20
    with pytest.raises(NoData, match="were in memory and are not in its folder"):
        probagg.open_run(memory.path).similar("7")


def test_a_review_changes_what_is_shown_of_similar_rows(run):
    name = run.similar("7", 1).names[0]
    write_review(run.path, Review(discarded=frozenset([name])))
    assert run.similar("7", 1).cluster.tolist() == [-1]
