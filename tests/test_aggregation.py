"""The equations of `aggregation` against plain sums, for NumPy arrays and torch tensors."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from problems import soft
from sklearn.metrics import pairwise_distances

from benchmarks.paper.algorithm_1 import equation_5
from probagg import critical_m
from probagg.aggregation import (
    LINEAR_METRICS,
    Moments,
    aggregate,
    assign,
    assign_columns,
    cluster_objectives,
    lift,
    lifted_growth,
    objective,
)


@pytest.mark.parametrize("metric", LINEAR_METRICS)
def test_scores_are_the_sum_over_all_pairs(rng, metric):
    """The matrix form D P of Eq. 9, computed without D."""
    X, P = rng.standard_normal((40, 6)), soft(rng, 40, 3)
    D = pairwise_distances(X, metric=metric)
    np.testing.assert_allclose(aggregate(X, Moments.of(X, P, metric), metric), D @ P, atol=1e-12)


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_balance_is_the_exponent_of_the_mass(rng, balance):
    X, P = rng.standard_normal((40, 6)), soft(rng, 40, 3)
    expected = pairwise_distances(X, metric="sqeuclidean") @ P * P.sum(0) ** (balance - 1)
    np.testing.assert_allclose(aggregate(X, Moments.of(X, P), balance=balance), expected)


def test_a_metric_without_linear_form_is_named_in_the_error(rng):
    with pytest.raises(ValueError, match=r"metric='manhattan' has no linear form. Use 'sqeuclid"):
        aggregate(rng.standard_normal((4, 2)), Moments.of(np.eye(4), np.eye(4)), "manhattan")


def test_moments_of_parts_can_be_added_and_subtracted(rng):
    X, P = rng.standard_normal((50, 4)), soft(rng, 50, 3)
    whole, head, tail = Moments.of(X, P), Moments.of(X[:20], P[:20]), Moments.of(X[20:], P[20:])
    np.testing.assert_allclose((head + tail).sums, whole.sums)
    np.testing.assert_allclose((whole - tail).sums, head.sums, atol=1e-12)
    rebuilt = Moments(whole.mass, whole.first, whole.second)
    np.testing.assert_array_equal(rebuilt.sums, whole.sums)
    np.testing.assert_allclose(whole.first, P.T @ X)


@pytest.mark.parametrize("m", [1.0, 1.03, 1.5])
def test_objective_is_equation_1_and_5(rng, m):
    X, P = rng.standard_normal((20, 4)), soft(rng, 20, 3)
    D = pairwise_distances(X, metric="sqeuclidean")
    assert objective(X, P, m) == pytest.approx(equation_5(D, P, m), rel=1e-12)


@pytest.mark.parametrize("metric", LINEAR_METRICS)
def test_the_trace_of_equation_2_is_equation_1(rng, metric):
    """Eq. 2 from the distance matrix and from moments, and Eq. 1 pair by pair."""
    X, P = rng.standard_normal((20, 4)), soft(rng, 20, 3)
    D = pairwise_distances(X, metric=metric)
    per_cluster = cluster_objectives(Moments.of(X, P, metric).sums)
    np.testing.assert_allclose(per_cluster, np.diag(P.T @ D @ P), rtol=1e-12)
    assert per_cluster.sum() == pytest.approx(equation_5(D, P), rel=1e-12)


def derivative(function, P, step=1e-6):
    """Return the central differences of a function of P by each of its elements."""
    slopes = np.empty_like(P)
    for index in np.ndindex(*P.shape):
        change = np.zeros_like(P)
        change[index] = step
        slopes[index] = (function(P + change) - function(P - change)) / (2 * step)
    return slopes


@pytest.mark.parametrize("m", [1.0, 1.03, 1.3])
def test_equation_7_is_the_derivative_of_equation_5_only_at_m_1(rng, m):
    """Row i occurs as p_i^m and as p_j. Eq. 7 differentiates the first and counts it twice."""
    X, P = rng.standard_normal((20, 4)), soft(rng, 20, 3)
    slopes = derivative(lambda P: objective(X, P, m), P)
    first = m * P ** (m - 1) * aggregate(X, Moments.of(X, P))
    second = aggregate(X, Moments.of(X, P**m))
    np.testing.assert_allclose(slopes, first + second, rtol=1e-6)
    assert np.allclose(slopes, 2 * first, rtol=1e-6) == (m == 1.0)


@pytest.mark.parametrize("m", [1.03, 1.3])
def test_with_p_m_in_the_sum_equation_7_is_an_exact_derivative(rng, m):
    """Of sum_ij d_ij sum_k p_ik^m p_jk^m, the objective of `aggregate="p_m"`."""
    X, P = rng.standard_normal((20, 4)), soft(rng, 20, 3)
    slopes = derivative(lambda P: cluster_objectives(Moments.of(X, P**m).sums).sum(), P)
    equation_7 = 2 * m * P ** (m - 1) * aggregate(X, Moments.of(X, P**m))
    np.testing.assert_allclose(slopes, equation_7, rtol=1e-6)


@pytest.mark.parametrize("m", [1.001, 1.03, 1.2, 3.0])
def test_assign_is_equation_8(rng, m):
    S = rng.random((30, 5)) + 0.5
    exact = np.exp(-np.log(S.astype(np.longdouble)) / (m - 1))
    exact /= exact.sum(1, keepdims=True)
    np.testing.assert_allclose(assign(S, m), exact.astype(float), atol=1e-11)
    np.testing.assert_array_equal(assign_columns(S.T.copy(), m).T, assign(S, m))


def test_assign_survives_zero_scores():
    """A row at distance 0 from two clusters is shared equally between them."""
    np.testing.assert_allclose(
        assign(np.array([[0.0, 0.0, 1.0]]), 1.03), [[0.5, 0.5, 0.0]], atol=1e-12
    )
    np.testing.assert_allclose(assign(np.zeros((1, 4)), 1.03), np.full((1, 4), 0.25))


def test_critical_m_of_digits(digits):
    assert critical_m(digits[0]) == pytest.approx(1.148, abs=0.002)
    assert critical_m(digits[0], aggregate="p_m") == pytest.approx(1.174, abs=0.002)


@pytest.mark.parametrize("metric", LINEAR_METRICS)
@pytest.mark.parametrize("weighted", [False, True])
def test_critical_m_is_the_top_eigenvalue_of_all_distances(rng, metric, weighted):
    """By an N x N matrix. With more than 64 columns the Krylov projection is tested."""
    X = rng.standard_normal((300, 70)) * np.geomspace(3, 0.1, 70) + 1
    w = rng.random(300) + 0.2 if weighted else np.ones(300)
    D = pairwise_distances(X, metric=metric)
    R = D @ w
    exact = np.linalg.eigvals(-D * w / R[:, None]).real.max()
    if not weighted:
        assert critical_m(X, metric) == pytest.approx(1 + exact, abs=1e-4)
    X = X / np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else X
    rows = lift(X - X.mean(0))
    assert lifted_growth(lambda: [(rows[:99], w[:99]), (rows[99:], w[99:])]) == pytest.approx(
        exact, abs=1e-4
    )


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0, 2.0])
def test_critical_m_does_not_depend_on_balance(rng, balance):
    """One update by Eq. 8 with a mass factor, linearised at uniform P, as an N x N matrix."""
    X = rng.standard_normal((120, 6)) * np.geomspace(3, 0.5, 6)
    D = pairwise_distances(X, metric="sqeuclidean")
    update = -D / D.sum(1, keepdims=True) - (balance - 1.0) / len(X)
    exact = np.linalg.eigvals(update).real.max()
    assert critical_m(X) == pytest.approx(1 + exact, abs=1e-6)


def test_integers_lists_and_frames_are_accepted(rng):
    X, P = rng.integers(9, size=(30, 3)), soft(rng, 30, 2)
    assert objective(X, P) == pytest.approx(objective(X.astype(float), P))
    np.testing.assert_allclose(Moments.of(X, P).mass, P.sum(0))
    for same in (X.tolist(), pd.DataFrame(X)):
        assert critical_m(same) == critical_m(X.astype(float))
    assert critical_m(torch.tensor(X)) == pytest.approx(critical_m(X), abs=1e-5)


def test_an_offset_does_not_change_the_objective(rng):
    X, P = rng.standard_normal((30, 3)), soft(rng, 30, 2)
    assert objective(X + 1e8, P) == pytest.approx(objective(X, P), rel=1e-6)


def test_critical_m_of_identical_rows_is_one():
    assert critical_m(np.ones((5, 3))) == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_give_the_same_results_as_arrays(rng, dtype):
    X, P = rng.standard_normal((40, 6)), soft(rng, 40, 3)
    tX, tP = torch.tensor(X, dtype=dtype), torch.tensor(P, dtype=dtype)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-9}
    for metric in LINEAR_METRICS:
        S = aggregate(X, Moments.of(X, P, metric), metric)
        tS = aggregate(tX, Moments.of(tX, tP, metric), metric)
        assert tS.dtype == dtype
        np.testing.assert_allclose(tS, S, **tolerance)
        np.testing.assert_allclose(assign(tS, 1.2), assign(S, 1.2), **tolerance)
        assert objective(tX, tP, 1.1, metric) == pytest.approx(objective(X, P, 1.1, metric), 1e-4)
        assert critical_m(tX, metric) == pytest.approx(critical_m(X, metric), abs=1e-4)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.ones(5), {}, r"shape \(5,\), but \(rows, columns\) is needed"),
        (np.array([[0.0, np.nan], [1.0, 2.0]]), {}, "NaN or infinite"),
        (np.array([[0.0, np.inf], [1.0, 2.0]]), {"metric": "cosine"}, "NaN or infinite"),
        (sp.csr_array(np.eye(3)), {}, r"X.toarray\(\), or use critical_m_"),
        (np.eye(3), {"aggregate": "q"}, "aggregate is 'q'"),
    ],
)
def test_critical_m_refuses_what_it_cannot_measure(X, options, message):
    """NaN would give 1, as if no cluster could form."""
    with pytest.raises(ValueError, match=message):
        critical_m(X, **options)
