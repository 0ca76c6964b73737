import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from probagg import PAC, aggregate, clustering_accuracy
from probagg.aggregation import objective
from probagg.errors import InputError
from probagg.pac.solver import Parameters
from probagg.pac.stream import Reservoir, growing_blocks


def stream(pac, X, size=100, weights=None):
    for start in range(0, X.shape[0], size):
        rows = slice(start, start + size)
        pac.partial_fit(X[rows], sample_weight=None if weights is None else weights[rows])
    return pac


def hard_objective(X, labels, K):
    return objective(X, np.eye(K)[labels])


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(3000, 8, centers=5, cluster_std=1.0, random_state=3)


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
def test_a_stream_of_digits_ends_near_the_objective_of_a_fit(digits, order):
    """Each row is seen once, and in a sorted stream all rows of a class together."""
    X, y = digits
    X = X[np.argsort(y, kind="stable")] if order == "sorted" else X
    fitted = hard_objective(X, PAC(10, random_state=0).fit(X).labels_, 10)
    streamed = stream(PAC(10, random_state=0), X)
    assert hard_objective(X, streamed.predict(X), 10) < 1.01 * fitted
    batches = stream(MiniBatchKMeans(10, random_state=0), X)
    assert hard_objective(X, batches.predict(X), 10) > 1.05 * fitted


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
@pytest.mark.parametrize("size", [1, 7, 3000])
def test_chunks_of_any_size_find_blobs(blobs, metric, size):
    X, y = blobs
    n = 300 if size == 1 else len(X)
    pac = stream(PAC(5, metric=metric, random_state=0), X[:n], size)
    assert clustering_accuracy(y, pac.predict(X)) > 0.99
    assert pac.n_iter_ == -(-n // size)


def test_a_chunk_larger_than_the_sample_is_seen_whole():
    """Means of 40,000 rows are four times as exact as those of the 5,000 that are kept."""
    X, y = make_blobs(40_000, 4, centers=4, cluster_std=1.0, random_state=1)
    pac = PAC(4, random_state=0).partial_fit(X[np.argsort(y)])
    assert clustering_accuracy(y, pac.predict(X)) > 0.99
    np.testing.assert_allclose(pac.moments_.mass.sum(), len(X))
    fitted = hard_objective(X, PAC(4, random_state=0).fit(X).labels_, 4)
    assert hard_objective(X, pac.predict(X), 4) < 1.001 * fitted


def test_attributes_describe_the_last_chunk_and_the_whole_stream(blobs):
    X = blobs[0]
    pac = stream(PAC(5, random_state=0), X)
    chunk = X[-100:]
    np.testing.assert_array_equal(pac.labels_, pac.predict(chunk))
    np.testing.assert_array_equal(pac.probabilities_, pac.predict_proba(chunk))
    assert pac.n_features_in_ == 8
    np.testing.assert_allclose(aggregate(chunk, pac.moments_), pac.transform(chunk), rtol=1e-8)
    np.testing.assert_allclose(pac.moments_.mass.sum(), len(X))
    assert pac.objective_ == pytest.approx(-pac.score(X) * len(X), rel=0.02)
    assert 1.0 < pac.m_ < pac.critical_m_


def test_the_stream_and_the_seed_determine_the_result(blobs):
    X = blobs[0]
    one, two, other = (stream(PAC(5, random_state=s), X).probabilities_ for s in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_a_pickled_stream_goes_on_as_if_nothing_had_happened(blobs):
    X = blobs[0]
    whole = stream(PAC(5, random_state=0), X)
    half = pickle.loads(pickle.dumps(stream(PAC(5, random_state=0), X[:1500])))
    np.testing.assert_array_equal(stream(half, X[1500:]).probabilities_, whole.probabilities_)


def test_too_few_rows_are_kept_and_predict_says_how_many_are_needed(blobs):
    X = blobs[0]
    pac = PAC(5, random_state=0).partial_fit(X[:1]).partial_fit(X[1:4])
    with pytest.raises(NotFittedError, match=r"seen 4 rows .* after n_clusters=5. Call partial"):
        pac.predict(X)
    assert pac.partial_fit(X[4:5]).predict(X).max() < 5


def test_labels_keep_their_meaning_when_clusters_are_found_anew(digits):
    X = digits[0]
    pac, labels = PAC(10, random_state=0), []
    for start in range(0, 1700, 100):
        labels.append(pac.partial_fit(X[start : start + 100]).predict(X))
    same = [np.mean(a == b) for a, b in itertools.pairwise(labels[5:])]
    assert min(same) > 0.8


def turning(rng, steps):
    """Five blobs on a circle that turns once, two hundred rows per step."""
    for step in range(steps):
        y = rng.integers(5, size=200)
        angle = 2.0 * np.pi * (y / 5 + step / steps)
        yield 8.0 * np.c_[np.cos(angle), np.sin(angle)] + rng.normal(size=(200, 2)), y


def test_forgetting_follows_clusters_that_move():
    """Without it, clusters stay on arcs of the circle, and blobs cross from one to the next."""
    accuracies = {}
    for forgetting in (1.0, 0.8):
        pac, found = PAC(5, forgetting=forgetting, random_state=0), []
        for X, y in turning(np.random.default_rng(3), 60):
            found.append(clustering_accuracy(y, pac.partial_fit(X).labels_))
        accuracies[forgetting] = np.mean(found[-20:])
    assert accuracies[0.8] > 0.95
    assert accuracies[0.8] > accuracies[1.0] + 0.05


def test_forgetting_decays_the_weight_of_earlier_chunks(blobs):
    pac = stream(PAC(5, forgetting=0.5, random_state=0), blobs[0][:400])
    np.testing.assert_allclose(pac.moments_.mass.sum(), 100 + 50 + 25 + 12.5)


def test_a_stream_after_fit_continues_its_clusters(blobs, tmp_path):
    X = blobs[0]
    pac = PAC(5, random_state=0).fit(X[:2000])
    before = pac.predict(X)
    pac.save(tmp_path / "pac.safetensors")
    for fitted in (pac, PAC.load(tmp_path / "pac.safetensors")):
        stream(fitted, X[2000:])
        np.testing.assert_allclose(fitted.moments_.mass.sum(), 3000)
        assert (fitted.predict(X) == before).mean() > 0.99


def test_fit_forgets_the_stream(blobs):
    X = blobs[0]
    pac = stream(PAC(5, random_state=0), X + 100.0).fit(X)
    np.testing.assert_array_equal(pac.labels_, PAC(5, random_state=0).fit(X).labels_)
    pac.partial_fit(X[:10])
    np.testing.assert_allclose(pac.moments_.mass.sum(), 3010)


def test_a_streamed_model_is_saved(blobs, tmp_path):
    X = blobs[0]
    pac = stream(PAC(5, forgetting=0.9, random_state=0), X)
    pac.save(tmp_path / "pac.safetensors")
    again = PAC.load(tmp_path / "pac.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), pac.predict_proba(X))
    assert again.forgetting == 0.9


def test_sparse_rows_are_streamed(blobs):
    X, y = blobs
    pac = stream(PAC(5, random_state=0), sp.csr_array(X))
    assert clustering_accuracy(y, pac.predict(X)) > 0.99
    pac.partial_fit(X[:100])  # dense rows may follow
    assert clustering_accuracy(y, pac.predict(X)) > 0.99


def test_float32_may_be_followed_by_float64(blobs):
    X, y = blobs
    pac = stream(stream(PAC(5, random_state=0), X[:1000].astype(np.float32)), X[1000:])
    assert clustering_accuracy(y, pac.predict(X)) > 0.99


def test_rows_of_weight_zero_do_not_count_and_heavy_rows_count_more(blobs):
    X, y = blobs
    weights = np.where(y == 0, 0.0, 2.0)
    pac = stream(PAC(4, random_state=0), X, weights=weights)
    np.testing.assert_allclose(pac.moments_.mass.sum(), weights.sum())
    assert clustering_accuracy(y[y > 0], pac.predict(X[y > 0])) > 0.99
    assert len(pac.labels_) == 100


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_far_outside_leaves_numbers_finite(blobs, dtype):
    X = blobs[0]
    pac = stream(PAC(5, random_state=0), X.astype(dtype))
    far = np.full((1, 8), np.finfo(dtype).max ** 0.45, dtype)
    pac.partial_fit(far)
    assert np.isfinite(pac.moments_.sums).all()
    assert np.isfinite(pac.predict_proba(X)).all()


def test_an_offset_loses_no_digits(blobs):
    X, y = blobs
    pac = stream(PAC(5, random_state=0), X + 1e7)
    assert clustering_accuracy(y, pac.predict(X + 1e7)) > 0.99


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "manhattan"}, "partial_fit needs metric='sqeuclidean' or 'cosine'"),
        ({"init": np.ones((10, 5))}, "partial_fit cannot use an array as init"),
        ({"forgetting": 0.0}, "'forgetting' parameter of PAC must be a float in the range"),
        ({"forgetting": 1.1}, "'forgetting' parameter of PAC must be a float in the range"),
    ],
)
def test_parameters_that_do_not_stream_are_refused(blobs, parameters, message):
    with pytest.raises(ValueError, match=message):
        PAC(5, **parameters).partial_fit(blobs[0])


@pytest.mark.parametrize("changed", [{"n_clusters": 6}, {"metric": "cosine"}])
def test_other_clusters_are_not_continued(blobs, changed):
    pac = PAC(5, random_state=0).fit(blobs[0])
    with pytest.raises(InputError, match=r"fitted with .* start again"):
        pac.set_params(**changed).partial_fit(blobs[0])
    clone(pac).partial_fit(blobs[0])


def test_an_m_at_which_no_cluster_can_form_is_reported(digits):
    with pytest.warns(ConvergenceWarning, match="critical value"):
        stream(PAC(10, m=1.3, random_state=0), digits[0][:300])


def test_progress_is_logged(blobs, caplog):
    with caplog.at_level("INFO", "probagg"):
        stream(PAC(5, random_state=0, verbose=1), blobs[0][:400])
    assert "stream, chunk 1: first clusters from a sample of 100 rows" in caplog.text
    assert "stream, chunk 2: refined clusters from a sample of 200 rows" in caplog.text


def test_sums_over_the_sample_are_unbiased():
    """With weights over two decades and decay; the error of the mean is about 1 %."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(600, 1)) + 3.0, 10.0 ** rng.uniform(-1, 1, 600)
    decayed = w * 0.8 ** np.repeat([2, 1, 0], 200)
    found = []
    for seed in range(300):
        sample, generator = Reservoir(50), np.random.default_rng(seed)
        for t in range(3):
            part = slice(200 * t, 200 * (t + 1))
            sample.offer(X[part], np.log(w[part]) - t * np.log(0.8), generator)
        found.append(sample.weights(-2 * np.log(0.8)) @ sample.X[:, 0])
        assert sample.n_rows == 50
    assert np.mean(found) == pytest.approx(decayed @ X[:, 0], rel=0.03)


def test_a_sample_that_is_not_full_holds_every_row_with_its_weight():
    X, w = np.arange(12.0).reshape(6, 2), np.arange(1.0, 7.0)
    sample, generator = Reservoir(10), np.random.default_rng(0)
    sample.offer(X[:4], np.log(w[:4]), generator)
    sample.offer(X[4:], np.log(w[4:]), generator)
    np.testing.assert_array_equal(sample.X, X)
    np.testing.assert_allclose(sample.weights(0.0), w)


def test_blocks_are_small_beside_what_was_seen():
    blocks = list(growing_blocks(np.ones(1000), 100.0, Parameters(5), 1.03))
    assert blocks[0] == slice(0, 3)
    assert blocks[-1].stop == 1000
    for before, after in itertools.pairwise(blocks):
        assert before.stop == after.start
        assert after.stop - after.start <= max(1, 0.03 * (100 + after.start))
