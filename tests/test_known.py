"""Known labels as users have them, checked and matched with clusters."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from probagg.errors import InputError
from probagg.known import check_known_labels, match_clusters, reorder_clusters, with_known

LABELS = [
    [0, -1, 2],
    np.array([0, -1, 2], np.int8),
    np.array([0.0, np.nan, 2.0]),
    np.ma.masked_array([0, 7, 2], [False, True, False]),
    torch.tensor([0, -1, 2]),
    pd.Series([0, None, 2]),
    pd.Series([0, None, 2], dtype="Int64"),
    pd.Categorical(["a", None, "c"], ["a", "b", "c"]),
    pd.Series(["a", None, "c"], dtype=pd.CategoricalDtype(["a", "b", "c"])),
]


@pytest.mark.parametrize("labels", LABELS, ids=lambda labels: type(labels).__name__)
def test_labels_are_read_as_users_have_them(labels):
    found = check_known_labels(labels, 3, 3)
    assert found.dtype == np.int64
    assert found.tolist() == [0, -1, 2]


@pytest.mark.parametrize("labels", [None, [-1, -1], np.array([np.nan, np.nan])])
def test_no_known_label_is_the_same_as_none(labels):
    assert check_known_labels(labels, 2, 3) is None


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([0, 1], r"shape \(2,\) and .* one whole number for each of the 3 rows is needed, -1"),
        ([[0], [1], [2]], r"shape \(3, 1\)"),
        ([0.5, 1.0, 2.0], "array of float64"),
        (["cat", "dog", "cat"], "Pass names as a categorical column"),
        ([True, False, True], "array of bool"),
        ([0, -2, 1], "smallest value -2"),
        ([0, 3, 1], "has 3, but n_clusters is 3: cluster k is class k"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(labels, problem):
    with pytest.raises(InputError, match=problem):
        check_known_labels(labels, 3, 3)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, torch.as_tensor])
def test_clusters_take_the_numbers_under_which_known_rows_are_most_probable(kind):
    P = np.array([[0.1, 0.9, 0.0], [0.0, 0.2, 0.8], [0.3, 0.3, 0.4], [0.6, 0.4, 0.0]])
    known = np.array([0, 1, -1, 0])  # both rows of class 0 together prefer cluster 1
    order = match_clusters(kind(P), known)
    assert order.tolist() == [1, 2, 0]
    found = with_known(reorder_clusters(kind(P), order), known)
    found = found.toarray() if sp.issparse(found) else np.asarray(found)
    assert found.tolist() == [[1, 0, 0], [0, 1, 0], [0.3, 0.4, 0.3], [1, 0, 0]]
