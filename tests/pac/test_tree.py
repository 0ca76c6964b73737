"""The tree of clusters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import dendrogram, is_valid_linkage, linkage
from sklearn.datasets import load_digits, make_blobs

from probagg import PAC
from probagg.errors import InputError
from probagg.pac.clusters import clusters_at, ward_linkage


@pytest.fixture(scope="module")
def digits() -> PAC:
    return PAC(30, random_state=0).fit(load_digits().data)


def test_clusters_of_one_row_each_give_scipys_tree():
    X = np.random.default_rng(0).normal(size=(60, 5))
    np.testing.assert_allclose(ward_linkage(X, np.ones(60)), linkage(X, "ward"), rtol=1e-9)


def test_mass_counts_as_copies_of_a_row():
    rng = np.random.default_rng(1)
    X, copies = rng.normal(size=(20, 3)), rng.integers(1, 6, size=20)
    whole = linkage(np.repeat(X, copies, 0), "ward")[-19:]
    np.testing.assert_allclose(ward_linkage(X, copies)[:, 2], whole[:, 2], rtol=1e-9)


def test_scipy_draws_the_tree(digits):
    assert is_valid_linkage(digits.linkage_)
    assert sorted(dendrogram(digits.linkage_, no_plot=True)["leaves"]) == list(range(30))


def test_levels_are_nested_and_end_in_one_cluster(digits):
    finer = digits.labels_
    for n in (20, 10, 3, 1):
        coarser = digits.labels_at(n)
        assert len(np.unique(coarser)) == n
        pairs = np.unique(np.stack([finer, coarser]), axis=1)
        assert pairs.shape[1] == len(np.unique(finer))
        finer = coarser


def test_k_chosen_too_large_is_repaired():
    X, y = make_blobs(2000, 5, centers=4, random_state=3, center_box=(-20, 20))
    labels = PAC(20, random_state=0).fit(X).labels_at(4)
    assert all(len(np.unique(labels[y == k])) == 1 for k in range(4))


def test_probabilities_of_merged_clusters_are_sums(digits):
    P, groups = digits.probabilities_at(10), clusters_at(digits.linkage_, 10)
    expected = np.stack([digits.probabilities_[:, groups == k].sum(1) for k in range(10)], 1)
    np.testing.assert_allclose(P, expected, rtol=1e-6)


def test_new_rows_and_a_loaded_model_have_the_same_levels(digits, tmp_path):
    X = load_digits().data
    digits.save(tmp_path / "pac.safetensors")
    loaded = PAC.load(tmp_path / "pac.safetensors")
    np.testing.assert_array_equal(loaded.labels_at(10, X), digits.labels_at(10))
    np.testing.assert_allclose(loaded.probabilities_at(10, X), digits.probabilities_at(10), 1e-5)


def test_tensors_stay_tensors():
    torch = pytest.importorskip("torch")
    X = torch.from_numpy(load_digits().data)
    pac = PAC(12, random_state=0).fit(X)
    assert isinstance(pac.labels_at(5), torch.Tensor)
    P = pac.probabilities_at(5)
    assert isinstance(P, torch.Tensor)
    torch.testing.assert_close(P.sum(1), torch.ones_like(P[:, 0]))


def test_levels_of_dask_arrays_are_lazy(digits):
    dask = pytest.importorskip("dask.array")
    X = load_digits().data
    rows = dask.from_array(X, chunks=(600, -1))
    labels, P = digits.labels_at(10, rows), digits.probabilities_at(10, rows)
    assert isinstance(labels, dask.Array)
    assert isinstance(P, dask.Array)
    np.testing.assert_array_equal(labels.compute(), digits.labels_at(10))
    np.testing.assert_allclose(P.compute(), digits.probabilities_at(10), atol=1e-9)


@pytest.mark.parametrize("n", [0, 31, 2.5])
def test_a_number_of_clusters_that_is_not_there_is_refused(digits, n):
    with pytest.raises(InputError, match=r"n is .*, but a number from 1 to the 30 clusters"):
        digits.labels_at(n)


def test_other_metrics_have_no_tree():
    X, _ = make_blobs(50, random_state=0)
    pac = PAC(3, metric="manhattan", random_state=0).fit(X)
    with pytest.raises(AttributeError, match="linear metrics"):
        _ = pac.linkage_
