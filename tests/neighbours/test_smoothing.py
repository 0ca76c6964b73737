"""PAC's probabilities smoothed over the kNN graph, for fitted and for new rows."""

import numpy as np
import pytest
from problems import bar_and_dot

from probagg import PAC, clustering_accuracy
from probagg.errors import InputError
from probagg.neighbours import smoothing
from probagg.neighbours.smoothing import PHOTO_ROUNDS, Smoothing, count_nearest, sharpness, smooth


@pytest.fixture(scope="module")
def bar():
    """Features, classes, and PAC's probabilities."""
    X, y = bar_and_dot(600)
    return X, y, PAC(2, metric="cosine", m="auto", random_state=0).fit(X).probabilities_


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def by_the_book(X, rows, P):
    """Return P after five rounds over the kNN graph, raised to the power found by bisection."""
    near = np.argsort(-(unit(X) @ rows.T), axis=1)[:, : count_nearest(len(X), P.shape[1])]
    Q = smooth(near, P, rounds=PHOTO_ROUNDS)
    low, high = 0.01, 100.0
    while high - low > 1e-12 * low:
        power = (low + high) / 2
        R = Q**power / (Q**power).sum(1, keepdims=True)
        low, high = (power, high) if R.max(1).mean() < P.max(1).mean() else (low, power)
    return R


def test_all_rounds_are_those_of_the_graph_and_keep_the_mean_confidence(bar):
    X, _, P = bar
    model, found = Smoothing.fit(X, P)
    rows = model.rows.astype(float)
    np.testing.assert_allclose(found, by_the_book(X, rows, P), atol=1e-5)
    np.testing.assert_allclose(unit(rows), unit(X), atol=1e-3)
    assert sharpness(found) == pytest.approx(sharpness(P), abs=1e-4)


def test_smoothing_mends_a_boundary_that_pac_places_by_sums_alone(bar):
    """The ends of a long group are nearer to the mean of the other one."""
    X, y, P = bar
    model, smoothed = Smoothing.fit(X, P)
    new, y_new = bar_and_dot(600, seed=1)
    assert clustering_accuracy(y, P.argmax(1)) < 0.98
    assert clustering_accuracy(y, smoothed.argmax(1)) > 0.99
    assert clustering_accuracy(y_new, model.predict_proba(new).argmax(1)) > 0.99


@pytest.mark.parametrize("sample", [100, 10_000])
def test_a_fitted_row_is_predicted_as_it_was_fitted(bar, sample, monkeypatch):
    X, y, P = bar
    monkeypatch.setattr(smoothing, "SAMPLE", sample)
    steps = []
    model, found = Smoothing.fit(X, P, progress=lambda done, total: steps.append((done, total)))
    assert steps == ([(600, 600)] if sample < 600 else [])
    assert model.rows.shape == (min(sample, 600), 3)
    for rows in (slice(None), slice(17, 18), slice(100, 350)):
        np.testing.assert_array_equal(model.predict_proba(X[rows]), found[rows])
    assert clustering_accuracy(y, found.argmax(1)) > 0.98


def test_blocks_and_the_length_of_rows_change_nothing(bar, monkeypatch):
    X, _, P = bar
    _, whole = Smoothing.fit(X, P)
    monkeypatch.setattr(smoothing, "CHUNK", 7)
    _, parts = Smoothing.fit(X * np.geomspace(1e-30, 1e30, 600)[:, None], P)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_the_sample_follows_the_seed(bar, monkeypatch):
    X, _, P = bar
    monkeypatch.setattr(smoothing, "SAMPLE", 100)
    first, again, other = (Smoothing.fit(X, P, seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.rows, again.rows)
    assert (first.rows != other.rows).any()


def test_rows_of_another_width_or_without_a_value_are_refused(bar):
    X, _, P = bar
    model, _ = Smoothing.fit(X, P)
    with pytest.raises(InputError, match="NaN or infinite"):
        model.predict_proba(np.full((1, 3), np.nan))
    with pytest.raises(InputError, match=r"shape \(1, 4\), but rows of 3 features"):
        model.predict_proba(np.ones((1, 4)))


@pytest.mark.parametrize("n", [1, 2, 3, 40])
@pytest.mark.parametrize("kind", ["equal", "zero", "distinct"])
def test_few_equal_or_empty_rows_have_probabilities(n, kind, rng):
    X = {"equal": np.ones((n, 4)), "zero": np.zeros((n, 4)), "distinct": rng.normal(size=(n, 4))}
    for K in {1, min(n, 3), n}:
        P = np.eye(K)[np.arange(n) % K] * 0.9 + 0.1 / K
        _, found = Smoothing.fit(X[kind], P / P.sum(1, keepdims=True))
        np.testing.assert_allclose(found.sum(1), 1.0, atol=1e-6)
        assert np.isfinite(found).all()


def test_a_cluster_without_mass_gains_none(bar):
    X, _, P = bar
    _, found = Smoothing.fit(X, np.pad(P, ((0, 0), (0, 1))))
    np.testing.assert_array_equal(found[:, 2], 0.0)
