"""Joined parts: clusters that are not compact, found without labels; compact ones stay."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs, make_circles, make_moons

from probagg import PAC, clustering_accuracy
from probagg.neighbours.joining import count_edges, join, refine, without_themselves
from probagg.neighbours.smoothing import Smoothing


def found(X, K, balance=1.0):
    """Return PAC's labels, those after smoothing, and why."""
    pac = PAC(K, m="auto", balance=balance, random_state=0).fit(X)
    equal = float(pac.balance_) >= 1.0
    smoothing, P = Smoothing.fit(X, pac.probabilities_, metric="sqeuclidean", equal=equal)
    return pac.labels_, P.argmax(1), smoothing.reason


@pytest.mark.parametrize("make", [make_moons, make_circles])
def test_moons_and_rings_are_joined(make):
    X, y = make(
        1000, noise=0.05, random_state=0, **({"factor": 0.4} if make is make_circles else {})
    )
    plain, joined, reason = found(X, 2)
    assert clustering_accuracy(y, plain) < 0.9
    assert clustering_accuracy(y, joined) > 0.99
    assert reason.startswith("joined parts: ")


def test_joined_parts_of_digits_are_better_by_ten_points():
    X, y = load_digits(return_X_y=True)
    plain, joined, _ = found(X, 10)
    assert clustering_accuracy(y, joined) > clustering_accuracy(y, plain) + 0.1


def test_compact_clusters_stay_those_of_pac():
    X, y = make_blobs(2000, 2, centers=5, cluster_std=2.5, random_state=3)
    plain, kept, reason = found(X, 5)
    assert reason.startswith("PAC's clusters: ")
    assert clustering_accuracy(plain, kept) > 0.97
    assert abs(clustering_accuracy(y, plain) - clustering_accuracy(y, kept)) < 0.01


def test_sizes_that_differ_are_found_beside_a_random_category():
    """The graph has a part for each group and category: the compact answer is taken."""
    X, y = make_blobs([3500, 1000, 350, 150], 5, random_state=1, center_box=(-10, 10))
    X = (X - X.mean(0)) / X.std(0)
    kinds = np.random.default_rng(0).integers(4, size=5000)
    X = np.hstack([X, np.eye(4)[kinds]])
    assert clustering_accuracy(y, found(X, 4, "auto")[1]) > 0.97


def test_a_joined_group_is_connected():
    """Two chains of parts: each becomes a group where sizes cost little."""
    chain = np.diag([4.0] * 6, 1) + np.diag([4.0] * 6, -1) + np.diag([9.0] * 7)
    edges = np.kron(np.eye(2), chain)
    for cost in (None, 0.2):
        groups = join(edges, 2, cost)
        assert (groups[:7] == groups[0]).all()
        assert (groups[7:] == groups[7]).all()
        assert groups[0] != groups[7]


@pytest.mark.parametrize("cost", [0.5, 1.0, 3.0])
def test_moves_never_lose_and_keep_every_group(cost):
    rng = np.random.default_rng(0)
    near, parts = rng.integers(300, size=(300, 5)), rng.integers(30, size=300)
    edges, before = count_edges(near, parts, 30), np.arange(30) % 6
    after = refine(edges, before, cost)

    def kept(groups):
        one_hot = np.eye(6)[groups]
        inside = np.trace(one_hot.T @ edges @ one_hot) / edges.sum()
        return inside - cost * ((edges.sum(1) @ one_hot / edges.sum()) ** 2).sum()

    assert len(np.unique(after)) == 6
    assert kept(after) > kept(before)


def test_a_row_is_not_its_own_neighbour_even_behind_duplicates():
    near = np.array([[0, 1], [0, 1], [0, 1]])
    assert without_themselves(near).tolist() == [[1], [0], [0]]
