"""Numbers at the ends of their type: a right answer, or one clear error."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score, pairwise_distances
from threadpoolctl import threadpool_limits

import probagg
from probagg import PAC
from probagg.errors import InputError

TRUTH = np.arange(60) % 2


def rows(scale, dtype=np.float64):
    """Return two clusters whose largest value is about ten times `scale`."""
    X = np.random.default_rng(0).normal(size=(60, 3)) + 9 * TRUTH[:, None]
    return (X * scale).astype(dtype)


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(5e-324, "f8"), (1e-320, "f8"), (1e-300, "f8"), (1e150, "f8"), (1e-45, "f4"), (1e37, "f4")],
)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_rows_of_any_size_are_clustered(scale, dtype, kind):
    """The reciprocal of a denormal scale is infinite: rows became NaN."""
    X = kind(np.abs(rows(scale, dtype)))
    pac = PAC(2, m="auto", random_state=0).fit(X)
    assert adjusted_rand_score(TRUTH, pac.labels_) == 1.0
    assert adjusted_rand_score(TRUTH, pac.predict(X)) == 1.0


@pytest.mark.parametrize("scale", [1e152, 1e200, 1e300, 1e307])
@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
def test_rows_whose_squares_overflow_are_refused(scale, fit):
    with pytest.raises(InputError, match=r"squared distances overflow.*Divide X by a constant"):
        getattr(PAC(2, random_state=0), fit)(rows(scale))


def test_distances_whose_sums_overflow_are_refused():
    D = pairwise_distances(rows(1.0))
    for pac, X in ((PAC(2, metric="precomputed"), D * 1e305), (PAC(2, metric="manhattan"), 1e306)):
        given = rows(X) if isinstance(X, float) else X
        with pytest.raises(InputError, match="sums of distances overflow"):
            pac.fit(given)


def test_a_new_row_that_is_too_far_away_is_refused():
    """Its probabilities were NaN, and its label 0."""
    pac = PAC(2, random_state=0).fit(rows(1.0))
    assert np.isfinite(pac.predict_proba(np.full((1, 3), 1e100))).all()
    with pytest.raises(InputError, match=r"so far from the rows that were fitted \(1e\+200\)"):
        pac.predict(np.full((1, 3), 1e200))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_number_of_threads_gives_the_same_bits(threads):
    """With another number sums are rounded in another order, so noise may be labelled otherwise."""
    X = np.random.default_rng(0).normal(size=(20_000, 30))
    with threadpool_limits(threads):
        first, second = (PAC(10, random_state=0, max_iter=5).fit(X) for _ in range(2))
        np.testing.assert_array_equal(first.probabilities_, second.probabilities_)
        np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_a_number_of_clusters_may_be_a_number_of_numpy(kind):
    """200 K does not fit into eight bits."""
    X = rows(1.0)
    expected = PAC(3, random_state=0).fit(X).labels_
    np.testing.assert_array_equal(PAC(kind(3), random_state=0).fit(X).labels_, expected)


def test_masked_values_are_not_used():
    X = np.ma.masked_array(rows(1.0), mask=np.arange(180).reshape(60, 3) == 4)
    for use in (PAC(2).fit, functools.partial(probagg.cluster, n_clusters=2)):
        with pytest.raises(InputError, match=r"1 masked values\. Fill them in"):
            use(X)
    X.mask = False
    assert PAC(2).fit(X).labels_.shape == (60,)


def csr(name, place, value):
    X = sp.csr_array(np.maximum(rows(1.0), 0))
    getattr(X, name)[place] = value
    return X


DAMAGED = {
    "beyond": lambda: csr("indices", 3, 77),
    "negative": lambda: csr("indices", 3, -7),
    "pointer": lambda: csr("indptr", 3, 10**6),
    "coordinates": lambda: _coordinates(77),
}


def _coordinates(value):
    X = sp.coo_array(np.maximum(rows(1.0), 0))
    X.coords[1][5] = value
    return X


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_sparse_array_that_points_outside_is_an_error_and_no_crash(kind):
    """SciPy reads and writes other memory."""
    for use in (PAC(2).fit, functools.partial(probagg.cluster, n_clusters=2)):
        with pytest.raises(InputError, match="The sparse X is damaged"):
            use(DAMAGED[kind]())


@pytest.mark.parametrize("form", ["csr", "coo"])
def test_a_sparse_file_that_states_quadrillions_of_columns_is_refused(tmp_path, form):
    X = sp.coo_array(([1.0], ([0], [3])), shape=(2, 10**15))
    sp.save_npz(tmp_path / "a.npz", X if form == "coo" else sp.csr_array(X))
    with pytest.raises(
        InputError, match=r"of shape \(2, 1000000000000000\), needs about 8e\+06 GB"
    ):
        probagg.cluster(tmp_path / "a.npz", 2)


@pytest.mark.parametrize(("part", "shape"), [(np.s_[:, :2], "20, 2"), (np.s_[:7], "7, 3")])
def test_dask_chunks_of_another_shape_than_stated_are_an_error(part, shape):
    da = pytest.importorskip("dask.array")
    X = da.from_array(rows(1.0), chunks=(20, 3))
    X = X.map_blocks(lambda chunk: chunk[part], dtype=float, chunks=X.chunks)
    with pytest.raises(InputError, match=rf"has the shape \({shape}\), but \(20, 3\) is stated"):
        PAC(2).fit(X)
