"""The fast solver against Algorithm 1 as in the paper, `benchmarks/paper/algorithm_1.py`."""

import warnings

import numpy as np
import pytest
from problems import soft
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances

from benchmarks.paper.algorithm_1 import algorithm_1
from probagg import PAC


def sweeps(X, P, n_sweeps, sample_weight=None, **options):
    """Return a PAC after exactly `n_sweeps` sweeps in the order of the rows."""
    options = {"block_size": 1, "shuffle": False} | options
    pac = PAC(P.shape[1], init=P, max_iter=n_sweeps, tol=0.0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pac.fit(X, sample_weight=sample_weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
@pytest.mark.parametrize("n_sweeps", [1, 2, 10])
def test_single_row_blocks_are_algorithm_1(rng, metric, n_sweeps, weighted):
    """Clusters form from a near-uniform start during these sweeps."""
    X = rng.standard_normal((90, 7)) + 3 * np.eye(7)[rng.integers(4, size=90)]
    P = 1 + 0.02 * rng.random((90, 4))
    P /= P.sum(1, keepdims=True)
    w = rng.random(90) + 0.5 if weighted else None
    D = pairwise_distances(X, metric=metric)
    exact = algorithm_1(D, P, 1.03, n_sweeps, w=w)
    pac = sweeps(X, P, n_sweeps, sample_weight=w, metric=metric)
    np.testing.assert_allclose(pac.probabilities_, exact, atol=1e-8)
    assert pac.n_iter_ == n_sweeps


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("aggregate", ["p", "p_m"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_option_follows_the_reference(rng, aggregate, balance, weighted):
    X, P = rng.standard_normal((60, 5)), soft(rng, 60, 3)
    w = rng.random(60) + 0.5 if weighted else None
    D = pairwise_distances(X, metric="sqeuclidean")
    exact = algorithm_1(D, P, 1.3, 3, w=w, aggregate=aggregate, balance=balance)
    pac = sweeps(X, P, 3, sample_weight=w, m=1.3, aggregate=aggregate, balance=balance)
    np.testing.assert_allclose(pac.probabilities_, exact, atol=1e-8)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "precomputed"])
@pytest.mark.parametrize("weighted", [False, True])
def test_other_metrics_follow_the_reference(rng, metric, weighted):
    X, P = rng.standard_normal((60, 5)), soft(rng, 60, 3)
    w = rng.random(60) + 0.5 if weighted else None
    D = pairwise_distances(X, metric="euclidean" if metric == "precomputed" else metric)
    exact = algorithm_1(D, P, 1.1, 3, w=w)
    data = D if metric == "precomputed" else X
    pac = sweeps(data, P, 3, sample_weight=w, m=1.1, metric=metric)
    np.testing.assert_allclose(pac.probabilities_, exact, atol=1e-8)
    A = exact if w is None else exact * w[:, None]
    assert pac.objective_ == pytest.approx(np.sum(A * (D @ A)))


@pytest.mark.parametrize("block_size", [7, 64, 200, 300])
def test_panels_change_nothing_but_speed(rng, block_size):
    """Linear rows in panels and all distances at once agree for any block size."""
    X, P = rng.standard_normal((300, 5)), soft(rng, 300, 3)
    D = pairwise_distances(X, metric="sqeuclidean")
    options = {"block_size": block_size, "m": 1.3}
    linear = sweeps(X, P, 3, **options)
    pairwise = sweeps(D, P, 3, metric="precomputed", **options)
    np.testing.assert_allclose(linear.probabilities_, pairwise.probabilities_, atol=1e-9)
    assert linear.objective_ == pytest.approx(pairwise.objective_)
    assert linear.critical_m_ == pytest.approx(pairwise.critical_m_, abs=1e-3)


def test_p_m_descends_its_objective_at_every_sweep(digits):
    """With p^m in the sum each update is exact coordinate descent."""
    pac = PAC(10, aggregate="p_m", m=1.1, block_size=1, random_state=0, max_iter=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        history = pac.fit(digits[0][:400]).objective_history_
    assert (np.diff(history) <= 1e-9 * history[0]).all()


def test_rows_gathered_during_a_sweep_give_the_same_result(rng, monkeypatch):
    """Rows too large to keep lifted are gathered and lifted panel by panel."""
    X = rng.standard_normal((500, 6)) + 4 * np.eye(6)[rng.integers(5, size=500)]
    w = rng.random(500) + 0.5
    kept = PAC(5, random_state=0).fit(X, sample_weight=w)
    monkeypatch.setattr("probagg.pac.rows.KEPT_BYTES", 0)
    gathered = PAC(5, random_state=0).fit(X, sample_weight=w)
    np.testing.assert_allclose(gathered.probabilities_, kept.probabilities_, atol=1e-9)
