"""The space in which PAC clusters, chosen without labels."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_blobs, make_moons

from probagg import PAC, clustering_accuracy
from probagg.pac import space as spaces
from probagg.pac.solver import Parameters
from probagg.pac.space import choose_space


def clustered(space, X, K):
    """Return labels by PAC in a space."""
    at = space.parameters(Parameters(K))
    pac = PAC(K, m=at.m, metric=at.metric, n_init=3, random_state=0)
    return pac.fit(space.transform(X)).labels_


def test_groups_that_are_not_compact_are_clustered_in_coordinates():
    X, y = make_moons(800, noise=0.05, random_state=0)
    space = choose_space(X, Parameters(2, random_state=0, balance="auto"))
    assert space.name == "coordinates"
    assert space.reason.startswith("2 coordinates on the graph of neighbours: modularity 0.500")
    assert clustering_accuracy(y, clustered(space, X, 2)) == 1.0


def test_digits_gain_ten_points():
    X, y = load_digits(return_X_y=True)
    space = choose_space(X.astype(np.float32), Parameters(10, random_state=0))
    assert space.name == "coordinates"
    assert clustering_accuracy(y, clustered(space, X.astype(np.float32), 10)) > 0.88


@pytest.mark.parametrize("sizes", [[300] * 4, [900, 60, 40, 40]])
def test_compact_groups_stay_as_they_are(sizes):
    X, _ = make_blobs(sizes, 6, random_state=0)
    space = choose_space(X, Parameters(4, random_state=0, balance="auto"))
    assert space.name == "raw"
    assert space.transform(X) is X
    assert "instead of" in space.reason


@pytest.mark.parametrize("name", ["raw", "averaged", "coordinates"])
def test_a_space_may_be_named(name, rng):
    X = rng.normal(size=(200, 12))
    assert choose_space(X, Parameters(3, random_state=0), name).name == name


def test_few_rows_and_other_metrics_stay_as_they_are(rng):
    X = rng.normal(size=(50, 12))
    assert "fewer than 20 per cluster" in choose_space(X, Parameters(5)).reason
    for parameters in (Parameters(2, metric="cityblock"), Parameters(1)):
        assert choose_space(X, parameters).name == "raw"


def test_many_rows_are_judged_by_some(rng, monkeypatch):
    X, y = make_moons(1500, noise=0.05, random_state=0)
    monkeypatch.setattr(spaces, "MOST_ROWS", 500)
    space = choose_space(X, Parameters(2, random_state=0))
    assert space.transformer._rows.shape == (500, 2)
    assert clustering_accuracy(y, clustered(space, X, 2)) == 1.0


def test_sparse_rows_have_coordinates(rng):
    topics = rng.random((3, 40)) ** 6
    X = sp.csr_array(rng.poisson(8.0 * topics[np.arange(300) % 3]).astype(float))
    space = choose_space(X, Parameters(3, random_state=0), "coordinates")
    assert space.name == "coordinates"
    assert space.transform(X).shape[0] == 300
    assert choose_space(X, Parameters(3), "averaged").name == "raw"


def test_the_choice_follows_the_seed():
    X, _ = make_moons(400, noise=0.1, random_state=0)
    first, again = (choose_space(X, Parameters(2, random_state=5)) for _ in range(2))
    assert first.reason == again.reason
