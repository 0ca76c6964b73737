"""The nearest rows of each row, whichever library holds the rows."""

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
