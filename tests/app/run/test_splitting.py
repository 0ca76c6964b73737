"""A cluster divided by PAC on the features of its members."""

from dataclasses import replace

import numpy as np
import pytest

from probagg.app.assignments import Assignments
from probagg.app.review import MAX_CREATED, Review, ReviewError
from probagg.app.run.contents import read_features
from probagg.app.run.folder import RunFolderError
from probagg.app.run.splitting import split_cluster


@pytest.fixture
def jumble():
    """Features of four kinds in two clusters: 0 holds kinds 0 and 1, 1 holds kinds 2 and 3."""
    rng = np.random.default_rng(0)
    kinds = np.repeat(np.arange(4), (30, 12, 20, 20))
    X = np.abs(rng.normal(0.0, 0.05, (82, 8)) + np.eye(4, 8)[kinds])
    P = np.where((kinds // 2)[:, None] == [0, 1], 0.75, 0.25)
    names = [f"{kind}-{i}.jpg" for i, kind in enumerate(kinds)]
    return X, kinds, Assignments.of(P, X, None, names, heading="path")


def add(review, split):
    return replace(review, splits=(*review.splits, split))


def same_partition(a, b):
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


def test_the_parts_of_a_jumbled_cluster_are_its_kinds(jumble):
    X, kinds, assigned = jumble
    split = split_cluster(X, assigned, 2, Review(), 0, 2)
    after = add(Review(), split).apply(assigned)
    assert split.parts == (2, 3)
    assert same_partition(after.cluster[kinds < 2], kinds[kinds < 2])
    np.testing.assert_array_equal(after.probability, assigned.probability)
    assert set(after.cluster[kinds > 1]) == {1}
    np.testing.assert_array_equal(after.second_cluster[kinds > 1], split.choose(X)[kinds > 1])


def test_new_samples_are_divided_by_the_rule_that_divided_the_members(jumble):
    X, _, assigned = jumble
    split = split_cluster(X, assigned, 2, Review(), 0, 2)
    chosen = split.choose(3.0 * X)  # the length of a feature vector does not matter
    assert dict(zip(assigned.names, chosen, strict=True)) == split.members
    P = np.tile([0.75, 0.25], (len(X), 1))
    new = add(Review(), split).apply(Assignments.of(P, X, None, assigned.names), [], X)
    np.testing.assert_array_equal(new.cluster, chosen)
    np.testing.assert_array_equal(new.probability, np.full(len(X), 0.75))


def test_merged_moved_and_split_samples_are_members_and_discarded_ones_are_not(jumble):
    X, kinds, assigned = jumble
    review = Review(merged={1: 0}, discarded=frozenset([assigned.names[0]]))
    first = split_cluster(X, assigned, 2, review, 0, 4)
    review = add(review, first)
    found = review.apply(assigned).cluster
    assert same_partition(found[1:], kinds[1:])
    assert found[0] == -1
    rest = replace(review, discarded=frozenset()).apply(assigned).cluster
    assert rest[0] == rest[1], "restored, it is where its kind is"
    again = split_cluster(X, assigned, 2, replace(review, merged={1: 0, 3: 2}), 2, 2)
    assert again.parts == (6, 7)


def test_a_part_can_be_split_again(jumble):
    X, _, assigned = jumble
    review = Review(merged={1: 0})
    review = add(review, split_cluster(X, assigned, 2, review, 0, 2))
    larger = max((2, 3), key=lambda k: (review.apply(assigned).cluster == k).sum())
    review = add(review, split_cluster(X, assigned, 2, review, larger, 3))
    assert Review.from_bytes(review.to_bytes(), 2) == review
    found = review.apply(assigned).cluster
    assert len(set(found)) == 4
    P = np.tile([0.5, 0.5], (82, 1))
    new = review.apply(Assignments.of(P, X, None, range(82)), [], X)
    np.testing.assert_array_equal(new.cluster, found)


@pytest.mark.parametrize(
    ("cluster", "n", "why"),
    [
        (0, 1, "into 2 to 5 parts, not 1"),
        (0, 6, "into 2 to 5 parts, not 6"),
        (0, "2", "into 2 to 5 parts, not 2"),
        (0, True, "not True"),
        (7, 2, "Cluster 7 is not one of the clusters"),
        (None, 2, "Cluster None is not one"),
        (2, 2, "cluster 2 has 1 members, too few for 2 parts"),
    ],
)
def test_what_cannot_be_split_says_why(jumble, cluster, n, why):
    X, _, assigned = jumble
    review = Review(created=(2,), moved={assigned.names[5]: 2})
    with pytest.raises(ReviewError, match=why):
        split_cluster(X, assigned, 2, review, cluster, n)


def test_members_that_are_all_alike_have_no_parts(jumble):
    X, _, assigned = jumble
    with pytest.raises(ReviewError, match="PAC finds fewer than 2 parts in cluster 0"):
        split_cluster(np.ones_like(X), assigned, 2, Review(), 0, 2)


def test_a_review_does_not_grow_without_end(jumble):
    X, _, assigned = jumble
    full = Review(created=tuple(range(2, MAX_CREATED + 1)))
    with pytest.raises(ReviewError, match="can add 1,000 clusters"):
        split_cluster(X, assigned, 2, full, 0, 2)


def test_features_of_other_samples_are_not_used(tmp_path, jumble):
    X, _, assigned = jumble
    assert read_features(tmp_path, 82) is None
    np.save(tmp_path / "embeddings.npy", X)
    assert read_features(tmp_path, 82).shape == X.shape
    with pytest.raises(RunFolderError, match=r"shape is \(82, 8\), but 81 rows are needed"):
        read_features(tmp_path, 81)
    split = split_cluster(X, assigned, 2, Review(), 0, 2)
    with pytest.raises(ReviewError, match="made on 8 features, but the samples have 5"):
        split.choose(X[:, :5])
