"""Sizes of clusters: the warnings where equal or tiny ones do not fit."""

import warnings

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.neighbors import NearestNeighbors

from probagg import PAC, GraphPAC, clustering_accuracy
from probagg.neighbours.graph import neighbour_agreement
from probagg.pac.advice import SHARE, fit_scores, short_kmeans


@pytest.fixture
def unequal():
    return make_blobs([1000, 60, 60, 60], 5, random_state=3, center_box=(-12, 12))


def with_categories(X, n, seed=0):
    """Add n columns of four random categories each, one-hot."""
    rng = np.random.default_rng(seed)
    drawn = [np.eye(4)[rng.integers(4, size=len(X))] for _ in range(n)]
    return np.hstack([(X - X.mean(0)) / X.std(0), *drawn])


def test_the_spread_is_the_inertia_of_kmeans_for_sparse_and_dense_rows(rng):
    """With the same neighbours, scores differ by its logarithm."""
    X = rng.normal(size=(200, 4)) + 3.0
    found = [KMeans(3, n_init=1, random_state=seed).fit(X) for seed in (0, 1)]
    expected = np.log(found[0].inertia_ / found[1].inertia_)
    labels = [each.labels_ for each in found]
    search = NearestNeighbors(n_neighbors=11).fit(X)
    near = search.kneighbors(X[: int(SHARE * 200)], return_distance=False)[:, 1:]
    for each, sign in zip(labels, (1.0, -1.0), strict=True):
        expected -= sign * sum(neighbour_agreement(each, near, 3))
    for rows in (X, csr_array(X)):
        first, second = fit_scores(rows, labels, 3)
        assert second - first == pytest.approx(expected)


def test_agreement_is_one_for_separate_groups_and_zero_by_chance(rng):
    X, y = make_blobs(900, centers=3, cluster_std=0.1, random_state=0)
    near = NearestNeighbors(n_neighbors=10).fit(X).kneighbors(return_distance=False)
    assert neighbour_agreement(y, near, 3) == (1.0, 1.0)
    random = rng.choice(3, 900, p=[0.8, 0.1, 0.1])
    assert abs(neighbour_agreement(random, near, 3)[0]) < 0.05
    assert neighbour_agreement(np.zeros(900, int), near, 3) == (0.0, 1 / 3)
    outliers = np.where(np.arange(900) < 5, 1, 0)
    assert neighbour_agreement(outliers, near, 2)[1] < 0.6


def warnings_of(X, K, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PAC(K, random_state=0, **options).fit(X)
    return [str(warning.message) for warning in caught]


def test_a_warning_says_that_equal_sizes_are_forced(unequal):
    X, y = unequal
    for rows in (X, csr_array(X), torch.tensor(X)):
        (text,) = warnings_of(rows, 4)
        assert "equal size do not fit" in text
        assert "Use GraphPAC" in text
    assert not warnings_of(X, 4, balance=0.0)
    assert clustering_accuracy(y, PAC(4, random_state=0).fit(X).labels_) < 0.6
    assert clustering_accuracy(y, PAC(4, balance=0.0, random_state=0).fit(X).labels_) > 0.9
    assert clustering_accuracy(y, GraphPAC(4, random_state=0).fit(X).labels_) > 0.99


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


def test_no_warning_where_sizes_fit(digits):
    assert not warnings_of(digits[0], 10)
    assert not warnings_of(digits[0], 10, balance=0.5)
