"""P without the tails of its rows, where clusters are many."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from probagg import PAC
from probagg.aggregation import TAIL, assign, assign_nearest, true_places
from probagg.environment import blas_threads
from probagg.pac import rows as rows_module
from probagg.pac.assignment import Update, entries_of, without_tails
from probagg.pac.coordinates import Coordinates
from probagg.pac.rows import LinearRows
from probagg.pac.sweeps import BlockSweeps, differences, rows_within

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::probagg.errors.ClusteringWarning"),
]


@pytest.fixture
def small_blocks(monkeypatch):
    """P of a few thousand rows may be kept as entries."""
    monkeypatch.setattr("probagg.pac.sweeps.LEAST_SCORES", 1)


def many_blobs(n=4000, n_groups=50, dim=8, dtype=np.float32):
    rng = np.random.default_rng(0)
    y = rng.integers(n_groups, size=n)
    X = rng.uniform(-10, 10, (n_groups, dim))[y] + rng.standard_normal((n, dim))
    return X.astype(dtype), y


@pytest.mark.parametrize("m", [1.001, 1.03, 1.1, 1.5, 3.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_left_out_of_a_row_is_at_most_the_tail(rng, m, dtype):
    S = (rng.random((200, 300)) ** 4 + 1e-3).astype(dtype)
    rows, clusters, values = assign_nearest(S, m, np.zeros(300, dtype))
    found = sp.csr_array((values, (rows, clusters)), shape=S.shape).toarray()
    P = assign(S, m)
    assert np.where(found == 0.0, P, 0.0).sum(1).max() <= TAIL
    np.testing.assert_allclose(found, P, atol=2 * TAIL)


@pytest.mark.parametrize("n", [1, 7, 8, 100, 1003])
def test_places_are_found_eight_at_a_time(rng, n):
    found = rng.random(n) < 0.1
    np.testing.assert_array_equal(true_places(found), np.flatnonzero(found))


@pytest.mark.parametrize("balance", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("aggregate", ["p", "p_m"])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_a_sweep_without_tails_is_a_sweep(small_blocks, rng, balance, aggregate, kind):
    """In the same blocks, from the same start, both forms of P end in the same P and sums."""
    X, y = many_blobs(dtype=np.float64)
    w, update = rng.random(len(X)) + 0.5, Update(1.03, aggregate, balance)
    P = np.eye(50)[y] * 0.9 + 0.1 / 50
    found = []
    for start in (P, without_tails(P)):
        rows = LinearRows(kind(X), w, None, Coordinates.of(kind(X), "sqeuclidean"))
        sweeps = BlockSweeps(rows, np.asfortranarray(start) if start is P else start, update)
        sweeps.block = int(0.25 * sweeps.blocks.n_rows * 0.03)
        change, departure = sweeps.sweep()
        found.append((sweeps.P.toarray(), rows.sums, change, departure, sweeps.objective()))
    (P, *dense), (Q, *sparse) = found
    assert abs(P - Q).mean() < 1e-6  # a row in between two clusters multiplies the difference
    assert abs(P - Q).max() < 0.01
    for one, other in zip(dense, sparse, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=2e-3)


def test_clusters_of_clusters_end_at_the_objective_of_a_uniform_start(small_blocks, digits):
    X = digits[0][::2].astype(np.float32)
    auto = [PAC(32, random_state=seed).fit(X) for seed in range(2)]
    uniform = [PAC(32, init="uniform", random_state=seed).fit(X) for seed in range(2)]
    assert np.mean([pac.objective_ for pac in auto]) < 1.005 * np.mean(
        [pac.objective_ for pac in uniform]
    )


def test_the_groups_of_many_blobs_are_found(small_blocks):
    X, y = many_blobs()
    pac = PAC(50, random_state=0).fit(X)
    assert adjusted_rand_score(y, pac.labels_) > 0.98
    assert pac.objective_ < 1.001 * PAC(50, init="uniform", random_state=0).fit(X).objective_
    np.testing.assert_array_equal(pac.predict(X), pac.labels_)
    np.testing.assert_allclose(pac.probabilities_.sum(1), 1.0, atol=1e-5)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_groups_of_many_clusters_start_by_k_means_plus_plus(small_blocks, kind):
    """sqrt(400) groups have more clusters each than PAC finds in one of them."""
    X, y = many_blobs(8000, 400)
    pac = PAC(400, random_state=0).fit(kind(X), sample_weight=np.ones(len(X)))
    assert adjusted_rand_score(y, pac.labels_) > 0.95


def test_p_is_dense_where_it_is_not_almost_empty(small_blocks):
    """Near the critical m every cluster has a share of every row."""
    X, y = many_blobs()
    for m, is_sparse in ((1.03, True), (1.3, False)):
        rows = LinearRows(X, None, None, Coordinates.of(X, "sqeuclidean"))
        sweeps = BlockSweeps(rows, without_tails(np.eye(50, dtype=np.float32)[y]), Update(m))
        for _ in range(3):
            sweeps.sweep()
        assert sp.issparse(sweeps.P) == is_sparse
        np.testing.assert_allclose(sweeps.P.sum(0), rows.mass, rtol=1e-3)


def test_many_clusters_need_little_memory(monkeypatch):
    """P of 20,000 rows and 1,000 clusters would take 80 MB."""
    monkeypatch.setattr("probagg.pac.inputs.KEPT_BYTES", 0)
    X, _ = many_blobs(20_000, 1000)
    tracemalloc.start()
    pac = PAC(1000, random_state=0, max_iter=2).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6
    P = pac.probabilities_
    assert sp.issparse(P)
    assert P.shape == (20_000, 1000)
    np.testing.assert_allclose(P.sum(1), 1.0, atol=1e-5)
    assert (P.toarray()[:1000].argmax(1) == pac.labels_[:1000]).all()
    assert (pac.predict_top(X[:1000], 1)[0][:, 0] == pac.predict(X[:1000])).mean() > 0.99


def test_weights_count_as_repeated_rows_where_clusters_are_many(small_blocks):
    X, y = many_blobs()
    w = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    weighted = PAC(50, random_state=0).fit(X, sample_weight=w)
    assert weighted.moments_.mass.sum() == pytest.approx(w.sum())
    assert adjusted_rand_score(y, weighted.labels_) > 0.9


def test_duplicates_and_as_many_clusters_as_rows_are_finite(small_blocks, rng):
    X = np.repeat(rng.standard_normal((40, 4)), 50, axis=0).astype(np.float32)
    for rows, K in ((X, 40), (X, 100), (X[::50], 40)):
        pac = PAC(K, random_state=0, max_iter=20).fit(rows)
        assert np.isfinite(pac.probabilities_).all()
        assert np.isfinite(pac.objective_)


def test_a_block_ends_before_it_fills_a_cluster():
    dA = np.array([0, 1, 2, 2, 3]), np.array([1, 1, 0, 1, 1]), np.ones(5)
    assert rows_within(2.5, dA, (4, 2)) == 2
    assert rows_within(0.5, dA, (4, 2)) == 1  # a row at least
    assert rows_within(4.0, dA, (4, 2)) == 4


@pytest.mark.parametrize("aggregate", ["p", "p_m"])
@pytest.mark.parametrize("weighted", [False, True])
def test_differences_of_entries_are_those_of_the_arrays(rng, aggregate, weighted):
    old, new = np.where(rng.random((2, 6, 5)) < 0.4, rng.random((2, 6, 5)), 0.0)
    w, update = (rng.random(6) if weighted else None), Update(1.1, aggregate)
    entries = (entries_of(sp.csr_array(P), slice(0, 6)) for P in (new, old))
    zeros = np.zeros(30)
    dA, dP = differences(*entries, 5, update, w, zeros)
    assert not zeros.any()
    weights = 1.0 if w is None else w[:, None]
    after, before = (weights * update.weigh(P) for P in (new, old))
    for (rows, clusters, values), expected in ((dA, after - before), (dP, new - old)):
        found = np.zeros((6, 5))
        np.add.at(found, (rows, clusters), values)
        np.testing.assert_allclose(found, expected, atol=1e-15)


def test_threads_do_not_change_the_result(monkeypatch, small_blocks):
    X, _ = many_blobs()
    monkeypatch.setattr("probagg.pac.assignment.PART", 2**10)
    found = []
    for n_threads in (1, 3):
        monkeypatch.setattr("probagg.pac.sweeps.blas_threads", lambda n=n_threads: n)
        found.append(PAC(50, random_state=0).fit(X).probabilities_)
    np.testing.assert_array_equal(*found)


def test_products_of_small_chunks_use_one_thread(monkeypatch, digits):
    """Beside another process a second thread makes small products several times as slow."""
    seen = {}

    def watch(owner, name):
        original = getattr(owner, name)

        def watched(*given):
            seen.setdefault(name, set()).add(blas_threads())
            return original(*given)

        monkeypatch.setattr(owner, name, watched)

    watch(rows_module, "lifted_growth")
    watch(LinearRows, "scores")
    watch(LinearRows, "absorb")
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        PAC(10, random_state=0).fit(digits[0])
        assert blas_threads() == before
    assert seen == {"lifted_growth": {1}, "scores": {1}, "absorb": {1}}


def test_rows_in_memory_are_clustered_as_from_a_file(monkeypatch, tmp_path):
    monkeypatch.setattr("probagg.pac.solver.sample_size", lambda K: 60 * K)
    X, y = many_blobs(n_groups=5)
    np.save(tmp_path / "rows.npy", X)
    in_memory = PAC(5, random_state=0).fit(X)
    from_file = PAC(5, random_state=0).fit(tmp_path / "rows.npy")
    np.testing.assert_array_equal(in_memory.labels_, from_file.labels_)
    assert in_memory.objective_ == from_file.objective_
    assert in_memory.probabilities_.shape == (len(X), 5)
    sparse = PAC(5, random_state=0).fit(sp.csr_array(X))
    assert adjusted_rand_score(y, sparse.labels_) > 0.98


def test_many_clusters_of_a_file_are_those_of_the_array(monkeypatch, small_blocks, tmp_path):
    monkeypatch.setattr("probagg.pac.solver.sample_size", lambda K: 20 * K)
    X, _ = many_blobs()
    np.save(tmp_path / "rows.npy", X)
    pac = PAC(40, random_state=0).fit(tmp_path / "rows.npy")
    assert pac.objective_ < 1.02 * PAC(40, init="uniform", random_state=0).fit(X).objective_


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_rows_start_apart_where_uniform_ones_would_stay_together(kind):
    """Masses of a sample vary, and to the power 1 / (m - 1) the lightest would take all rows."""
    rng = np.random.default_rng(0)
    centres, y = rng.uniform(-10, 10, (250, 128)).astype(np.float32), rng.integers(250, size=10_000)
    X = centres[y] + 4 * rng.standard_normal((10_000, 128), np.float32)
    pac = PAC(250, random_state=0).fit(kind(X))
    assert pac.m_ > pac.critical_m_
    assert adjusted_rand_score(y, pac.labels_) > 0.99
    assert pac.n_iter_ <= 10
