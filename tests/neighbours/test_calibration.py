"""Memberships as confident as neighbours agree."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs

from probagg import PAC, calibrate, clustering_accuracy
from probagg.neighbours.graph import nearest_rows


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y, PAC(10, random_state=0).fit(X).probabilities_


def test_the_mean_confidence_is_the_agreement_of_neighbours(digits):
    X, _, P = digits
    labels = P.argmax(1)
    agreement = (labels[nearest_rows(X, 10)] == labels[:, None]).mean()
    assert calibrate(P, X).max(1).mean() == pytest.approx(agreement, abs=1e-3)


def test_rows_keep_their_clusters_and_memberships_their_order(digits):
    X, _, P = digits
    found = calibrate(P, X)
    np.testing.assert_array_equal(found.argmax(1), P.argmax(1))
    np.testing.assert_allclose(found.sum(1), 1.0)
    assert (np.diff(np.take_along_axis(found, np.argsort(P, 1), 1), axis=1) >= -1e-12).all()


def test_confidence_is_closer_to_the_share_of_right_rows(digits):
    X, y, P = digits
    right = clustering_accuracy(y, P.argmax(1))
    before, after = P.max(1).mean() - right, calibrate(P, X).max(1).mean() - right
    assert 0.0 < after < 0.7 * before


def test_clear_groups_stay_clear_and_one_cut_in_two_does_not():
    """PAC gives 0.97 on average to halves of one cloud, which share many neighbours."""
    X = make_blobs([200, 200], 5, random_state=0)[0]
    clear = PAC(2, random_state=0).fit(X).probabilities_
    assert calibrate(clear, X).max(1).mean() > 0.999
    cloud = make_blobs(400, 5, centers=1, random_state=0)[0]
    cut = PAC(2, random_state=0).fit(cloud).probabilities_
    assert calibrate(cut, cloud).max(1).mean() < cut.max(1).mean() - 0.1


def test_memberships_of_exactly_one_are_softened(digits):
    X, _, P = digits
    hard = np.eye(10, dtype=np.float32)[P.argmax(1)]
    assert calibrate(hard, X).max(1).mean() == pytest.approx(calibrate(P, X).max(1).mean())


def test_rows_of_another_number_are_refused(digits):
    X, _, P = digits
    with pytest.raises(ValueError, match=r"P has the shape \(5, 10\) and X 6 rows"):
        calibrate(P[:5], X[:6])
