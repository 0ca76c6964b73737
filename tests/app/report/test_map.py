"""The positions on the map."""

import time

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.neighbors import NearestNeighbors

from probagg.app.report.map import positions


def same_cluster_share(xy, y):
    """Return the share of points whose nearest neighbour on the map has the same class."""
    nearest = NearestNeighbors(n_neighbors=2).fit(xy).kneighbors(xy)[1][:, 1]
    return (y == y[nearest]).mean()


def test_what_lies_close_in_space_lies_close_on_the_map():
    X, y = make_blobs(400, 20, centers=5, cluster_std=2.0, random_state=0)
    rows, xy = positions(X)
    assert rows.tolist() == list(range(400))
    assert same_cluster_share(xy, y) > 0.98


def test_points_beyond_the_landmarks_lie_among_their_neighbours(monkeypatch):
    """Most points are placed by landmarks, not by t-SNE itself; they must not blur the map."""
    monkeypatch.setattr("probagg.app.report.map.LANDMARKS", 300)
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
def test_few_rows_get_positions_too(n, columns, rng):
    for X in (rng.normal(size=(n, columns)), np.ones((n, columns))):
        rows, xy = positions(X)
        assert len(rows) == n
        assert np.isfinite(xy).all()


@pytest.mark.parametrize("scale", [2.0**-1030, 2.0**100, 2.0**1000])
def test_the_map_ignores_the_unit_of_measure(scale, rng):
    """float32 holds neither such numbers nor their squares, so rows are scaled first."""
    X = rng.integers(-9, 10, (60, 4)).astype(float)  # few bits: scaling loses none
    np.testing.assert_array_equal(positions(X * scale)[1], positions(X)[1])


@pytest.mark.parametrize("offset", [1e9, 1_700_000_000, -(2.0**50)])
def test_the_map_ignores_an_offset(offset, rng):
    """Times in seconds differ only in digits that float32 drops, so rows are centred first."""
    X = rng.integers(0, 31, (60, 2)).astype(float)
    np.testing.assert_array_equal(positions(X + offset)[1], positions(X)[1])


def odd_rows(kind, rng):
    """Return 60 rows on which t-SNE or PCA could fail."""
    largest = np.finfo(float).max
    return {
        "equal": np.full((60, 3), 0.1),
        "all but one equal": np.vstack([np.full((59, 3), 0.1), [[1e30, 2.0, 3.0]]]),
        "the largest numbers": rng.choice([-largest, largest], (60, 3)),
        "heavy tails": np.exp(200 * rng.normal(size=(60, 5))),
        "some not finite": rng.choice([0.0, 1.0, np.nan, np.inf, -np.inf], (60, 3)),
        "none finite": rng.choice([np.nan, np.inf, -np.inf], (60, 3)),
        "unsigned": 1_700_000_000 + rng.integers(0, 31, (60, 2)).astype(np.uint64),
        "true or false": rng.random((60, 4)) > 0.5,
    }[kind]


@pytest.mark.parametrize(
    "kind",
    ["equal", "all but one equal", "the largest numbers", "heavy tails", "some not finite",
     "none finite", "unsigned", "true or false"],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_odd_rows_get_positions_in_the_square(kind, rng):
    _, xy = positions(odd_rows(kind, rng))
    assert np.isfinite(xy).all()
    assert xy.min() >= 0
    assert xy.max() <= 1
    assert np.ptp(xy, axis=0).max() > 0.999


def test_equal_landmarks_are_not_passed_to_tsne(monkeypatch, rng):
    """The one row that differs need not be a landmark; t-SNE would turn the others into NaN."""
    monkeypatch.setattr("probagg.app.report.map.LANDMARKS", 20)
    X = np.full((400, 3), 0.1)
    X[7] = 5.0
    for seed in range(5):
        assert np.isfinite(positions(X, random_state=seed)[1]).all()


def test_progress_goes_from_nothing_to_all(blobs):
    told = []
    positions(blobs[0], progress=lambda done, total: told.append((done, total)))
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1]


def test_an_empty_array_is_refused_with_its_shape():
    with pytest.raises(ValueError, match=r"shape \(0, 4\)"):
        positions(np.empty((0, 4)))


@pytest.mark.slow
def test_5000_features_of_a_network_take_less_than_15_seconds():
    X, _ = make_blobs(5_000, 1280, centers=10, cluster_std=6.0, random_state=0)
    began = time.perf_counter()
    positions(X)
    assert time.perf_counter() - began < 15
