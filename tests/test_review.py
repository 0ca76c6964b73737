"""What a person changed, as data: merges, moves and names."""

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probagg.assignments import Assignments
from probagg.review import FORMAT, MAX_NAME, Review, ReviewError


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
    return Review(names, merged, moved)


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


def test_an_unnamed_cluster_is_called_by_its_number():
    review = Review(names={2: "cats"})
    assert [review.name_of(np.int64(2)), review.name_of(0)] == ["cats", "cluster 0"]


@given(reviews())
def test_a_review_comes_back_from_json_as_it_was(review):
    assert Review.from_json(json.loads(review.to_bytes()), 6) == review
    assert Review.from_bytes(review.to_bytes(), 6) == review


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
        ({"format": "probagg.review/9"}, 'An object with "format": "probagg.review/2" is needed'),
    ],
)
def test_a_broken_review_says_what_is_wrong(parts, why):
    with pytest.raises(ReviewError, match=why):
        parsed(**parts)


def test_names_are_one_clean_line():
    names = {"0": "  two\n lines\t", "1": "nul\0l\ud800", "2": " \n", "3": "é" * MAX_NAME}
    assert parsed(names=names).names == {0: "two lines", 1: "null", 3: "é" * MAX_NAME}
