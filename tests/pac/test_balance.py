"""The balance that `balance="auto"` chooses."""

import warnings

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.datasets import load_iris, make_blobs
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

from probagg import PAC, clustering_accuracy
from probagg.neighbours.graph import NeighbourAgreement
from probagg.pac import balance
from probagg.pac.balance import clearly_best


@pytest.fixture
def unequal():
    return make_blobs([1000, 60, 60, 60], 5, random_state=3, center_box=(-12, 12))


def test_groups_of_unequal_size_are_found(unequal):
    X, y = unequal
    assert clustering_accuracy(y, PAC(4, random_state=0).fit(X).labels_) < 0.6
    pac = PAC(4, balance="auto", random_state=0).fit(X)
    assert pac.balance_ < 1.0
    assert clustering_accuracy(y, pac.labels_) > 0.99
    np.testing.assert_array_equal(pac.predict(X), pac.labels_)


def test_equal_groups_are_clustered_as_by_the_paper(digits):
    X, _ = digits
    auto = PAC(10, balance="auto", random_state=0).fit(X)
    assert auto.balance_ == 1.0
    np.testing.assert_array_equal(auto.labels_, PAC(10, random_state=0).fit(X).labels_)


def test_a_large_cluster_with_outliers_in_the_others_is_not_taken(digits):
    """Standardised digits: at balance 0 neighbours agree more, in one cluster of a third."""
    X = (digits[0] - digits[0].mean(0)) / (digits[0].std(0) + 1e-9)
    low = PAC(10, balance=0.0, random_state=1).fit(X)
    assert np.bincount(low.labels_, minlength=10).max() > 500
    assert PAC(10, balance="auto", random_state=1).fit(X).balance_ == 1.0


@pytest.mark.parametrize(
    ("kappas", "means", "chosen"),
    [
        ((0.80, 0.82, 0.82, 0.82), (0.8, 0.8, 0.8, 0.8), 0),  # no clear gain
        ((0.80, 0.84, 0.90, 0.85), (0.8, 0.8, 0.8, 0.8), 2),
        ((0.80, 0.84, 0.90, 0.95), (0.8, 0.8, 0.8, 0.7), 2),  # the last has clusters of outliers
        ((0.80, 0.84, 0.84, 0.84), (0.8, 0.8, 0.8, 0.8), 1),  # ties go to the highest balance
    ],
)
def test_the_run_whose_neighbours_agree_clearly_best_is_chosen(kappas, means, chosen):
    assert clearly_best([NeighbourAgreement(*r) for r in zip(kappas, means, strict=True)]) == chosen


def test_agreement_is_one_for_separate_groups_and_zero_by_chance(rng):
    X, y = make_blobs(900, centers=3, cluster_std=0.1, random_state=0)
    near = NearestNeighbors(n_neighbors=10).fit(X).kneighbors(return_distance=False)
    assert NeighbourAgreement.of(y, near, 3) == NeighbourAgreement(1.0, 1.0)
    random = rng.choice(3, 900, p=[0.8, 0.1, 0.1])
    assert abs(NeighbourAgreement.of(random, near, 3).kappa) < 0.05
    assert NeighbourAgreement.of(np.zeros(900, int), near, 3) == NeighbourAgreement(0.0, 1 / 3)
    outliers = np.where(np.arange(900) < 5, 1, 0)
    assert NeighbourAgreement.of(outliers, near, 2).mean < 0.6


def test_a_sample_chooses_for_many_rows(unequal, monkeypatch):
    X, y = unequal
    monkeypatch.setattr(balance, "LEAST_ROWS", 800)
    pac = PAC(4, balance="auto", random_state=1).fit(X)
    assert pac.balance_ < 1.0
    assert len(pac.labels_) == len(X)
    assert clustering_accuracy(y, pac.labels_) > 0.99


def test_other_kinds_of_rows(unequal, tmp_path):
    X, y = unequal
    kinds = {
        "cosine": (X + 30.0 * np.eye(5)[0], "cosine"),
        "precomputed": (pairwise_distances(X, metric="sqeuclidean"), "precomputed"),
        "manhattan": (X, "manhattan"),
        "sparse": (csr_array(X), "sqeuclidean"),
        "tensor": (torch.tensor(X), "sqeuclidean"),
    }
    for name, (rows, metric) in kinds.items():
        pac = PAC(4, metric=metric, balance="auto", random_state=0).fit(rows)
        assert clustering_accuracy(y, np.asarray(pac.labels_)) > 0.9, name


def test_a_dask_array(unequal):
    da = pytest.importorskip("dask.array")
    X, y = unequal
    pac = PAC(4, balance="auto", random_state=0).fit(da.from_array(X, chunks=(300, -1)))
    assert clustering_accuracy(y, pac.labels_.compute()) > 0.99


def test_the_balance_is_saved(unequal, tmp_path):
    X, _ = unequal
    pac = PAC(4, balance="auto", random_state=0).fit(X)
    pac.save(tmp_path / "pac.safetensors")
    again = PAC.load(tmp_path / "pac.safetensors")
    assert (again.balance, again.balance_) == ("auto", pac.balance_)
    np.testing.assert_array_equal(again.predict(X), pac.labels_)


def test_a_stream_goes_on_with_the_balance_chosen(unequal):
    X, y = unequal
    pac = PAC(4, balance="auto", random_state=0).fit(X).partial_fit(X[:50])
    assert pac.balance_ < 1.0
    assert clustering_accuracy(y, pac.predict(X)) > 0.99
    with pytest.raises(ValueError, match="partial_fit cannot choose the balance"):
        PAC(4, balance="auto").partial_fit(X)


def test_what_cannot_be_chosen_is_an_error():
    X = load_iris().data
    with pytest.raises(ValueError, match="init is an array"):
        PAC(2, balance="auto", init=np.full((150, 2), 0.5)).fit(X)
    assert PAC(1, balance="auto").fit(X).balance_ == 1.0


def warnings_of(X, K, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PAC(K, random_state=0, **options).fit(X)
    return [str(warning.message) for warning in caught]


def test_a_warning_says_that_equal_sizes_are_forced(unequal):
    (text,) = warnings_of(unequal[0], 4)
    assert "equal size do not fit" in text
    assert "balance='auto'" in text
    assert not warnings_of(unequal[0], 4, balance="auto")


def test_a_warning_says_that_many_clusters_are_tiny(digits):
    X = (digits[0] - digits[0].mean(0)) / (digits[0].std(0) + 1e-9)
    (text,) = warnings_of(X, 10, balance=0.0)
    assert "5 of 10 clusters have less than 5 % of the mean size" in text
    assert "raise balance (now 0" in text


def test_no_warning_where_sizes_fit(digits):
    assert not warnings_of(digits[0], 10)
    assert not warnings_of(digits[0], 10, balance=0.5)
