"""Properties that hold for any data."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from probagg import PAC

seeds = st.integers(0, 2**31 - 1)


def problem(seed, N=80, D=4, K=3):
    """Return overlapping clusters and a near-uniform start."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D)) + 4 * rng.standard_normal((K, D))[rng.integers(K, size=N)]
    P = 1 + 0.02 * rng.random((N, K))
    return X, P / P.sum(1, keepdims=True)


def fit(X, P, sample_weight=None, **options):
    options = {"shuffle": False, "random_state": 0, "max_iter": 300} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return PAC(P.shape[1], init=P, **options).fit(X, sample_weight=sample_weight)


@settings(max_examples=25, deadline=None)
@given(seeds, st.floats(1.001, 3.0), st.floats(0.0, 1.0), st.sampled_from(["p", "p_m"]))
def test_rows_lie_on_the_simplex(seed, m, balance, aggregate):
    X, P = problem(seed)
    pac = fit(X, P, m=m, balance=balance, aggregate=aggregate, max_iter=20)
    for Q in (pac.probabilities_, pac.predict_proba(X)):
        assert (Q >= 0).all()
        np.testing.assert_allclose(Q.sum(1), 1.0, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(seeds, st.floats(-1e3, 1e3), st.sampled_from([1e-3, 7.0, 1e4]))
def test_assignments_ignore_origin_unit_and_axes(seed, shift, scale):
    """Scores depend on differences of rows only, and Eq. 8 on ratios of scores."""
    X, P = problem(seed)
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((4, 4)))[0]
    expected = fit(X, P, max_iter=5, tol=0).probabilities_
    moved = fit((X @ rotation) * scale + shift, P, max_iter=5, tol=0).probabilities_
    np.testing.assert_allclose(moved, expected, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(seeds, st.permutations(range(3)))
def test_the_order_of_clusters_does_not_matter(seed, names):
    X, P = problem(seed)
    pac, renamed = fit(X, P), fit(X, P[:, names])
    np.testing.assert_allclose(renamed.probabilities_, pac.probabilities_[:, names], atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_a_weight_is_a_repetition_at_the_fixed_point(seed):
    """Started at the weighted result, the repeated rows do not change."""
    X, P = problem(seed)
    w = np.random.default_rng(seed).integers(1, 4, size=len(X))
    weighted = fit(X, P, sample_weight=w, tol=1e-10, max_iter=2000, m=1.1)
    if weighted.n_iter_ == 2000:
        return  # it cycles, so there is no fixed point to compare
    start = np.repeat(weighted.probabilities_, w, axis=0)
    repeated = fit(np.repeat(X, w, axis=0), start, tol=1e-10, max_iter=50, m=1.1)
    np.testing.assert_allclose(repeated.probabilities_, start, atol=1e-6)
    assert repeated.objective_ == pytest.approx(weighted.objective_, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(seeds, st.sampled_from(["sqeuclidean", "cosine", "manhattan"]))
def test_predicting_the_training_rows_gives_their_labels(seed, metric):
    X, P = problem(seed)
    pac = fit(X, P, metric=metric)
    np.testing.assert_array_equal(pac.predict(X), pac.labels_)
    np.testing.assert_allclose(pac.predict_proba(X), pac.probabilities_, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(1, 20))
def test_predictions_of_rows_are_independent(seed, count):
    X, P = problem(seed)
    pac = fit(X, P, max_iter=20)
    alone = np.concatenate([pac.predict_proba(X[i : i + 1]) for i in range(count)])
    np.testing.assert_allclose(pac.predict_proba(X)[:count], alone, atol=1e-12)
    np.testing.assert_array_equal(pac.predict(X[::-1])[::-1], pac.predict(X))
