"""The positions on the map."""

import time

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.neighbors import NearestNeighbors

from probagg.report import atlas
from probagg.report.atlas import positions


def same_cluster_share(xy, y):
    """The share of points whose nearest other point on the map has their class."""
    nearest = NearestNeighbors(n_neighbors=2).fit(xy).kneighbors(xy)[1][:, 1]
    return (y == y[nearest]).mean()


def test_what_lies_close_in_space_lies_close_on_the_map():
    X, y = make_blobs(400, 20, centers=5, cluster_std=2.0, random_state=0)
    rows, xy = positions(X)
    assert rows.tolist() == list(range(400))
    assert same_cluster_share(xy, y) > 0.98


def test_points_beyond_the_landmarks_lie_among_their_neighbours(monkeypatch):
    """Most points are placed by landmarks, not by t-SNE itself; they must not blur the picture."""
    monkeypatch.setattr(atlas, "LANDMARKS", 300)
    X, y = make_blobs(1500, 8, centers=6, cluster_std=1.5, random_state=0)
    _, xy = positions(X)
    assert same_cluster_share(xy, y) > 0.97
    assert len(np.unique(xy, axis=0)) == len(xy)  # no point hides another


def test_the_map_fills_the_unit_square_and_stays_in_it(digits):
    _, xy = positions(digits[0], max_points=500)
    assert xy.dtype == np.float32
    assert xy.min() >= 0
    assert xy.max() <= 1
    assert np.ptp(xy, axis=0).max() > 0.999


def test_the_same_seed_gives_the_same_map(blobs):
    first, second = positions(blobs[0], random_state=3), positions(blobs[0], random_state=3)
    np.testing.assert_array_equal(first[1], second[1])


def test_at_most_max_points_are_placed_and_rows_say_which(blobs):
    rows, xy = positions(blobs[0], max_points=40)
    assert len(rows) == len(xy) == 40
    assert (np.diff(rows) > 0).all()
    assert rows.max() > 100  # not just the first


@pytest.mark.parametrize("n", [1, 2, 3, 9, 10, 11])
@pytest.mark.parametrize("columns", [1, 2, 60])
def test_few_rows_get_places_too(n, columns, rng):
    for X in (rng.normal(size=(n, columns)), np.ones((n, columns))):
        rows, xy = positions(X)
        assert len(rows) == n
        assert np.isfinite(xy).all()


def test_progress_is_told_from_nothing_to_all(blobs):
    told = []
    positions(blobs[0], progress=lambda done, total: told.append((done, total)))
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1]


def test_no_rows_are_refused_with_the_shape():
    with pytest.raises(ValueError, match=r"shape \(0, 4\)"):
        positions(np.empty((0, 4)))


@pytest.mark.slow
def test_5000_features_of_a_network_take_less_than_15_seconds():
    X, _ = make_blobs(5_000, 1280, centers=10, cluster_std=6.0, random_state=0)
    began = time.perf_counter()
    positions(X)
    assert time.perf_counter() - began < 15
