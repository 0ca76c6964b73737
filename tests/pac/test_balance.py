"""The balance that `balance="auto"` chooses."""

import warnings

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_blobs
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

from probagg import PAC, clustering_accuracy
from probagg.neighbours.graph import NeighbourAgreement
from probagg.pac import balance
from probagg.pac.balance import (
    BalanceCandidate,
    BalanceChoice,
    Comparison,
    best_candidate,
    short_kmeans,
)
from probagg.pac.solver import Parameters


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
    ("scores", "chosen"),
    [
        ((2.0, 2.02, 2.04, 2.04, 2.04), 0),  # no clear gain over balance 1
        ((2.0, 2.04, 2.08, 2.0, 2.0), 1),  # the same clusters followed to 0 need a small gain
        ((2.0, 2.04, 2.09, 2.0, 2.0), 2),  # other starts a clear one
        ((2.0, 2.09, 2.11, 2.0, 2.0), 2),  # a plain gain over balance 1 is taken by the best
        ((2.0, 1.9, 1.9, 2.06, 2.06), 3),  # the first of equal scores
        ((2.0, 1.9, 1.9, 2.06), 3),  # without k-means
    ],
)
def test_the_candidate_that_fits_clearly_best_is_chosen(scores, chosen):
    assert best_candidate(scores) == chosen


def with_categories(X, n, seed=0):
    """Add n columns of four random categories each, one-hot."""
    rng = np.random.default_rng(seed)
    drawn = [np.eye(4)[rng.integers(4, size=len(X))] for _ in range(n)]
    return np.hstack([(X - X.mean(0)) / X.std(0), *drawn])


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_categories_do_not_mislead(n, seed):
    """They split every neighbourhood, so that neighbours agree in groups cut by category too."""
    X, y = make_blobs([3500, 1000, 350, 150], 5, random_state=1, center_box=(-10, 10))
    pac = PAC(4, balance="auto", random_state=seed).fit(with_categories(X, n))
    assert clustering_accuracy(y, pac.labels_) > 0.97


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_overlapping_groups_in_two_dimensions_are_found_from_every_seed(seed):
    """Neighbours agree at every balance; only the sums of squares differ."""
    X, y = make_blobs([3500, 1000, 350, 150], 2, random_state=3, center_box=(-10, 10))
    pac = PAC(4, balance="auto", random_state=seed).fit(X)
    assert clustering_accuracy(y, pac.labels_) > 0.97


def test_the_spread_is_the_inertia_of_kmeans_for_every_kind_of_rows(rng):
    X = rng.normal(size=(200, 4)) + 3.0
    means = KMeans(3, n_init=1, random_state=0).fit(X)
    expected = means.inertia_ / ((X - X.mean(0)) ** 2).sum()
    kinds = {
        "sqeuclidean": (X, csr_array(X), torch.tensor(X)),
        "precomputed": (pairwise_distances(X, metric="sqeuclidean"),),
    }
    for metric, every in kinds.items():
        for rows in every:
            found = Comparison(rows, metric, 3).read(means.labels_, None, "k-means")
            assert found.spread == pytest.approx(expected)


def test_balance_1_is_kept_where_kmeans_finds_the_same():
    """Neighbours agree more where groups are merged, but the two methods do not."""
    X, y = make_blobs([250] * 8, 5, center_box=(-10, 10), random_state=100)
    pac = PAC(8, balance="auto", random_state=0).fit(with_categories(X, 3, seed=100))
    assert pac.balance_ == 1.0
    assert clustering_accuracy(y, pac.labels_) > 0.97
    assert [candidate.name for candidate in pac.balance_candidates_] == ["balance 1", "k-means"]


def test_candidates_are_shown(unequal, caplog):
    X, _ = unequal
    with caplog.at_level("INFO", "probagg"):
        pac = PAC(4, balance="auto", random_state=0, verbose=1).fit(X)
    found = {(candidate.balance, candidate.start) for candidate in pac.balance_candidates_}
    assert found >= {(1.0, "uniform"), (0.0, "balance 1"), (0.0, "k-means"), (None, "k-means")}
    kmeans = pac.balance_candidates_[-1]
    assert kmeans.sizes == (1000, 60, 60, 60)
    assert len(kmeans.labels) == len(X)
    assert f"k-means: score {kmeans.score:.3f}" in caplog.text
    assert PAC(4, random_state=0).fit(X).balance_candidates_ == ()


def test_a_candidate_that_fits_better_with_other_clusters_is_told():
    """Half of the labels differ, and the second fits better by 0.06."""
    labels = np.repeat([0, 1], 50), np.tile([0, 1], 50)
    used, rival, same = (
        BalanceCandidate(at, "uniform", (50, 50), 0.8, 0.8, spread, of)
        for at, spread, of in (
            (1.0, 0.5, labels[0]),
            (0.25, 0.47, labels[1]),
            (0, 0.47, labels[0]),
        )
    )
    text = BalanceChoice(Parameters(2), (used, rival), 0, None).doubt()
    for words in ("uses balance 1: score 2.293", "But balance 0.25: score 2.355", "pass balance=1"):
        assert words in text
    assert BalanceChoice(Parameters(2), (used, same), 0, None).doubt() is None
    assert BalanceChoice(Parameters(2), (rival, used), 0, None).doubt() is None


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


OUTLIERS = (0.0, 1.0, 2000), (6.0, 0.2, 30), (-6.0, 0.2, 30)


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


@pytest.mark.parametrize(
    "X",
    [
        make_blobs([3500, 1000, 350, 150], 2, random_state=3, center_box=(-10, 10))[0],
        make_blobs([3511, 999, 353, 137], 6, random_state=5, center_box=(-6, 6))[0],
        with_categories(
            make_blobs([3511, 999, 353, 137], 6, random_state=5, center_box=(-6, 6))[0], 2
        ),
    ],
    ids=["two dimensions", "a table", "with categories"],
)
def test_a_warning_says_that_kmeans_fits_better(X):
    (text,) = warnings_of(X, 4)
    assert "k-means' clusters fit better" in text


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_short_runs_of_kmeans_end_near_those_of_scikit_learn(digits, kind):
    X, labels = digits[0], short_kmeans(kind(digits[0]), 10)
    within = sum(X[labels == k].var(0).sum() * (labels == k).sum() for k in range(10))
    assert within < 1.02 * KMeans(10, n_init=10, random_state=0).fit(X).inertia_


def test_short_runs_of_kmeans_take_fewer_distinct_rows_than_clusters():
    assert set(short_kmeans(np.repeat([[0.0, 1.0], [5.0, 5.0]], 30, axis=0), 4)) == {0, 1}


def test_a_warning_says_that_many_clusters_are_tiny(digits):
    X = (digits[0] - digits[0].mean(0)) / (digits[0].std(0) + 1e-9)
    (text,) = warnings_of(X, 10, balance=0.0)
    assert "5 of 10 clusters have less than 5 % of the mean size" in text
    assert "raise balance (now 0" in text


def test_one_who_passed_auto_is_not_told_to_pass_it(rng):
    large, *outliers = (rng.normal(at, size, (n, 5)) for at, size, n in OUTLIERS)
    (text,) = warnings_of(np.concatenate([large, *outliers]), 3, balance="auto")
    assert "raise balance (balance='auto' chose 0; the paper's is 1)" in text


def test_no_warning_where_sizes_fit(digits):
    assert not warnings_of(digits[0], 10)
    assert not warnings_of(digits[0], 10, balance=0.5)
