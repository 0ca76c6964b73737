import logging
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import parametrize_with_checks

from probagg import PAC, OPAHead, clustering_accuracy
from probagg.errors import ClusteringWarning

pytestmark = pytest.mark.filterwarnings("ignore::probagg.errors.ClusteringWarning")


@parametrize_with_checks([OPAHead(3, max_epochs=20), OPAHead(3, max_epochs=20, hidden=(8,))])
def test_scikit_learn_checks(estimator, check):
    """No check is exempt."""
    check(estimator)


def test_column_names_are_kept_and_do_not_warn(tmp_path, digits):
    frame = pd.DataFrame(digits[0][:300]).add_prefix("x")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ClusteringWarning)
        head = OPAHead(3, max_epochs=5, random_state=0).fit(frame)
        head.save(tmp_path / "head.safetensors")
        OPAHead.load(tmp_path / "head.safetensors").predict(frame)
    assert head.feature_names_in_[0] == "x0"


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_a_tensor_gives_the_answers_of_an_array_as_tensors(metric, digits, tmp_path):
    X = digits[0][:600].astype(np.float32)
    arrays = OPAHead(5, metric=metric, max_epochs=10, random_state=0, device="cpu").fit(X)
    tensors = OPAHead(5, metric=metric, max_epochs=10, random_state=0).fit(torch.from_numpy(X))
    assert isinstance(tensors.labels_, torch.Tensor)
    assert (tensors.labels_.numpy() == arrays.labels_).mean() > 0.99
    P = tensors.predict_proba(torch.from_numpy(X).half())
    assert P.dtype == torch.float32
    np.testing.assert_allclose(P.numpy(), arrays.predict_proba(X), atol=1e-2)
    tensors.save(tmp_path / "head.safetensors")
    again = OPAHead.load(tmp_path / "head.safetensors")
    np.testing.assert_array_equal(again.predict(X), tensors.labels_.numpy())


def test_bfloat16_is_computed_in_higher_precision(digits):
    X = torch.tensor(digits[0][:300], dtype=torch.float32)  # small integers, exact in both
    exact = OPAHead(5, max_epochs=3, random_state=0, device="cpu").fit(X)
    head = OPAHead(5, max_epochs=3, random_state=0, device="cpu").fit(X.bfloat16())
    assert torch.equal(head.labels_, exact.labels_)


@pytest.mark.parametrize("X", [torch.zeros(9), torch.full((9, 2), torch.nan)])
def test_a_tensor_that_cannot_be_clustered_is_an_error(X):
    with pytest.raises(ValueError, match="X "):
        OPAHead(2).fit(X)


def test_cosine_ignores_the_length_of_rows(rng):
    y = rng.integers(4, size=1500)
    X = (4 * np.eye(6)[y] + 0.5 * rng.standard_normal((1500, 6))) * np.exp(
        rng.normal(size=(1500, 1))
    )
    head = OPAHead(4, metric="cosine", random_state=0).fit(X)
    assert clustering_accuracy(y, head.labels_) > 0.98
    np.testing.assert_array_equal(head.predict(0.01 * X), head.labels_)


def test_sorted_or_periodic_rows_do_not_bias_the_diagnosis():
    X, y = make_blobs(9000, 5, centers=3, random_state=1)
    order = np.argsort(np.argsort(y, kind="stable") % 3000, kind="stable")
    head = OPAHead(3, max_epochs=20, random_state=0).fit(X[order])
    assert head.diagnosis_.state == "clustering"
    assert head.diagnosis_.agreement > 0.95


@pytest.mark.parametrize(("shift", "scale"), [(1e8, 1.0), (0.0, 1e150), (0.0, 1e-150)])
def test_the_unit_of_measure_does_not_matter(shift, scale):
    X, y = make_blobs(900, 5, centers=3, random_state=1)
    head = OPAHead(3, random_state=0).fit(X * scale + shift)
    assert clustering_accuracy(y, head.labels_) > 0.98


def test_default_dtype_no_grad_and_autocast_do_not_affect_a_fit(digits):
    X = digits[0][:300]
    expected = OPAHead(3, max_epochs=3, random_state=0).fit(X).predict_proba(X)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            found = OPAHead(3, max_epochs=3, random_state=0).fit(X).predict_proba(X)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_batch_size_sets_the_number_of_steps(digits):
    heads = [OPAHead(3, max_epochs=2, batch_size=b).fit(digits[0][:600]) for b in (600, 300, 100)]
    assert [head.n_iter_ for head in heads] == [2, 4, 12]


@pytest.mark.parametrize("hidden", [(), (32,)])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_it_finds_blobs(hidden, metric):
    X, y = make_blobs(1000, 8, centers=4, random_state=3)
    head = OPAHead(4, hidden=hidden, metric=metric, random_state=0).fit(X)
    assert clustering_accuracy(y, head.labels_) > 0.98
    assert head.diagnosis_.state == "clustering"
    assert head.labels_.dtype == head.predict(X).dtype == np.int64
    assert head.loss_history_[-1] < 0.5 * max(head.loss_history_)


@pytest.mark.parametrize("seed", [0, 2])  # from a random start, seed 2 ends five points lower
def test_it_is_as_good_as_pac_on_digits(digits, seed):
    X, y = digits
    head, pac = OPAHead(10, random_state=seed).fit(X), PAC(10, random_state=seed).fit(X)
    assert clustering_accuracy(y, head.labels_) > clustering_accuracy(y, pac.labels_) - 0.02
    assert clustering_accuracy(pac.labels_, head.labels_) > 0.9


def test_it_follows_unequal_sizes_at_a_low_balance():
    X, y = make_blobs([1000, 60, 60, 60], 5, random_state=3, center_box=(-12, 12))
    even, free = (OPAHead(4, balance=b, random_state=0).fit(X) for b in (1.0, 0.0))
    assert clustering_accuracy(y, free.labels_) > 0.9 > 0.7 > clustering_accuracy(y, even.labels_)


def test_a_random_start_knows_nothing_of_pac(digits):
    X = digits[0][:600]
    options = {"max_epochs": 9, "random_state": 0}
    random, pac = (OPAHead(5, init=init, **options).fit(X) for init in ("random", "pac"))
    of_pac = PAC(5, n_init=3, random_state=0).fit(X).labels_
    assert clustering_accuracy(of_pac, pac.labels_) > 0.88
    assert clustering_accuracy(of_pac, random.labels_) < 0.84


@pytest.mark.parametrize("init", ["pac", "random"])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["array", "tensor"])
def test_known_rows_keep_their_cluster_and_others_follow(digits, init, kind):
    """Cluster k is class k."""
    X, y = kind(digits[0].astype(np.float32)), digits[1]
    known = np.where(np.arange(len(y)) % 3 == 0, y, -1)
    head, plain = (OPAHead(10, init=init, max_epochs=50, random_state=0) for _ in range(2))
    labels = np.asarray(head.fit(X, known_labels=known).labels_)
    np.testing.assert_array_equal(labels[::3], y[::3])
    others, without = known < 0, np.asarray(plain.fit(X).labels_)
    right = (labels[others] == y[others]).mean()
    assert right > clustering_accuracy(y[others], without[others]) + 0.03


def test_known_labels_reach_pac_also_where_it_sees_some_of_the_rows(digits):
    """PAC starts from 4,096 rows; known ones are among them."""
    X, y = np.tile(digits[0], (4, 1)), np.tile(digits[1], 4)
    known = np.full(len(y), -1)
    known[-60:] = y[-60:]
    head = OPAHead(10, max_epochs=12, random_state=0).fit(X, known_labels=known)
    assert (head.predict(X) == y).mean() > 0.7
    np.testing.assert_array_equal(head.labels_[-60:], y[-60:])


def test_the_seed_determines_the_fit_and_global_generators_are_not_used(digits):
    X = digits[0][:500]
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, other = (OPAHead(5, max_epochs=5, random_state=s).fit(X) for s in (0, 0, 1))
    assert torch.rand(1) == expected
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert not np.array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("hidden", [(), (16, 8)])
def test_a_saved_head_predicts_the_same(tmp_path, digits, hidden):
    X = digits[0][:500]
    head = OPAHead(5, hidden=hidden, max_epochs=5, random_state=np.int64(3)).fit(X)
    head.save(tmp_path / "head.safetensors")
    loaded = OPAHead.load(tmp_path / "head.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), head.predict_proba(X))
    assert (loaded.n_iter_, loaded.n_features_in_) == (head.n_iter_, head.n_features_in_)
    with pytest.raises(ValueError, match=r"holds 'probagg.opa-head/1', but 'probagg.pac/1'"):
        PAC.load(tmp_path / "head.safetensors")


def test_a_memory_map_gives_the_same_result(tmp_path, digits):
    X = digits[0].astype(np.uint8)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    head = OPAHead(10, max_epochs=3, random_state=0)
    np.testing.assert_array_equal(head.fit(mapped).labels_, head.fit(X).labels_)


def test_verbose_logs_progress(digits, caplog):
    with caplog.at_level(logging.INFO, "probagg"):
        OPAHead(5, max_epochs=20, random_state=0, verbose=1).fit(digits[0][:300])
    assert len(caplog.messages) == 10
    assert caplog.messages[0].startswith("OPAHead, epoch 2 of 20: loss ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 500}, "n_samples=100 should be >= n_clusters=500"),
        ({"n_clusters": "auto"}, r"OPAHead needs a number. select_n_clusters"),
        ({"metric": "manhattan"}, "'metric' parameter of OPAHead must be"),
        ({"m": 1.0}, "'m' parameter of OPAHead"),
        ({"hidden": (0,)}, r"hidden is \(0,\), but widths of at least 1"),
    ],
)
def test_bad_settings_are_one_clear_error(digits, options, message):
    with pytest.raises(ValueError, match=message):
        OPAHead(**options).fit(digits[0][:100])


def test_wrong_known_labels_are_one_clear_error(digits):
    with pytest.raises(ValueError, match="known_labels has 9, but n_clusters is 5"):
        OPAHead(5).fit(digits[0][:100], known_labels=np.full(100, 9))


def test_a_fit_computes_in_one_thread_and_leaves_the_number_as_it_was(digits, monkeypatch):
    """Threads of small steps wait for each other where the machine is busy."""
    before, seen = torch.get_num_threads(), set()
    monkeypatch.setattr(OPAHead, "_train", lambda *_: seen.add(torch.get_num_threads()))
    torch.set_num_threads(2)
    try:
        OPAHead(3, max_epochs=1, random_state=0).fit(digits[0][:100])
        assert seen == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
