"""Joined parts: clusters that are not compact, found without labels; compact ones stay."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, make_blobs, make_circles, make_moons

from probagg import PAC, GraphPAC, clustering_accuracy
from probagg.errors import ClusteringWarning
from probagg.neighbours.joining import (
    NEW,
    Grouping,
    count_edges,
    join,
    part_classes,
    refine,
    without_themselves,
)
from probagg.neighbours.smoothing import Smoothing


def found(X, K, balance=1.0):
    """Return PAC's labels, those after smoothing, and why."""
    pac = PAC(K, m="auto", balance=balance, random_state=0).fit(X)
    smoothing, P = Smoothing.fit(X, pac.probabilities_, metric="sqeuclidean", balance=balance)
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
    assert clustering_accuracy(y, found(X, 4)[1]) > 0.97


def test_sizes_that_differ_are_found():
    X, y = make_blobs([2000, 300, 100, 40], 4, random_state=5, center_box=(-8, 8))
    plain, joined, _ = found(X, 4)
    assert clustering_accuracy(y, plain) < 0.7
    assert clustering_accuracy(y, joined) > 0.99


def test_a_few_edges_of_few_rows_decide_nothing():
    """Thirteen setosas in a cluster of their own cut no edge, and are no cluster."""
    X = load_iris().data
    X = (X - X.mean(0)) / X.std(0)
    for seed in range(3):
        labels = GraphPAC(3, random_state=seed).fit(X).labels_
        assert clustering_accuracy(load_iris().target, labels) > 0.8


def test_half_the_balance_leads_to_other_clusters_and_is_said():
    X = load_iris().data
    X = (X - X.mean(0)) / X.std(0)
    with pytest.warns(ClusteringWarning, match="clusters are in doubt.*pass balance=0.5") as said:
        before = GraphPAC(3, random_state=1).fit(X).labels_
    after = GraphPAC(3, balance=0.5, random_state=1).fit(X).labels_
    for labels in (before, after):
        sizes = "/".join(map(str, sorted(np.bincount(labels), reverse=True)))
        assert sizes in str(said[0].message)
    assert clustering_accuracy(before, after) < 0.9


def test_a_joined_group_is_connected():
    """Two chains of parts: each becomes a group."""
    chain = np.diag([4.0] * 6, 1) + np.diag([4.0] * 6, -1) + np.diag([9.0] * 7)
    edges = np.kron(np.eye(2), chain)
    for by in ("modularity", "ratio"):
        groups = join(edges, 2, by)
        assert (groups[:7] == groups[0]).all()
        assert (groups[7:] == groups[7]).all()
        assert groups[0] != groups[7]


def test_moves_never_lose_and_keep_every_group():
    rng = np.random.default_rng(0)
    near, parts = rng.integers(300, size=(300, 5)), rng.integers(30, size=300)
    edges, before = count_edges(near, parts, 30), np.arange(30) % 6
    after = refine(edges, before)

    def kept(groups):
        one_hot = np.eye(6)[groups]
        inside = np.trace(one_hot.T @ edges @ one_hot) / edges.sum()
        return inside - ((edges.sum(1) @ one_hot / edges.sum()) ** 2).sum()

    assert len(np.unique(after)) == 6
    assert kept(after) > kept(before)


def test_a_row_is_not_its_own_neighbour_even_behind_duplicates():
    near = np.array([[0, 1], [0, 1], [0, 1]])
    assert without_themselves(near).tolist() == [[1], [0], [0]]


def test_parts_of_two_known_classes_are_never_joined_and_those_of_one_always(rng):
    edges = rng.integers(0, 9, (30, 30)).astype(float)
    edges += edges.T
    classes = np.resize([0, 1, 2, 3, -1, -1], 30)
    for by in ("modularity", "ratio"):
        groups = refine(edges, join(edges, 6, by, classes), classes)
        assert len(np.unique(groups)) == 6
        members = [set(groups[classes == k].tolist()) for k in range(4)]
        assert [len(each) for each in members] == [1] * 4
        assert len(set.union(*members)) == 4


def test_known_labels_of_both_ends_keep_a_chain_apart(rng):
    """A bridge of rows joins two groups in the graph; one label in each cuts it."""
    X = np.vstack([rng.normal(0, 1, (300, 2)), rng.normal((12, 0), 1, (300, 2))])
    X = np.vstack([X, np.column_stack([np.linspace(2, 10, 60), rng.normal(0, 0.2, 60)])])
    known = np.full(660, -1)
    known[[0, 300]] = 1, 0
    labels = GraphPAC(2, random_state=0).fit(X, known_labels=known).labels_
    assert (labels[:300] == 1).all()
    assert (labels[300:600] == 0).all()


def test_the_share_of_known_labels_that_clusters_contradict_counts(rng):
    """One label per cluster is added, half of them wrong: a single one decides little."""
    known = np.repeat([0, 1, 2, -1], [5, 4, 1, 20])
    labels = np.where(known == 1, 0, known.clip(0))
    X, near = rng.normal(size=(30, 2)), rng.integers(30, size=(30, 3))
    found = Grouping.of("joined parts", labels, near, X, known)
    assert found.wrong == (1.5 + 4) / (3 + 10)
    without = Grouping.of("joined parts", labels, near, X)
    assert without.score(1.0) - found.score(1.0) == pytest.approx(np.log(found.wrong))


def test_parts_that_lack_known_rows_are_joined_with_none_of_their_classes(rng):
    """Half of class 0 is known, so a part without such rows is of a class to find."""
    parts = np.repeat(np.arange(6), 40)
    known = np.where((parts < 2) & (np.arange(240) % 2 == 0), 0, -1)
    classes = part_classes(parts, 3, known)[1]
    assert classes.tolist() == [0, 0, NEW, NEW, NEW, NEW]
    assert part_classes(parts, 1, known)[1].tolist() == [0, 0, -1, -1, -1, -1]
    edges = np.ones((6, 6)) + 9.0 * np.eye(6)
    edges[1, 2] = edges[2, 1] = 20.0
    edges[2, 3] = edges[3, 2] = edges[4, 5] = edges[5, 4] = 15.0
    groups = refine(edges, join(edges, 3, "modularity", classes), classes)
    assert groups.tolist() == [0, 0, 1, 1, 2, 2]


def test_one_label_that_contradicts_the_graph_does_not_tear_a_cluster(rng):
    """A row of class 1 lies in the midst of class 0: it keeps its label, and its cluster stays."""
    X = np.vstack([rng.normal(10.0 * k, 1, (200, 4)) for k in range(3)])
    known = np.full(600, -1)
    known[[0, 1, 200, 400]] = 0, 1, 1, 2
    labels = GraphPAC(3, random_state=0).fit(X, known_labels=known).labels_
    assert labels[1] == 1
    assert (np.delete(labels, 1) == np.delete(np.repeat([0, 1, 2], 200), 1)).all()
