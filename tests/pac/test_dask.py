"""PAC on Dask arrays and DataFrames: the same fit, whoever computes it."""

import logging
import os
import signal
import threading
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from probagg import PAC
from probagg.errors import InputError

CLUSTERS = 10


@pytest.fixture(autouse=True)
def threads():
    """Without a cluster, tasks run in threads."""
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


@pytest.fixture
def tiny_sample(monkeypatch):
    """Start from 60 rows per cluster, so that the sweeps have something left to do."""
    monkeypatch.setattr("probagg.pac.solver.sample_size", lambda K: 60 * K)


@pytest.fixture
def small_sample(monkeypatch, tiny_sample):
    """Sweep these rows as many are: in tasks of every chunk."""
    monkeypatch.setattr("probagg.pac.dask.SMALL", 0)
    monkeypatch.setattr("probagg.pac.dask.JOINED", 0)


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as workers:
        yield workers


@pytest.fixture
def client(cluster, threads):
    with dask.config.set(scheduler=None), Client(cluster) as connected:
        yield connected


@pytest.fixture(scope="module")
def orders(digits):
    """Digits in random order and sorted by class."""
    X, y = digits
    return {
        "shuffled": X[np.random.default_rng(0).permutation(len(X))],
        "sorted": X[np.argsort(y, kind="stable")],
    }


class AtSweep(logging.Handler):
    """Calls a function when a sweep out of core is logged."""

    def __init__(self, sweep, action):
        super().__init__()
        self.message, self.action = f"out of core, sweep {sweep}:", action

    def emit(self, record):
        if record.getMessage().startswith(self.message):
            self.action()

    def __enter__(self):
        logging.getLogger("probagg").addHandler(self)

    def __exit__(self, *_):
        logging.getLogger("probagg").removeHandler(self)


def interrupt():
    raise KeyboardInterrupt


def fit(X, **options):
    return PAC(CLUSTERS, random_state=0, **options).fit(X)


def short(X, **options):
    """Stop after a few sweeps: what is compared does not depend on convergence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(X, max_iter=4, **options)


def same_to_the_bit(a, b):
    return (
        a.objective_history_ == b.objective_history_
        and np.array_equal(a.moments_.first, b.moments_.first)
        and np.array_equal(np.asarray(a.labels_), np.asarray(b.labels_))
    )


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
def test_chunks_do_not_change_the_solution(orders, order, small_sample):
    """A block represents its part, whose sums it replaces, also where that has few classes."""
    X = orders[order]
    memory = fit(X)
    for n_chunks in (2, 30, 128):
        pac = fit(da.from_array(X, chunks=(-(-len(X) // n_chunks), -1)))
        assert pac.objective_ <= 1.005 * memory.objective_, n_chunks
        assert pac.n_iter_ <= 1.5 * memory.n_iter_
        assert len(np.unique(pac.labels_.compute())) == CLUSTERS


def test_arrays_of_the_size_of_a_sample_give_the_result_in_memory(orders):
    X, w = orders["shuffled"], np.random.default_rng(1).random(1797)
    for weights in (None, w):
        lazy = PAC(CLUSTERS, random_state=0).fit(da.from_array(X, chunks=(400, -1)), None, weights)
        assert same_to_the_bit(lazy, PAC(CLUSTERS, random_state=0).fit(X, None, weights))


def test_small_arrays_are_swept_by_one_task(orders, tiny_sample, monkeypatch):
    X = da.from_array(orders["sorted"], chunks=(15, -1))
    whole, names = fit(X), []
    with dask.callbacks.Callback(pretask=lambda key, *_: names.append(str(key))):
        assert same_to_the_bit(fit(X.rechunk({0: 700})), whole)
    assert sum("pac-" in name for name in names) < 20 * whole.n_iter_  # 16 sums and a sweep
    monkeypatch.setattr("probagg.pac.dask.SMALL", 0)
    np.testing.assert_allclose(fit(X).objective_, whole.objective_, rtol=1e-3)


def test_a_sweep_is_one_graph(orders, small_sample):
    """A round trip to the scheduler takes longer than a block."""
    graphs = []
    with dask.callbacks.Callback(start=graphs.append):
        pac = fit(da.from_array(orders["shuffled"], chunks=(300, -1)))
    assert len(graphs) == pac.n_iter_ + 1  # and the sample


@pytest.mark.parametrize("seed", range(4))
def test_fits_from_a_small_sample_do_not_diverge(orders, seed, small_sample):
    """In blocks of a quarter of the rows, one of these ends at 2.7 times the objective."""
    X = orders["shuffled"]
    pac = PAC(CLUSTERS, random_state=seed).fit(da.from_array(X, chunks=(900, -1)))
    assert pac.objective_ <= 1.005 * PAC(CLUSTERS, random_state=seed).fit(X).objective_


def test_uneven_and_empty_chunks_do_not_matter(orders, small_sample):
    X = orders["sorted"]
    even = fit(da.from_array(X, chunks=(600, -1)))
    uneven = fit(da.from_array(X, chunks=((0, 3, 1200, 0, 593, 1, 0), 64)))
    np.testing.assert_allclose(uneven.objective_, even.objective_, rtol=1e-9)
    np.testing.assert_array_equal(uneven.labels_.compute(), even.labels_.compute())
    assert uneven.labels_.chunks == ((0, 3, 1200, 0, 593, 1, 0),)


def test_results_are_lazy_and_agree_with_predict(orders):
    X = da.from_array(orders["shuffled"], chunks=(500, -1))
    pac = fit(X)
    check_is_fitted(pac)
    for lazy in (pac.labels_, pac.probabilities_, pac.predict(X), pac.transform(X)):
        assert isinstance(lazy, da.Array)
    assert pac.probabilities_.shape == (1797, CLUSTERS)
    assert pac.labels_.dtype == np.int64
    np.testing.assert_array_equal(pac.labels_.compute(), pac.predict(orders["shuffled"]))
    P = pac.predict_proba(orders["shuffled"])
    np.testing.assert_allclose(pac.probabilities_.compute(), P, atol=1e-12)
    clusters, values = pac.predict_top(X, 2)
    np.testing.assert_array_equal(clusters.compute()[:, 0], P.argmax(1))
    np.testing.assert_allclose(values.compute()[:, 0], P.max(1), atol=1e-12)
    np.testing.assert_allclose(pac.score(X), pac.score(orders["shuffled"]), rtol=1e-9)


def test_lazy_results_stay_those_of_their_fit(orders):
    X = da.from_array(orders["shuffled"], chunks=(900, -1))
    pac = PAC(CLUSTERS, random_state=0).fit(X)
    lazy, expected = pac.labels_, pac.labels_.compute()
    pac.set_params(n_clusters=3).fit(X)
    np.testing.assert_array_equal(lazy.compute(), expected)


def test_a_dataframe_of_numbers_is_clustered(orders):
    frame = pd.DataFrame(orders["shuffled"], columns=[f"pixel {i}" for i in range(64)])
    pac = fit(dd.from_pandas(frame, npartitions=3))
    assert pac.feature_names_in_[1] == "pixel 1"
    np.testing.assert_array_equal(pac.labels_.compute(), pac.predict(frame))
    assert pac.predict(dd.from_pandas(frame, npartitions=2)).compute().shape == (1797,)


def test_text_columns_are_named_in_an_error_that_mends_them(two_clusters):
    frame = pd.DataFrame(two_clusters[0], columns=["a", "b"]).assign(name="x", kind="y")
    X = dd.from_pandas(frame, npartitions=2)
    with pytest.raises(InputError, match="name, kind") as error:
        PAC(2).fit(X)
    mended = str(error.value).split(": ")[-1].rstrip(".")
    assert eval(mended).columns.tolist() == ["a", "b"]
    assert PAC(2, random_state=0).fit(eval(mended)).n_features_in_ == 2


@pytest.mark.parametrize("problem", ["unknown sizes", "column chunks"])
def test_chunks_that_cannot_be_used_are_mended_by_the_line_in_the_error(two_clusters, problem):
    rows = two_clusters[0]
    X = da.from_array(rows, chunks=(20, 1 if problem == "column chunks" else -1))
    X = X if problem == "column chunks" else X[X[:, 0] > -100]
    with pytest.raises(InputError, match="X = X") as error:
        PAC(2).fit(X)
    scope = {"X": X}
    exec(str(error.value).split(": ", 1)[1].rstrip("."), scope)
    labels = PAC(2, random_state=0).fit(scope["X"]).labels_.compute()
    assert labels.shape == (len(rows),)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (da.zeros(5), "1 dimensions"),
        (da.from_array(np.array([["a"], ["b"]])), "numbers"),
        (dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1), "shape"),
        (da.zeros((6, 2), chunks=(3, 2)).map_blocks(sp.csr_array), r"chunk.toarray\(\)"),
    ],
)
def test_other_dask_collections_are_refused(X, message):
    with pytest.raises(InputError, match=message):
        PAC(2).fit(X)


def test_a_missing_value_in_a_chunk_is_one_clear_error(orders):
    X = orders["shuffled"].copy()
    X[1500, 7] = np.nan
    with pytest.raises(InputError, match="missing or infinite values, the first in column 7"):
        fit(da.from_array(X, chunks=(400, -1)))
    pac = fit(da.from_array(orders["shuffled"], chunks=(400, -1)))
    with pytest.raises(InputError, match="missing or infinite values"):
        pac.predict(da.from_array(X, chunks=(400, -1))).compute()


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int64", "float32"])
def test_numbers_of_any_type_are_clustered(orders, dtype):
    X = orders["shuffled"]
    pac = fit(da.from_array(X.astype(dtype), chunks=(900, -1)))
    np.testing.assert_allclose(pac.objective_, fit(X).objective_, rtol=5e-3)
    assert pac.probabilities_.dtype == ("float64" if dtype == "int64" else "float32")


def test_weights_of_any_kind_count_as_repeated_rows(orders, small_sample):
    X = orders["shuffled"]
    w = np.random.default_rng(1).integers(0, 3, len(X))
    chunked = da.from_array(X, chunks=(500, -1))
    given = {
        "array": w,
        "dask": da.from_array(w, chunks=300),
        "series": dd.from_pandas(pd.Series(w), npartitions=2),
    }
    fits = [PAC(CLUSTERS, random_state=0).fit(chunked, sample_weight=v) for v in given.values()]
    assert same_to_the_bit(fits[0], fits[1])
    assert same_to_the_bit(fits[0], fits[2])
    repeated = fit(np.repeat(X, w, axis=0))
    np.testing.assert_allclose(fits[0].objective_, repeated.objective_, rtol=5e-3)
    np.testing.assert_allclose(fits[0].moments_.mass.sum(), w.sum())


@pytest.mark.parametrize("w", [np.ones(3), -np.ones(41), np.zeros(41), np.full(41, np.nan)])
def test_weights_that_cannot_be_used_are_refused(two_clusters, w):
    with pytest.raises(InputError, match="sample_weight"):
        PAC(2).fit(da.from_array(two_clusters[0], chunks=(20, -1)), sample_weight=w)


def test_an_interrupted_fit_resumes_to_the_bit(orders, small_sample, tmp_path):
    X, path = da.from_array(orders["shuffled"], chunks=(500, -1)), tmp_path / "fit.safetensors"
    with AtSweep(4, interrupt), pytest.raises(KeyboardInterrupt):
        fit(X, checkpoint=path, verbose=2)
    assert path.exists()
    sweeps = []
    with AtSweep(3, lambda: sweeps.append(3)):
        resumed = fit(X, checkpoint=path, verbose=2)
    assert not sweeps  # done before the interruption
    assert same_to_the_bit(resumed, fit(X))
    assert not path.exists()


def test_a_fit_without_a_seed_resumes_with_that_of_its_checkpoint(orders, small_sample, tmp_path):
    X, path = da.from_array(orders["shuffled"], chunks=(900, -1)), tmp_path / "fit.safetensors"
    with AtSweep(3, interrupt), pytest.raises(KeyboardInterrupt):
        PAC(CLUSTERS, checkpoint=path, verbose=2).fit(X)
    pac = PAC(CLUSTERS, checkpoint=path).fit(X)
    assert pac.n_iter_ > 2
    assert not path.exists()


def test_a_checkpoint_of_another_fit_is_refused(orders, small_sample, tmp_path):
    X, path = da.from_array(orders["shuffled"], chunks=(900, -1)), tmp_path / "fit.safetensors"
    with AtSweep(2, interrupt), pytest.raises(KeyboardInterrupt):
        fit(X, checkpoint=path, verbose=2)
    with pytest.raises(InputError, match="its n_clusters is 10, not 3"):
        PAC(3, random_state=0, checkpoint=path).fit(X)
    with pytest.raises(InputError, match="its data is"):
        fit(X[::-1], checkpoint=path)
    with pytest.raises(InputError, match="its data is"):
        PAC(CLUSTERS, random_state=0, checkpoint=path).fit(X, sample_weight=np.arange(1, 1798))
    with pytest.raises(InputError, match="its shape is"):
        fit(X[:1200], checkpoint=path)
    with pytest.raises(InputError, match="its chunks is"):  # rounds are made of them
        fit(X.rechunk({0: 15}), checkpoint=path)


@pytest.fixture
def few_sweeps():
    """A round on a cluster takes a tenth of a second, whatever its rows."""
    with pytest.warns(ConvergenceWarning):
        yield {"max_iter": 3}


def test_the_number_of_workers_does_not_matter_to_the_bit(orders, small_sample, client, few_sweeps):
    X = da.from_array(orders["sorted"], chunks=(300, -1))
    expected = fit(X.persist(), **few_sweeps)
    client.cluster.scale(3)
    client.wait_for_workers(3)
    assert same_to_the_bit(fit(X.persist(), **few_sweeps), expected)


@pytest.mark.filterwarnings("error:Sending large graph")
def test_a_killed_worker_does_not_change_the_result(orders, small_sample, client, few_sweeps):
    X = da.from_array(orders["shuffled"], chunks=(300, -1)).persist()
    expected = fit(X, **few_sweeps)
    victim = next(iter(client.run(os.getpid).values()))

    def kill():  # in the middle of the next sweep
        threading.Timer(0.05, os.kill, (victim, signal.SIGKILL)).start()

    with AtSweep(1, kill):
        survived = fit(X, verbose=2, **few_sweeps)
    assert victim not in client.run(os.getpid).values()
    assert same_to_the_bit(survived, expected)
