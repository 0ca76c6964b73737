"""Results are finite and accurate where floating-point arithmetic is difficult."""

import numpy as np
import pytest
import torch
from problems import soft
from sklearn.metrics import adjusted_rand_score

from probagg import PAC, clustering_accuracy

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def assert_finite(pac, X):
    for array in (
        pac.probabilities_, pac.predict_proba(X), pac.transform(X), pac.moments_.sums,
        pac.cluster_means_, pac.objective_history_, pac.critical_m_, pac.score(X),
    ):  # fmt: skip
        assert np.isfinite(array).all()


@pytest.mark.parametrize("m", [1.001, 1.03, 1.2, 3.0])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_m_is_finite_on_duplicates_and_constant_columns(rng, m, metric, dtype):
    X = np.repeat(rng.standard_normal((20, 4)), 5, axis=0).astype(dtype)
    X[:, 2] = 7.0
    for K in (1, 2, 10, 20, 40, 100):
        assert_finite(PAC(K, m=m, metric=metric, random_state=0, max_iter=30).fit(X), X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_identical_rows_and_zero_rows_are_finite(dtype):
    for X in (np.ones((10, 3), dtype), np.zeros((10, 3), dtype)):
        for metric in ("sqeuclidean", "cosine"):
            for balance in (0.0, 1.0):
                pac = PAC(3, metric=metric, balance=balance, random_state=0).fit(X)
                assert_finite(pac, X)


def test_as_many_clusters_as_samples_separates_them(rng):
    X = rng.standard_normal((12, 3)) * 10
    pac = PAC(12, random_state=0, n_init=5).fit(X)
    assert_finite(pac, X)
    assert len(set(pac.labels_)) >= 10


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_the_unit_of_measure_loses_no_digits(blobs, scale, metric):
    X, _ = blobs
    init = soft(np.random.default_rng(0), 300, 3)
    options = {"init": init, "metric": metric, "shuffle": False, "max_iter": 5, "tol": 0.0}
    expected, scaled = PAC(3, **options).fit(X), PAC(3, **options).fit(X * scale)
    np.testing.assert_allclose(scaled.probabilities_, expected.probabilities_, atol=1e-9)
    assert_finite(scaled, X * scale)
    np.testing.assert_array_equal(scaled.predict(X * scale), expected.predict(X))


def test_an_offset_of_1e8_loses_only_digits_of_the_data_itself(blobs):
    X, _ = blobs
    pac = PAC(3, random_state=0).fit(X + 1e8)
    assert_finite(pac, X + 1e8)
    assert adjusted_rand_score(PAC(3, random_state=0).fit(X).labels_, pac.labels_) > 0.99
    np.testing.assert_array_equal(pac.predict(X + 1e8), pac.labels_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_outlier_does_not_change_the_other_labels(blobs, dtype):
    """From a start at the true classes, one row at 1e6 does not move the others."""
    X, y = blobs
    X = np.vstack([X, np.full((1, 5), 1e6)]).astype(dtype)
    y = np.append(y, 3)
    pac = PAC(4, init=np.eye(4)[y], balance=0.0).fit(X)
    assert_finite(pac, X)
    assert clustering_accuracy(y, pac.labels_) > 0.95


def test_sums_over_many_thin_blocks_do_not_drift(rng):
    """The sums are float64 for float32 rows, so thousands of updates agree with one sum."""
    X = rng.standard_normal((20_000, 2)).astype(np.float32)
    pac = PAC(3, m=1.3, block_size=5, max_iter=3, random_state=0).fit(X)
    np.testing.assert_allclose(
        pac.moments_.mass, pac.probabilities_.sum(0, dtype=np.float64), rtol=1e-6
    )


def test_one_enormous_weight_is_finite(rng):
    X = rng.standard_normal((50, 3)).astype(np.float32)
    pac = PAC(2, random_state=0).fit(X, sample_weight=np.r_[1e12, np.ones(49)])
    assert_finite(pac, X)


@pytest.mark.parametrize("weight", [1e-30, 1e25])
@pytest.mark.parametrize("rows", [np.asarray, torch.tensor])
def test_the_unit_of_the_weights_does_not_matter(blobs, weight, rows):
    """Weights count relative to each other; their squares may not be numbers of float32."""
    X, w = rows(blobs[0].astype(np.float32)), np.tile([1.0, 2.0, 3.0], 100)
    expected = PAC(3, random_state=0).fit(X, sample_weight=w)
    found = PAC(3, random_state=0).fit(X, sample_weight=weight * w)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_allclose(found.moments_.mass / weight, expected.moments_.mass, rtol=1e-3)


def test_a_weight_that_is_infinite_in_the_type_of_a_tensor_is_an_error(blobs):
    X = torch.tensor(blobs[0], dtype=torch.float32)
    with pytest.raises(ValueError, match="too large for dtype"):
        PAC(3).fit(X, sample_weight=np.full(len(X), 1e200))


def test_a_cluster_that_emptied_has_a_finite_mean(digits):
    X, _ = digits
    pac = PAC(10, block_size=len(X), random_state=0, max_iter=20).fit(X)
    assert_finite(pac, X)
    assert np.abs(pac.cluster_means_).max() < 1e3
