"""PAC and GraphPAC with known labels: rows that keep their cluster and pull others."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics import pairwise_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probagg import PAC, GraphPAC, select_n_clusters
from probagg.aggregation import assign
from probagg.errors import InputError
from probagg.pac.fixed_rows import pulls


def some_of(y, n, rng):
    """Return n random labels per class, -1 elsewhere."""
    known = np.full(len(y), -1)
    for k in np.unique(y):
        rows = rng.choice(np.flatnonzero(y == k), n, replace=False)
        known[rows] = k
    return known


@pytest.fixture
def groups(rng):
    X, y = make_blobs(1200, 6, centers=5, cluster_std=1.5, random_state=3)
    return X, y, some_of(y, 3, rng)


def file_of(X, folder):
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


KINDS = {
    "array": lambda X, folder: X,
    "float32": lambda X, folder: X.astype(np.float32),
    "csr": lambda X, folder: sp.csr_array(X),
    "tensor": lambda X, folder: torch.tensor(X, dtype=torch.float32),
    "dask": lambda X, folder: da.from_array(X, chunks=(130, 6)),
    "file": file_of,
}


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_cluster_k_is_class_k_wherever_the_rows_are(groups, kind, is_large, tmp_path, monkeypatch):
    X, y, known = groups
    if is_large:
        monkeypatch.setattr("probagg.pac.solver.sample_size", lambda K: 200)
    pac = PAC(5, random_state=0).fit(KINDS[kind](X, tmp_path), known_labels=known)
    labels, is_known = np.asarray(pac.labels_), known >= 0
    assert (labels[is_known] == known[is_known]).all()
    assert (labels == y).mean() > 0.99
    mass = len(X) + (pulls(known, 5)[known[is_known]] - 1.0).sum()
    assert float(pac.moments_.mass.sum()) == pytest.approx(mass, rel=1e-5)
    if kind != "file":
        P = np.asarray(pac.probabilities_)[is_known]
        assert (np.eye(5)[known[is_known]] == P).all()


@pytest.mark.parametrize("metric", ["cosine", "manhattan", "precomputed"])
def test_every_metric_keeps_known_rows(groups, metric):
    X, y, known = groups
    data = pairwise_distances(X) if metric == "precomputed" else X
    pac = PAC(5, metric=metric, random_state=0).fit(data, known_labels=known)
    assert (pac.probabilities_[known >= 0] == np.eye(5)[known[known >= 0]]).all()
    assert (pac.labels_ == y).mean() > 0.95


def test_updates_are_those_of_algorithm_1_with_fixed_rows(rng):
    """Plain loops over rows: known ones count as `pulls` says, and are not updated."""
    X, K, m = rng.normal(size=(30, 3)), 3, 1.2
    known = np.where(rng.random(30) < 0.2, rng.integers(K, size=30), -1)
    P = rng.random((30, K))
    P /= P.sum(1, keepdims=True)
    pac = PAC(K, m=m, init=P, block_size=1, shuffle=False, max_iter=4, tol=0.0)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning):
        pac.fit(X, known_labels=known)
    D = pairwise_distances(X, metric="sqeuclidean")
    weights = np.where(known >= 0, pulls(known, K)[known], 1.0)
    P[known >= 0] = np.eye(K)[known[known >= 0]]
    for _ in range(4):
        for i in np.flatnonzero(known < 0):
            P[i] = assign((D[i] * weights @ P)[None], m)[0]
    np.testing.assert_allclose(pac.probabilities_, P, atol=1e-10)


def test_more_clusters_than_known_classes_are_new_ones(groups):
    X, y, known = groups
    known = np.where(known >= 3, -1, known)
    labels = PAC(5, random_state=0).fit_predict(X, known_labels=known)
    assert (labels[y < 3] == y[y < 3]).mean() > 0.99
    assert {int(np.bincount(labels[y == k]).argmax()) for k in (3, 4)} == {3, 4}


def test_known_rows_pull_others(rng):
    """Where two groups touch, rows near a known one follow it."""
    X = rng.normal(size=(400, 1))
    without = PAC(2, random_state=0).fit(X)
    known = np.full(400, -1)
    known[np.argsort(X[:, 0])[:220]] = 0
    known[X[:, 0].argmax()] = 1
    labels = PAC(2, random_state=0).fit(X, known_labels=known).labels_
    assert (labels == 0).sum() > np.bincount(without.labels_).max()


def test_a_label_against_all_neighbours_is_kept_but_not_predicted(groups):
    X, y, known = groups
    row = int(np.flatnonzero((y == 0) & (known < 0))[0])
    known[row] = 1
    pac = PAC(5, random_state=0).fit(X, known_labels=known)
    assert pac.labels_[row] == 1
    assert pac.predict(X[[row]])[0] == 0


def test_the_same_in_many_clusters_of_which_p_keeps_entries(rng):
    X, y = make_blobs(6000, 4, centers=60, cluster_std=0.3, random_state=0, center_box=(-30, 30))
    known = some_of(y, 2, rng)
    pac = PAC(60, random_state=0).fit(X, known_labels=known)
    assert (pac.probabilities_[known >= 0].argmax(1) == known[known >= 0]).all()
    assert (pac.labels_ == y).mean() > 0.95


def test_without_any_known_label_nothing_changes(groups):
    X = groups[0]
    plain, given = (
        PAC(5, random_state=0).fit(X, known_labels=known) for known in (None, [-1] * len(X))
    )
    assert np.array_equal(plain.probabilities_, given.probabilities_)


def test_all_rows_may_be_known(groups):
    X, y, _ = groups
    pac = PAC(5, random_state=0).fit(X, known_labels=y)
    assert (pac.labels_ == y).all()
    assert (pac.predict(X) == y).mean() > 0.99


def test_a_pipeline_routes_known_labels(groups):
    X, y, known = groups
    with sklearn.config_context(enable_metadata_routing=True):
        for model in PAC(5, random_state=0), GraphPAC(5, random_state=0):
            steps = make_pipeline(StandardScaler(), model.set_fit_request(known_labels=True))
            labels = steps.fit(X, y[::-1], known_labels=known)[-1].labels_
            assert (labels == y).mean() > 0.98


def test_neighbours_of_known_rows_follow_in_graph_pac(rng):
    """A group in two pieces is one class, which no distance says."""
    X, piece = make_blobs(900, 2, centers=[[0, 0], [30, 0], [15, 20]], random_state=0)
    X, y = np.vstack([X, X[piece == 2] + [0, -40]]), np.append(piece, np.full(300, 2))
    known = some_of(y, 10, rng)
    found = GraphPAC(3, random_state=0).fit(X, known_labels=known)
    assert (found.labels_[known >= 0] == known[known >= 0]).all()
    assert (found.labels_ == y).mean() > 0.99
    assert (found.predict(X) == y).mean() > 0.99


def test_graph_pac_keeps_known_rows_among_more_than_its_sample(groups, monkeypatch):
    monkeypatch.setattr("probagg.neighbours.smoothing.SAMPLE", 300)
    X, y, known = groups
    found = GraphPAC(5, random_state=0).fit(X, known_labels=known)
    assert (found.labels_[known >= 0] == known[known >= 0]).all()
    assert (found.labels_ == y).mean() > 0.98
    rows = {row.tobytes() for row in found.smoothing_.rows}
    assert all(row.tobytes() in rows for row in X[known >= 0].astype(np.float32))


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
def test_a_stream_keeps_known_rows_and_their_numbers(groups, order):
    X, y, known = groups
    rows = np.argsort(y, kind="stable") if order == "sorted" else np.arange(len(X))
    pac = PAC(5, random_state=0)
    for some in np.array_split(rows, 8):
        pac.partial_fit(X[some], known_labels=known[some])
        is_known = known[some] >= 0
        assert (pac.labels_[is_known] == known[some][is_known]).all()
    assert (pac.predict(X) == y).mean() > 0.98


def test_the_number_of_clusters_is_at_least_that_of_known_classes(groups):
    X, _, known = groups
    assert select_n_clusters(X, (2, 9), random_state=0).n_clusters == 5
    found = select_n_clusters(X, (2, 9), known_labels=known + 2 * (known >= 0), random_state=0)
    assert found.table[0].n_clusters == 7


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_a_group_is_one_sample_at_its_mean_with_the_weight_of_its_rows(groups, rng, metric):
    X, weights = groups[0][:300], rng.integers(1, 4, 300).astype(float)
    together = np.where(np.arange(300) < 60, np.arange(300) // 3, -1)
    pac = PAC(5, metric=metric, random_state=0)
    labels = pac.fit(X, sample_weight=weights, groups=together).labels_
    P = pac.probabilities_
    assert P.shape == (300, 5)
    assert (labels[:60].reshape(20, 3) == labels[:60:3, None]).all()
    rows = X / np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else X
    w = weights[:60].reshape(20, 3, 1)
    means = (rows[:60].reshape(20, 3, -1) * w).sum(1) / w.sum(1)
    whole = np.append(w.sum((1, 2)), weights[60:])
    alone = clone(pac).fit(np.vstack([means, rows[60:]]), sample_weight=whole)
    np.testing.assert_allclose(alone.probabilities_[20:], P[60:], atol=1e-9)
    np.testing.assert_allclose(np.repeat(alone.probabilities_[:20], 3, 0), P[:60], atol=1e-9)
    assert pac.moments_.mass.sum() == pytest.approx(weights.sum())


def test_a_known_row_takes_its_group_along(groups):
    X, y, known = groups
    together = np.full(len(X), -1)
    rows = [int(np.flatnonzero(known == 0)[0]), *np.flatnonzero((y == 1) & (known < 0))[:3]]
    together[rows] = 0
    labels = (
        PAC(5, random_state=0).fit(sp.csr_array(X), known_labels=known, groups=together).labels_
    )
    assert (labels[rows] == 0).all()


def test_groups_that_contradict_known_labels_or_do_not_fit_are_refused(groups, tmp_path):
    X, _, known = groups
    rows = np.flatnonzero(known == 0)[0], np.flatnonzero(known == 1)[0]
    together = np.full(len(X), -1)
    together[list(rows)] = 4
    pac = PAC(5, random_state=0)
    with pytest.raises(InputError, match="are in one group, but known_labels has"):
        pac.fit(X, known_labels=known, groups=together)
    with pytest.raises(InputError, match="groups is an array of int64 of shape"):
        pac.fit(X, groups=together[:5])
    with pytest.raises(InputError, match="in memory, but metric='sqeuclidean' and X is a Tensor"):
        pac.fit(torch.tensor(X), groups=together)
    with pytest.raises(InputError, match="n_samples=1 should be >= n_clusters=5"):
        pac.fit(X, groups=np.zeros(len(X), int))
