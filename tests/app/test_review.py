"""What a person changed, as data: merges, splits, moves, discarded samples and names."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import regions

import probagg
from probagg.app.assignments import Assignments, Further
from probagg.app.review import FORMAT, MAX_NAME, Review, ReviewError, Split
from probagg.app.run.contents import read_contents, write_review


def divided(cluster, parts, members):
    """Return a split by the sign of the first of two features."""
    mean = np.array([[1.0, 0.0], [-1.0, 0.0]], "<f4").tobytes()
    return Split(cluster, parts, members, mean, (0.5, 0.5), (0.0, 0.0))


@st.composite
def reviews(draw, K=6):
    """Draw merges without a cycle: each goes to a cluster later in a random order."""
    order = draw(st.permutations(range(K)))
    merged = {}
    for place, k in enumerate(order[:-1]):
        if draw(st.booleans()):
            merged[k] = draw(st.sampled_from(order[place + 1 :]))
    names = draw(st.dictionaries(st.integers(0, K - 1), st.text("aé猫 ", min_size=1, max_size=5)))
    moved = draw(st.dictionaries(st.text(max_size=4), st.integers(0, K - 1), max_size=5))
    names = {k: " ".join(name.split()) for k, name in names.items() if name.strip()}
    created = tuple(range(K, K + draw(st.integers(0, 2))))
    splits, free = [], K + len(created)
    for cluster in [k for k in order if k not in merged][: draw(st.integers(0, 2))]:
        members = draw(
            st.dictionaries(st.sampled_from("abcdefghi"), st.sampled_from([free, free + 1]))
        )
        splits.append(divided(cluster, (free, free + 1), members))
        free += 2
    discarded = draw(st.frozensets(st.sampled_from("abcdefghi"), max_size=3))
    return Review(names, merged, moved, created, tuple(splits), discarded)


def table(names, labels, n_clusters=5):
    """Return assignments with all probability on one cluster."""
    P = np.eye(n_clusters)[labels]
    return Assignments.of(P, P, None, names, heading="path")


def parsed(n_clusters=5, **parts):
    return Review.from_json({"format": FORMAT, **parts}, n_clusters)


def test_a_chain_of_merges_ends_at_the_last_survivor():
    review = Review(merged={0: 1, 1: 2, 4: 1})
    np.testing.assert_array_equal(review.groups(5), [2, 2, 2, 3, 2])


@given(reviews())
def test_survivors_survive_and_nothing_else_does(review):
    groups = review.groups(6)
    np.testing.assert_array_equal(groups[groups], groups)
    assert {k for k in range(6) if groups[k] == k} == set(range(6)) - review.merged.keys()
    left = set(review.clusters(6))
    assert set(groups) - left == {split.cluster for split in review.splits}


@pytest.mark.parametrize("merged", [{1: 1}, {0: 1, 1: 0}, {0: 1, 1: 2, 2: 3, 3: 1}])
def test_a_cycle_of_merges_is_refused(merged):
    with pytest.raises(ReviewError, match=r"cycle: .* Undo one of them"):
        Review(merged=merged).groups(5)


def test_merges_of_another_run_are_refused():
    with pytest.raises(ReviewError, match="Cluster 7 is merged, but there are 5 clusters"):
        Review(merged={7: 1}).groups(5)


@given(reviews(), st.integers(0, 2**32 - 1))
def test_applying_a_review_twice_changes_nothing_more(review, seed):
    """Predictions are merged before the review is applied to them."""
    P = np.random.default_rng(seed).dirichlet(np.ones(6), size=9)
    once = review.apply(Assignments.of(P, P, None, "abcdefghi", heading="path"))
    twice = review.apply(once)
    for column in once:
        np.testing.assert_array_equal(once[column], twice[column])


def test_a_move_wins_over_a_merge_and_follows_its_target():
    review = Review(merged={0: 1, 3: 4}, moved={"a": 2, "b": 3, "7": 1})
    applied = review.apply(table(["a", "b", "c", "7"], [0, 0, 0, 2]))
    np.testing.assert_array_equal(applied.cluster, [2, 4, 1, 1])


def test_moves_apply_only_to_samples_of_the_run():
    review = Review({1: "one"}, moved={"a": 1})
    new = table(["a"], [0])
    assert review.apply(new).cluster == [1]
    assert review.apply(new, names=["folder/a"]).cluster == [0]
    assert review.apply(new, names=[]).cluster == [0]
    assert review.apply(new, names=[]).to_csv().startswith("path,cluster,")


def test_a_table_after_a_review_has_the_names_of_its_clusters():
    applied = Review(names={1: "cats"}, merged={0: 1}).apply(table("ab", [0, 2]))
    assert applied["name"].tolist() == ["cats", ""]
    assert applied.to_csv().splitlines()[0].endswith(",flag,name")
    assert "name" not in Review(merged={0: 1}).apply(table("ab", [0, 2]))


def test_two_hundred_thousand_moves_are_read_and_applied_in_two_seconds():
    names = [f"{i}.jpg" for i in range(200_000)]
    value = {"format": FORMAT, "moved": {name: i % 1000 for i, name in enumerate(names)}}
    merged = {str(k): k + 1 for k in range(999)}  # a chain as long as it can be
    assigned = table(names[:1], [0], 1000)
    assigned = Assignments(
        names, *(np.repeat(assigned[column], len(names)) for column in list(assigned)[1:])
    )
    began = time.perf_counter()
    review = Review.from_json(value | {"merged": merged}, 1000)
    assert set(review.apply(assigned).cluster) == {999}
    assert time.perf_counter() - began < 2


@given(reviews(), st.integers(0, 2**32 - 1))
def test_every_sample_ends_in_a_cluster_that_is_left_or_is_discarded(review, seed):
    P = np.random.default_rng(seed).dirichlet(np.ones(6), size=9)
    after = review.apply(Assignments.of(P, P, None, "abcdefghi", heading="path"))
    assert set(after.cluster) <= {-1, *review.clusters(6)}
    gone = np.isin(list("abcdefghi"), list(review.discarded))
    np.testing.assert_array_equal(after.cluster == -1, gone)
    np.testing.assert_array_equal(after.flag == "discarded", gone)


@given(reviews(), st.integers(0, 2**32 - 1))
def test_new_samples_share_all_probability_among_the_clusters_that_are_left(review, seed):
    """A split divides its cluster: what a sample gives to the cluster, it gives to one part."""
    rng = np.random.default_rng(seed)
    P, X = rng.dirichlet(np.ones(6), size=9), rng.normal(size=(9, 2))
    found = regions(review, 6, X)
    table = Assignments.of(P, X, None, range(9))
    table = review.apply(replace(table, further=Further.of(P, table)), [], X)
    assert set(table.cluster) <= set(review.clusters(6)) - set(review.created)
    for row in range(9):
        shares = {k: P[row, found[row] == k].sum() for k in set(found[row])}
        assert table.probability[row] == pytest.approx(max(shares.values()))
        assert shares[table.cluster[row]] == pytest.approx(max(shares.values()))


def test_an_unnamed_cluster_is_called_by_its_number():
    review = Review(names={2: "cats"})
    assert [review.name_of(np.int64(2)), review.name_of(0)] == ["cats", "cluster 0"]


@given(reviews())
def test_a_review_comes_back_from_json_as_it_was(review):
    assert Review.from_json(json.loads(review.to_bytes()), 6) == review
    assert Review.from_bytes(review.to_bytes(), 6) == review


def split_json(**changes):
    return {"splits": [divided(0, (5, 6), {"a": 5}).to_json() | changes]}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"merged": {"5": 1}}, r'Cluster "5" is not one of the run\'s 5 clusters, 0 to 4'),
        ({"moved": {"a.jpg": -1}}, "Cluster -1 is not one"),
        ({"moved": {"a.jpg": True}}, "Cluster true is not one"),
        ({"moved": {"a.jpg": 1.0}}, r"Cluster 1\.0 is not one"),
        ({"moved": {"a.jpg": [1]}}, r"Cluster \[1\] is not one"),
        ({"names": {"01": "x"}}, 'Cluster "01" is not one'),
        ({"names": {"1": 7}}, "A name must be text, not 7"),
        ({"names": {"1": "x" * 81}}, "A name has 81 characters; at most 80 are allowed"),
        ({"names": ["cats"]}, r'"names" must be an object, not \["cats"\]'),
        ({"merged": {"1": 2, "2": 1}}, "cycle"),
        ({"created": 5}, '"created" must be a list, not 5'),
        ({"created": [4]}, "A new cluster has the number 4, but 5 to 1004 are allowed"),
        ({"created": [10**9]}, "but 5 to 1004 are allowed"),
        ({"created": ["5"]}, "A new cluster has the number"),
        ({"created": [5, 5]}, "Two new clusters have the same number"),
        ({"moved": {"a": 6}, "created": [5]}, "Cluster 6 is not one .* or of the 1 that"),
        ({"discarded": [3]}, '"discarded" must be a list of names'),
        ({"splits": [7]}, "A split must be an object, not 7"),
        (split_json(parts=[5]), "A split has 2 to 5 parts, not 1"),
        (split_json(parts=[5, "6"]), "The clusters of a split must be numbers"),
        (split_json(parts=[5, 5]), "Two new clusters have the same number"),
        (split_json(cluster=9), "Cluster 9 is not one"),
        (split_json(members={"a": 1}), "A member of a split is in 1, not in"),
        (split_json(weight=[0.5, 0]), "A weight of a split is not positive"),
        (split_json(weight=[0.5]), '"weight" of a split must be 2 numbers'),
        (split_json(spread=[0.5, float("nan")]), '"spread" of a split must be 2 numbers'),
        (split_json(mean="%%"), '"mean" of a split cannot be read'),
        (split_json(mean=None), '"mean" of a split cannot be read'),
        (split_json(mean=""), '"mean" of a split has no numbers'),
        (split_json(mean="AADAfwAAwH8="), '"mean" of a split has no numbers, or numbers out of'),
        (split_json() | {"merged": {"0": 1}}, "Cluster 0 is split, and split or merged before"),
        (split_json() | {"merged": {"5": 1, "1": 0}}, "A part of cluster 0 is merged into a cl"),
        ({"format": "probagg.review/9"}, 'An object with "format": "probagg.review/2" is needed'),
    ],
)
def test_a_broken_review_says_what_is_wrong(parts, why):
    with pytest.raises(ReviewError, match=why):
        parsed(**parts)


def test_names_are_one_clean_line():
    names = {"0": "  two\n lines\t", "1": "nul\0l\ud800", "2": " \n", "3": "é" * MAX_NAME}
    assert parsed(names=names).names == {0: "two lines", 1: "null", 3: "é" * MAX_NAME}


def test_after_a_merge_the_table_and_predict_agree(tmp_path):
    """A merge adds up probabilities of third and further clusters too."""
    rng = np.random.default_rng(0)
    centres = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (2, 0)]
    X = np.concatenate([rng.normal(size=(60, 2)) + 3.0 * np.array(c) for c in centres])
    run = probagg.cluster(X, 6, m=1.3, smooth=False, out=tmp_path / "run", report=False)
    before = run.assignments.cluster
    n_changed = 0
    for merged in ({1: 0}, {1: 0, 2: 0}, {5: 3, 4: 3}, {1: 0, 2: 0, 3: 0, 4: 0}):
        review = Review(merged=merged)
        write_review(run.path, review)
        table, again = run.assignments, run.predict(X)
        np.testing.assert_array_equal(table.cluster, again.cluster)
        np.testing.assert_array_equal(table.flag, again.flag)
        np.testing.assert_allclose(table.probability, again.probability, atol=1e-4)
        np.testing.assert_array_equal(read_contents(run.path).samples.cluster, table.cluster)
        n_changed += (table.cluster != review.groups(6)[before]).sum()
    assert n_changed >= 5
