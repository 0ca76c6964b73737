import logging

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import parametrize_with_checks

from probagg import PAC, OPAHead, clustering_accuracy

pytestmark = pytest.mark.filterwarnings("ignore::probagg.opa.diagnose.ClusteringWarning")


@parametrize_with_checks([OPAHead(3, max_epochs=60), OPAHead(3, max_epochs=60, hidden=(8,))])
def test_scikit_learn_checks(estimator, check):
    """All of them: nothing is excused."""
    check(estimator)


@pytest.mark.parametrize("hidden", [(), (32,)])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_it_finds_blobs(hidden, metric):
    X, y = make_blobs(1000, 8, centers=4, random_state=3)
    head = OPAHead(4, hidden=hidden, metric=metric, random_state=0).fit(X)
    assert clustering_accuracy(y, head.labels_) > 0.98
    assert head.diagnosis_.state == "clustering"
    assert head.loss_history_[-1] < max(head.loss_history_)


def test_it_is_near_pac_on_digits(digits):
    X, y = digits
    head, pac = OPAHead(10, random_state=0).fit(X), PAC(10, n_init=5, random_state=0).fit(X)
    assert clustering_accuracy(y, head.labels_) > 0.75
    assert clustering_accuracy(pac.labels_, head.labels_) > 0.8


def test_the_seed_decides_and_global_seeds_are_left_alone(digits):
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
    with pytest.raises(ValueError, match=r"holds 'probagg.opa-head/1', but 'probagg.pac/1'"):
        PAC.load(tmp_path / "head.safetensors")


def test_rows_come_from_a_memory_map(tmp_path, digits):
    X = digits[0].astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    head = OPAHead(10, max_epochs=3, random_state=0)
    np.testing.assert_array_equal(head.fit(mapped).labels_, head.fit(X).labels_)


def test_progress_is_logged_when_asked_for(digits, caplog):
    with caplog.at_level(logging.INFO, "probagg"):
        OPAHead(5, max_epochs=20, random_state=0, verbose=1).fit(digits[0][:300])
    assert len(caplog.messages) == 10
    assert caplog.messages[0].startswith("OPAHead, epoch 2 of 20: loss ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 500}, "n_samples=100 should be >= n_clusters=500"),
        ({"metric": "manhattan"}, "'metric' parameter of OPAHead must be"),
        ({"m": 1.0}, "'m' parameter of OPAHead"),
    ],
)
def test_bad_settings_are_one_clear_error(digits, options, message):
    with pytest.raises(ValueError, match=message):
        OPAHead(**options).fit(digits[0][:100])
