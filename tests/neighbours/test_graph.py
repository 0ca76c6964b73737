"""The nearest rows of each row, whichever library holds the rows."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.spatial.distance import cdist

from probagg.neighbours import graph
from probagg.neighbours.graph import modularity, nearest_rows

KINDS = {"array": np.asarray, "sparse": sp.csr_array, "tensor": torch.from_numpy}


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "cityblock"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [3, 12])
def test_nearest_rows_are_those_of_the_distance_matrix(metric, kind, columns, rng, monkeypatch):
    monkeypatch.setattr(graph, "SIMILARITIES", 700)  # several blocks
    X, new = rng.normal(size=(90, columns)), rng.normal(size=(20, columns))
    to_kind = KINDS[kind]
    own = cdist(X, X, metric)
    np.fill_diagonal(own, np.inf)
    found = np.asarray(nearest_rows(to_kind(X), 7, metric))
    np.testing.assert_array_equal(found, own.argsort(1)[:, :7])
    found = np.asarray(nearest_rows(to_kind(new), 7, metric, among=to_kind(X)))
    np.testing.assert_array_equal(found, cdist(new, X, metric).argsort(1)[:, :7])


def test_tensors_give_tensors_and_few_rows_few_neighbours():
    assert nearest_rows(torch.eye(4), 10).shape == (4, 3)
    assert isinstance(nearest_rows(torch.eye(4), 10), torch.Tensor)
    assert nearest_rows(np.eye(4), 10).shape == (4, 3)


def test_modularity_is_the_share_within_less_that_by_chance(rng):
    near, labels = rng.integers(50, size=(50, 4)), rng.integers(3, size=50)
    within = np.mean([labels[i] == labels[j] for i in range(50) for j in near[i]])
    chance = sum((labels == k).mean() ** 2 for k in range(3))
    assert modularity(near, labels) == pytest.approx(within - chance)
    tensors = torch.from_numpy(near), torch.from_numpy(labels)
    assert modularity(*tensors) == modularity(near, labels)


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_among_many_rows_nearly_all_of_the_nearest_are_found(metric, rng, monkeypatch):
    pytest.importorskip("faiss")
    X = 5.0 + rng.normal(size=(30, 20))[rng.integers(30, size=3000)] + rng.normal(size=(3000, 20))
    X[7] = X[8] = X[9]
    exact = nearest_rows(X, 10, metric), nearest_rows(X[:500], 10, metric, among=X)
    monkeypatch.setattr(graph, "MANY_ROWS", 3000)
    found = nearest_rows(X, 10, metric), nearest_rows(X[:500], 10, metric, among=X)
    assert (found[0] != np.arange(3000)[:, None]).all()
    for a, b in zip(exact, found, strict=True):
        assert a.shape == b.shape
        assert np.mean([len(set(i) & set(j)) for i, j in zip(a, b, strict=True)]) > 9.5


def test_without_faiss_many_rows_take_longer_and_one_line_says_so(rng, monkeypatch, caplog):
    X = rng.normal(size=(200, 12))
    expected = nearest_rows(X, 5)
    monkeypatch.setattr(graph, "MANY_ROWS", 100)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with caplog.at_level("INFO", logger="probagg"):
        np.testing.assert_array_equal(nearest_rows(X, 5), expected)
    assert [record.message for record in caplog.records] == [
        "All distances are computed to find neighbours, which takes long. Faster: pip install "
        "faiss-cpu"
    ]
