"""Rows averaged over neighbours and coordinates on the graph, as scikit-learn's transformers."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_circles, make_moons
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from probagg import PAC, GraphCoordinates, SmoothedRows, clustering_accuracy

SPACES = [SmoothedRows(5, 3), GraphCoordinates(4, 5)]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:900], y[:900], X[900:], y[900:]


@parametrize_with_checks([SmoothedRows(), GraphCoordinates(2), GraphCoordinates(20)])
def test_scikit_learn_accepts_the_transformers(estimator, check):
    check(estimator)


def neighbours_by_hand(X, new, n):
    return ((new[:, None] - X) ** 2).sum(2).argsort(1)[:, :n]


def test_rounds_are_means_over_the_row_and_its_neighbours(rng):
    X, new = rng.normal(size=(60, 12)), rng.normal(size=(9, 12))
    near, Z = neighbours_by_hand(X, X, 6), X
    for _ in range(3):
        before, Z = Z, Z[near].mean(1)
    model = SmoothedRows(5, 3)
    np.testing.assert_allclose(model.fit_transform(X), Z)
    expected = before[neighbours_by_hand(X, new, 6)].mean(1)
    np.testing.assert_allclose(model.transform(new), expected)


def test_coordinates_are_steps_of_the_random_walk(rng):
    """Unit rows of D^-1/2 V L^2, averaged over neighbours once, in place of the third step."""
    X, new = rng.normal(size=(80, 12)), rng.normal(size=(9, 12))
    near = neighbours_by_hand(X, X, 6)
    A = np.zeros((80, 80))
    A[np.arange(80)[:, None], near] = 1.0
    A = np.maximum(A, A.T)
    root = np.sqrt(A.sum(1))
    values, V = np.linalg.eigh(A / root / root[:, None])
    U = (V / root[:, None] * values**2)[:, ::-1][:, :4]
    model = GraphCoordinates(4, 5)
    for rows, found in ((X, model.fit_transform(X)), (new, model.transform(new))):
        M = U[neighbours_by_hand(X, rows, 6)].mean(1)
        M /= np.linalg.norm(M, axis=1, keepdims=True)
        np.testing.assert_allclose(found @ found.T, M @ M.T, atol=1e-4)
    np.testing.assert_allclose(model.eigenvalues_, values[::-1][:4], atol=1e-4)


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_give_what_dense_rows_give(space, dtype, rng):
    X = rng.random((120, 30)).astype(dtype) * (rng.random((120, 30)) < 0.3)
    dense, sparse = clone(space), clone(space)
    first, again = dense.fit_transform(X[:90]), sparse.fit_transform(sp.csr_array(X[:90]))
    new, new_sparse = dense.transform(X[90:]), sparse.transform(sp.csr_array(X[90:]))
    assert sp.issparse(again) == isinstance(space, SmoothedRows)
    for a, b in ((first, again), (new, new_sparse)):
        assert a.dtype == b.dtype == dtype
        np.testing.assert_allclose(a, b.toarray() if sp.issparse(b) else b, atol=1e-4)


def test_names_of_columns_pass_through(rng):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rng.random((40, 3)), columns=["a", "b", "c"])
    found = SmoothedRows().set_output(transform="pandas").fit_transform(X)
    assert list(found.columns) == ["a", "b", "c"]
    found = GraphCoordinates(2).set_output(transform="pandas").fit_transform(X)
    assert list(found.columns) == ["graphcoordinates0", "graphcoordinates1"]


@pytest.mark.parametrize("make", [make_moons, make_circles])
def test_pac_finds_groups_that_are_not_compact(make):
    """Also in new rows."""
    options = {"factor": 0.4} if make is make_circles else {}
    X, y = make(1000, noise=0.06, random_state=0, **options)
    model = make_pipeline(GraphCoordinates(2), PAC(2, random_state=0)).fit(X[:600])
    assert clustering_accuracy(y[:600], PAC(2, random_state=0).fit(X[:600]).labels_) < 0.9
    assert clustering_accuracy(y[:600], model[-1].labels_) == 1.0
    assert clustering_accuracy(y[600:], model.predict(X[600:])) == 1.0


def test_digits_are_told_apart_better_and_new_ones_as_well(digits):
    X, y, new, y_new = digits
    scores = {}
    for space in (None, SmoothedRows(), GraphCoordinates(20)):
        pac = PAC(10, m="auto", n_init=3, random_state=0)
        model = (make_pipeline(pac) if space is None else make_pipeline(space, pac)).fit(X)
        scores[type(space)] = [
            clustering_accuracy(y, model[-1].labels_),
            clustering_accuracy(y_new, model.predict(new)),
        ]
        np.testing.assert_allclose(model.predict_proba(new).sum(1), 1.0, atol=1e-9)
    for fitted, predicted in scores.values():
        assert abs(fitted - predicted) < 0.05
    raw = scores.pop(type(None))
    assert all(min(score) > max(raw) for score in scores.values())


def test_two_rows_and_more_coordinates_than_rows_are_no_problem():
    X = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert SmoothedRows().fit_transform(X).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    found = GraphCoordinates(5).fit(X).transform(X)
    assert found.shape == (2, 5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)


def test_the_transformers_serve_other_clusterers(digits):
    X, _, new, y_new = digits
    model = make_pipeline(SmoothedRows(), KMeans(10, n_init=3, random_state=0)).fit(X)
    assert clustering_accuracy(y_new, model.predict(new)) > 0.7
