"""Robust continuous clustering (benchmarks/paper/rcc.py)."""

import os

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, homogeneity_score, pairwise_distances
from sklearn.preprocessing import minmax_scale

from benchmarks.data import lab_matrix
from benchmarks.paper.expected import expected
from benchmarks.paper.rcc import (
    NEIGHBOURS,
    Problem,
    cluster,
    edges,
    largest,
    robust_continuous_clustering,
)
from probagg import clustering_accuracy


def blobs(K, per_cluster=60, D=8, seed=0):
    """Draw groups around random centres, which differ in every column, in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(K), per_cluster))
    X = rng.uniform(0, 10, (K, D))[y] + 0.3 * rng.standard_normal((len(y), D))
    return X.astype(np.float32), y


@pytest.mark.parametrize("K", [2, 3, 6])
def test_separated_blobs_are_found_with_their_number(K):
    """A few rows at a border may stay apart, in clusters of their own."""
    X, y = blobs(K, per_cluster=200)
    labels = robust_continuous_clustering(X)
    assert (np.bincount(labels) > 10).sum() == K
    assert adjusted_rand_score(y, labels) > 0.97
    assert homogeneity_score(y, labels) == pytest.approx(1.0)


def test_one_blob_is_not_split_in_many():
    """The representatives of a single group meet, but for a few rows at its border."""
    X = np.random.default_rng(0).standard_normal((200, 8)) + 10
    assert np.bincount(robust_continuous_clustering(X)).max() > 150


def test_labels_do_not_depend_on_the_order_of_the_rows():
    X, _ = blobs(4, seed=1)
    X += 2 * np.random.default_rng(1).standard_normal(X.shape).astype(np.float32)  # they overlap
    order = np.random.default_rng(2).permutation(len(X))
    labels = robust_continuous_clustering(X)
    assert len(np.unique(labels)) > 1
    assert adjusted_rand_score(labels[order], robust_continuous_clustering(X[order])) == 1.0


def test_labels_do_not_depend_on_the_unit_of_a_column():
    X, _ = blobs(3, seed=3)
    units = np.array([1, 2, 4, 8, 16, 32, 64, 128], np.float32)
    labels = robust_continuous_clustering(X)
    assert adjusted_rand_score(labels, robust_continuous_clustering(X * units)) == 1.0


def test_each_half_of_an_iteration_lowers_the_objective():
    """Both minimize it over one of the two groups of variables."""
    problem = Problem.of(minmax_scale(blobs(3, seed=4)[0]))
    U, kept, mu, balance = problem.X, np.ones(len(problem.p)), 0.1, 20.0
    values = [problem.objective(U, kept, mu, balance)]
    for _ in range(5):
        kept = problem.keep(U, mu)
        values.append(problem.objective(U, kept, mu, balance))
        U = problem.represent(U, problem.laplacian(kept), balance)
        values.append(problem.objective(U, kept, mu, balance))
    falls = -np.diff(values)
    assert (falls > -1e-6 * values[0]).all()
    assert (falls[:4] > 0).all()


def test_kept_edges_minimize_the_objective_among_neighbouring_values():
    problem = Problem.of(minmax_scale(blobs(2, seed=5)[0]))
    kept = problem.keep(problem.X, 0.1)
    best = problem.objective(problem.X, kept, 0.1, 1.0)
    for factor in (0.9, 1.1):
        assert problem.objective(problem.X, factor * kept, 0.1, 1.0) > best


def test_with_all_edges_kept_the_penalty_is_the_laplacian():
    problem = Problem.of(minmax_scale(blobs(2, per_cluster=20, seed=6)[0]))
    U = problem.X.astype(float)
    A = problem.laplacian(np.ones(len(problem.p)))
    assert np.trace(U.T @ (A @ U)) == pytest.approx(problem.weights @ problem.distances(U))
    assert largest(A) == pytest.approx(np.linalg.eigvalsh(A.toarray())[-1], rel=1e-3)


def test_edges_join_mutual_neighbours_and_a_spanning_tree():
    """A plain version: all pairs by cosine; every pair that lists each other must be there."""
    X = np.random.default_rng(7).random((80, 5)).astype(np.float32)
    distances = pairwise_distances(X, metric="cosine")
    np.fill_diagonal(distances, np.inf)
    near = np.zeros_like(distances, bool)
    np.put_along_axis(near, distances.argsort(1)[:, :NEIGHBOURS], True, axis=1)
    found = np.zeros_like(near)
    found[edges(X)] = True
    mutual = np.triu(near & near.T)
    assert found[mutual].all()
    assert not found[~(near | near.T)].any()
    assert (found & ~mutual).sum() < len(X)


def test_a_row_and_its_duplicate_are_in_one_cluster():
    X, _ = blobs(3, per_cluster=30, seed=8)
    labels = robust_continuous_clustering(np.concatenate([X, X]))
    assert len(np.unique(labels)) >= 3
    np.testing.assert_array_equal(labels[: len(X)], labels[len(X) :])


@pytest.mark.slow
@pytest.mark.skipif("PROBAGG_DATA" not in os.environ, reason="PROBAGG_DATA is not set")
def test_unscaled_pendigits_have_the_accuracy_of_table_2():
    """The paper does not say how it scaled features for RCC; unscaled ones agree with it."""
    data = lab_matrix("pendigits")
    accuracy = 100 * clustering_accuracy(data.y, cluster(data.X))
    assert accuracy == pytest.approx(expected("table2", "pendigits", "rcc", "acc"), abs=1.0)
