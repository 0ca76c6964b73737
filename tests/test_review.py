"""What a person changed, as data: merges, moves and names, and the file they are kept in."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probagg.review import FORMAT, MAX_NAME, Review, ReviewError


@pytest.fixture
def run(tmp_path):
    (tmp_path / "result.json").write_text('{"n_clusters": 5}')
    return tmp_path


def saved(run, **parts):
    content = {"format": FORMAT, **parts}
    (run / "review.json").write_text(json.dumps(content))
    return run


@st.composite
def reviews(draw, K=6):
    """Merges without a circle: each goes to a cluster later in a random order."""
    order = draw(st.permutations(range(K)))
    merged = {}
    for place, k in enumerate(order[:-1]):
        if draw(st.booleans()):
            merged[k] = draw(st.sampled_from(order[place + 1 :]))
    names = draw(st.dictionaries(st.integers(0, K - 1), st.text("aé猫 ", min_size=1, max_size=5)))
    moved = draw(st.dictionaries(st.text(max_size=4), st.integers(0, K - 1), max_size=5))
    names = {k: " ".join(name.split()) for k, name in names.items() if name.strip()}
    return Review(names, merged, moved)


def test_a_chain_of_merges_ends_at_the_last_survivor():
    review = Review(merged={0: 1, 1: 2, 4: 1})
    np.testing.assert_array_equal(review.groups(5), [2, 2, 2, 3, 2])


@given(reviews())
def test_survivors_survive_and_nothing_else_does(review):
    groups = review.groups(6)
    np.testing.assert_array_equal(groups[groups], groups)
    assert {k for k in range(6) if groups[k] == k} == set(range(6)) - review.merged.keys()


@pytest.mark.parametrize("merged", [{1: 1}, {0: 1, 1: 0}, {0: 1, 1: 2, 2: 3, 3: 1}])
def test_a_circle_of_merges_is_refused(merged):
    with pytest.raises(ReviewError, match=r"circle: .* Take one of them back"):
        Review(merged=merged).groups(5)


def test_merges_of_another_run_are_refused():
    with pytest.raises(ReviewError, match="Cluster 7 is merged, but there are 5 clusters"):
        Review(merged={7: 1}).groups(5)


@given(reviews(), st.integers(0, 2**32 - 1))
def test_probabilities_move_to_the_survivor_and_none_is_lost(review, seed):
    P = np.random.default_rng(seed).dirichlet(np.ones(6), size=4)
    merged = review.apply(P)
    groups = review.groups(6)
    assert merged.shape == P.shape
    np.testing.assert_allclose(merged.sum(axis=1), 1.0)
    for k in range(6):
        np.testing.assert_allclose(merged[:, k], P[:, groups == k].sum(axis=1))


def test_apply_leaves_its_input_and_the_kind_of_numbers_alone():
    P = np.array([[0.2, 0.8]], dtype=np.float32)
    merged = Review(merged={0: 1}).apply(P)
    assert merged.dtype == np.float32
    np.testing.assert_array_equal(P, np.float32([[0.2, 0.8]]))
    np.testing.assert_allclose(merged, [[0.0, 1.0]])


def test_a_move_wins_over_a_merge_and_follows_its_target():
    review = Review(merged={0: 1, 3: 4}, moved={"a": 2, "b": 3, "7": 1})
    labels = review.relabel(["a", "b", "c", 7], [0, 0, 0, 2])
    np.testing.assert_array_equal(labels, [2, 4, 1, 1])
    np.testing.assert_array_equal(Review().relabel([], []), [])


def test_an_unnamed_cluster_is_called_by_its_number():
    review = Review(names={2: "cats"})
    assert [review.name_of(np.int64(2)), review.name_of(0)] == ["cats", "cluster 0"]


@given(reviews())
def test_a_review_comes_back_from_json_as_it_was(review):
    assert Review.from_json(json.loads(review.to_bytes()), 6) == review


def test_a_review_comes_back_from_its_file_as_it_was(run):
    """A file name need not be valid UTF-8: Python holds such bytes as lone surrogates."""
    review = Review({0: "Katzen 猫 🐱"}, {3: 1}, {"a\udcff/ü\n.jpg": 2, "__proto__": 4})
    review.write(run)
    assert Review.read(run) == review
    assert "猫" in (run / "review.json").read_text(errors="replace"), "a person can read it"
    assert sorted(path.name for path in run.iterdir()) == ["result.json", "review.json"]


def test_without_a_file_nothing_is_changed(run):
    review = Review.read(run)
    assert not review
    np.testing.assert_array_equal(review.groups(3), [0, 1, 2])


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"merged": {"5": 1}}, r'Cluster "5" is none of the run\'s 5 clusters, 0 to 4'),
        ({"moved": {"a.jpg": -1}}, "Cluster -1 is none"),
        ({"moved": {"a.jpg": True}}, "Cluster true is none"),
        ({"moved": {"a.jpg": 1.0}}, r"Cluster 1\.0 is none"),
        ({"names": {"01": "x"}}, 'Cluster "01" is none'),
        ({"names": {"1": 7}}, "A name must be text, not 7"),
        ({"names": {"1": "x" * 81}}, "A name has 81 characters; 80 is the most"),
        ({"names": ["cats"]}, r'"names" must be an object, not \["cats"\]'),
        ({"merged": {"1": 2, "2": 1}}, "circle"),
        ({"format": "probagg.review/9"}, 'An object with "format": "probagg.review/1" is needed'),
    ],
)
def test_a_broken_review_says_what_is_wrong_and_what_to_do(run, parts, why):
    with pytest.raises(ReviewError, match=rf"review.json is no review of this run: .*{why}.*Mend"):
        Review.read(saved(run, **parts))


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000])
def test_a_file_that_is_no_review_is_told_from_one(run, content):
    (run / "review.json").write_bytes(content)
    with pytest.raises(ReviewError, match="is no review of this run"):
        Review.read(run)


def test_a_run_that_does_not_say_its_clusters_is_told(tmp_path):
    Review(names={0: "x"}).write(tmp_path)
    with pytest.raises(ReviewError, match=r"result\.json does not say how many clusters"):
        Review.read(tmp_path)


def test_names_are_one_clean_line(run):
    names = {"0": "  two\n lines\t", "1": "nul\0l\ud800", "2": " \n", "3": "é" * MAX_NAME}
    review = Review.read(saved(run, names=names))
    assert review.names == {0: "two lines", 1: "null", 3: "é" * MAX_NAME}
