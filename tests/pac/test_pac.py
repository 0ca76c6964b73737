import logging
import pickle
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
import torch
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score, pairwise_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probagg import PAC, clustering_accuracy, critical_m
from probagg.aggregation import aggregate
from probagg.errors import InputError
from probagg.pac.sweeps import converge


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "euclidean"])
def test_it_finds_blobs(metric):
    X, y = make_blobs(500, 8, centers=5, cluster_std=1.0, random_state=3)
    pac = PAC(5, metric=metric, random_state=0).fit(X)
    assert clustering_accuracy(y, pac.labels_) > 0.99
    assert pac.labels_.dtype == pac.predict(X).dtype == np.int64


def test_digits_reach_an_accuracy_of_77_percent(digits):
    X, y = digits
    pac = PAC(10, n_init=10, random_state=0).fit(X)
    assert clustering_accuracy(y, pac.labels_) > 0.77


def test_the_best_of_several_starts_is_kept(digits, caplog):
    with caplog.at_level(logging.INFO, "probagg"):
        best = PAC(10, n_init=6, random_state=0, verbose=1).fit(digits[0][:600])
    objectives = [float(message.rpartition("J ")[2]) for message in caplog.messages]
    assert len(objectives) == 6
    assert min(objectives) < max(objectives)
    assert best.objective_ == pytest.approx(min(objectives), rel=1e-5)
    assert -best.score(digits[0][:600]) * 600 == pytest.approx(min(objectives), rel=1e-3)


def test_annealed_runs_end_lower_on_the_whole(digits, caplog):
    """At 20 clusters digits have many optima; at 10 all runs end in the same one."""
    X = digits[0]
    plain = [PAC(20, random_state=seed).fit(X).objective_ for seed in range(16)]
    with caplog.at_level(logging.INFO, "probagg"):
        annealed = [
            PAC(20, init="annealed", random_state=seed, verbose=1).fit(X).objective_
            for seed in range(16)
        ]
    assert [message.partition(":")[0] for message in caplog.messages] == ["annealing", "run"] * 16
    assert np.mean(annealed) < np.mean(plain)
    assert max(annealed) < max(plain)


def test_momentum_saves_sweeps_where_clusters_settle_slowly(rng, monkeypatch):
    """Rows without groups: of the last sweeps each changes P by most of what the last one did."""
    X = rng.normal(size=(2000, 6)) * [3, 2, 1, 1, 1, 1]

    def fitted():
        return [PAC(8, random_state=seed).fit(X) for seed in range(5)]

    fast = fitted()
    monkeypatch.setattr("probagg.pac.sweeps.MOMENTUM", 0.0)
    plain = fitted()
    assert sum(pac.n_iter_ for pac in fast) < 0.8 * sum(pac.n_iter_ for pac in plain)
    ends = [np.mean([pac.objective_ for pac in runs]) for runs in (fast, plain)]
    np.testing.assert_allclose(*ends, rtol=1e-3)


def test_annealing_begins_below_the_critical_m_but_never_below_m(digits, monkeypatch):
    seen = []

    def watched(sweeps, **options):
        seen.append(sweeps.update.m)
        return converge(sweeps, **options)

    monkeypatch.setattr("probagg.pac.solver.converge", watched)
    critical = critical_m(digits[0])
    for m in (1.03, critical - 0.02, critical - 0.001):
        PAC(10, m=m, init="annealed", random_state=0).fit(digits[0])
    near = 1 + 0.9 * (critical - 1)
    assert seen == pytest.approx([1.06, 1.03, near, critical - 0.02, critical - 0.001])


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "manhattan"])
@pytest.mark.parametrize("options", [{}, {"n_init": 3}, {"aggregate": "p_m"}, {"balance": 0.5}])
def test_annealed_fits_predict_weigh_and_save_like_others(digits, tmp_path, metric, options):
    X = digits[0][:400]
    w = np.random.default_rng(0).integers(1, 3, 400)
    options = {"metric": metric, "init": "annealed", "random_state": 0, **options}
    pac = PAC(5, **options).fit(X, sample_weight=w)
    assert pac.n_iter_ < pac.max_iter
    assert (pac.predict(X) == pac.labels_).all()
    pac.save(tmp_path / "pac.safetensors")
    assert (PAC.load(tmp_path / "pac.safetensors").predict(X) == pac.labels_).all()
    if metric != "manhattan":
        sparse = PAC(5, **options).fit(sp.csr_array(X), sample_weight=w)
        assert adjusted_rand_score(sparse.labels_, pac.labels_) > 0.99


@pytest.mark.parametrize(("K", "m"), [(2, 1.03), (3, 1.01), (10, 1.003)])
def test_large_blocks_settle_like_single_rows(digits, K, m):
    """At small K and small m, rows of too large a block would overshoot together and cycle."""
    X = digits[0]
    single = PAC(K, m=m, block_size=1, random_state=0).fit(X)
    blocks = PAC(K, m=m, random_state=0).fit(X)
    assert blocks.n_iter_ < 100
    assert blocks.objective_ < 1.05 * single.objective_


def test_heavy_rows_shrink_the_blocks():
    """A block of heavy rows would fill a cluster, as a block of many rows does."""
    X, y = make_blobs(1000, 5, centers=4, random_state=0)
    heavy = np.argsort(np.random.default_rng(0).random(1000))[:100]
    order = np.r_[heavy, np.setdiff1d(np.arange(1000), heavy)]
    w = np.r_[np.full(100, 100.0), np.full(900, 0.01)]
    pac = PAC(4, shuffle=False, random_state=0).fit(X[order], sample_weight=w)
    assert clustering_accuracy(y[order], pac.labels_) > 0.99


def test_equal_seeds_give_equal_results(digits):
    X = digits[0]
    one, two, other = (PAC(10, random_state=s).fit(X).probabilities_ for s in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_clusters_form_just_below_the_critical_m_and_not_above(digits):
    """Digits cluster at m = 1.14 and stay uniform at 1.15."""
    X = digits[0]
    below = PAC(10, m=1.14, random_state=0, max_iter=400).fit(X)
    assert below.critical_m_ == pytest.approx(1.148, abs=0.002)
    assert below.probabilities_.max(1).mean() > 0.15
    with pytest.warns(ConvergenceWarning, match=r"m=1.15 is at or above .* 1.148.*Lower m"):
        above = PAC(10, m=1.15, random_state=0, max_iter=400).fit(X)
    assert above.probabilities_.max() < 0.11


def test_critical_m_follows_the_aggregation(digits):
    X = digits[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pac = PAC(10, aggregate="p_m", max_iter=1).fit(X)
    assert pac.critical_m_ == pytest.approx(critical_m(X, aggregate="p_m"), abs=1e-4)


def test_m_auto_stays_below_the_critical_value(rng):
    """It is half-way there where the paper's 1.03 is too large: nearly isotropic data."""
    X = rng.standard_normal((2000, 120)) + np.eye(120)[rng.integers(3, size=2000)] * 4
    pac = PAC(3, m="auto", random_state=0).fit(X)
    assert pac.m_ == pytest.approx(min(1.03, (1 + pac.critical_m_) / 2))
    assert 1 < pac.m_ < pac.critical_m_ < 1.06
    easy = PAC(2, m="auto", random_state=0).fit(rng.standard_normal((50, 2)))
    assert easy.m_ == 1.03


def test_too_few_sweeps_warn(digits):
    with pytest.warns(ConvergenceWarning, match="max_iter=3 sweeps. Raise max_iter, or tol"):
        PAC(10, max_iter=3, random_state=0).fit(digits[0])


def test_empty_clusters_warn():
    """Four distinct rows cannot fill six clusters."""
    X = np.repeat(np.array([[0.0, 0], [0, 9], [9, 0], [9, 9]]), 25, axis=0)
    with pytest.warns(ConvergenceWarning, match="clusters lost all their samples. Use fewer"):
        pac = PAC(6, random_state=0).fit(X)
    assert np.isfinite(pac.probabilities_).all()


def test_balance_lets_clusters_differ_in_size():
    """The mass factor prefers clusters of equal size; `balance=0` removes that preference."""
    sizes = [360, 24, 12, 4]
    X, y = make_blobs(sizes, 2, centers=[[0, 0], [14, 0], [0, 14], [14, 14]], random_state=0)
    accuracy = {
        balance: clustering_accuracy(
            y, PAC(4, balance=balance, n_init=10, random_state=0).fit_predict(X)
        )
        for balance in (0.0, 1.0)
    }
    assert accuracy[1.0] < 0.6 < 0.85 < accuracy[0.0]


def test_a_large_data_set_starts_from_a_sample(monkeypatch, caplog):
    monkeypatch.setattr("probagg.pac.solver.SAMPLE_ROWS", 1000)
    X, y = make_blobs(8000, 8, centers=5, random_state=3)
    with caplog.at_level(logging.INFO, "probagg"):
        pac = PAC(5, random_state=0, verbose=1).fit(X)
    assert caplog.messages[0].startswith("sample: ")
    assert clustering_accuracy(y, pac.labels_) > 0.99
    assert pac.n_iter_ < PAC(5, init="uniform", random_state=0).fit(X).n_iter_
    sparse = PAC(5, random_state=0).fit(sp.csr_array(X))
    assert clustering_accuracy(y, sparse.labels_) > 0.99
    junk = np.random.default_rng(0).standard_normal((8000, 8)) * 50
    w = np.r_[np.ones(8000), np.zeros(8000)]
    pac = PAC(5, random_state=0).fit(np.vstack([X, junk]), sample_weight=w)
    assert clustering_accuracy(y, pac.labels_[:8000]) > 0.99


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "euclidean"])
def test_sparse_rows_give_what_dense_rows_give(metric):
    X = sp.random_array((400, 50), density=0.2, format="csr", rng=np.random.default_rng(0))
    X = X + sp.csr_array((np.full(400, 2.0), (np.arange(400), np.arange(400) % 4)), (400, 50))
    options = {"metric": metric, "random_state": 0, "max_iter": 200}
    dense, sparse = PAC(4, **options).fit(X.toarray()), PAC(4, **options).fit(X.tocsr())
    np.testing.assert_allclose(sparse.probabilities_, dense.probabilities_, atol=1e-6)
    np.testing.assert_allclose(sparse.predict_proba(X.toarray()), dense.predict_proba(X), atol=1e-6)
    assert sparse.objective_ == pytest.approx(dense.objective_)


def test_sparse_rows_are_never_made_dense():
    """Dense, these 400,000 columns would need 64 GB."""
    X = sp.random_array((20_000, 400_000), density=5e-6, format="csr", rng=np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pac = PAC(3, random_state=0, max_iter=2).fit(X)
    assert pac.predict(X[:100]).shape == (100,)


def test_float32_stays_float32_and_is_as_good(digits):
    X = digits[0]
    double, single = (PAC(10, random_state=0).fit(X.astype(t)) for t in (np.float64, np.float32))
    for array in (single.probabilities_, single.predict_proba(X.astype(np.float32))):
        assert array.dtype == np.float32
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    assert single.moments_.sums.dtype == np.float64
    assert adjusted_rand_score(single.labels_, double.labels_) > 0.9


def test_an_offset_of_1e4_loses_no_digits_in_float32(digits):
    """Compared where sweeps converge: on the way there, each sweep amplifies rounding errors."""
    X, options = digits[0], {"tol": 1e-6, "max_iter": 300, "random_state": 0}
    exact = PAC(10, **options).fit(X)
    softened = exact.probabilities_ + 0.5  # decided enough to return to the same solution
    shifted = PAC(10, init=softened, **options).fit((X + 1e4).astype(np.float32))
    np.testing.assert_allclose(shifted.probabilities_, exact.probabilities_, atol=1e-3)


def test_scores_are_transform_and_minus_the_objective(blobs):
    X, _ = blobs
    pac = PAC(3, m=1.1, random_state=0, tol=1e-9, max_iter=1000).fit(X)
    np.testing.assert_array_equal(pac.transform(X).argmin(1), pac.predict(X))
    assert pac.score(X) == pytest.approx(-pac.objective_ / len(X), rel=1e-4)
    D = pairwise_distances(X, metric="sqeuclidean")
    np.testing.assert_allclose(pac.transform(X), D @ pac.probabilities_, rtol=1e-5)
    np.testing.assert_allclose(aggregate(X, pac.moments_), pac.transform(X))
    np.testing.assert_allclose(
        pac.cluster_centers_, (pac.probabilities_.T @ X) / pac.moments_.mass[:, None], rtol=1e-5
    )


def test_moments_are_in_the_units_of_X(blobs):
    pac = PAC(3, metric="cosine", random_state=0).fit(blobs[0])
    np.testing.assert_allclose(aggregate(blobs[0], pac.moments_, "cosine"), pac.transform(blobs[0]))


def test_parameters_set_after_fit_do_not_change_the_model(blobs):
    X, _ = blobs
    pac = PAC(3, random_state=0).fit(X)
    before = pac.predict_proba(X)
    pac.set_params(balance=0.0, n_clusters=5, m=2.0)
    np.testing.assert_array_equal(pac.predict_proba(X), before)
    assert len(pac.get_feature_names_out()) == 3
    pac.set_params(metric="manhattan", n_clusters=3, m=1.03).fit(X)
    assert not hasattr(pac, "cluster_means_")
    assert not hasattr(pac, "cluster_centers_")


def test_pandas_and_polars_frames_are_accepted_and_returned(blobs):
    X, _ = blobs
    names = [f"x{i}" for i in range(5)]
    frame = pd.DataFrame(X, columns=names)
    pac = PAC(3, random_state=0).fit(frame)
    assert list(pac.feature_names_in_) == names
    assert list(pac.get_feature_names_out()) == ["pac0", "pac1", "pac2"]
    out = PAC(3, random_state=0).set_output(transform="pandas").fit_transform(frame)
    assert list(out.columns) == ["pac0", "pac1", "pac2"]
    out = PAC(3, random_state=0).set_output(transform="polars").fit(X)
    assert isinstance(out.transform(pl.DataFrame(X, schema=names).to_numpy()), pl.DataFrame)
    assert (
        list(PAC(3, random_state=0).fit(pl.DataFrame(X, schema=names)).feature_names_in_) == names
    )


def test_weights_are_routed_through_a_pipeline(blobs):
    X, _ = blobs
    with sklearn.config_context(enable_metadata_routing=True):
        pac = PAC(3, random_state=0).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), pac)
        pipeline.fit(X, sample_weight=np.arange(len(X)))
    expected = PAC(3, random_state=0).fit(
        StandardScaler().fit_transform(X), sample_weight=np.arange(len(X))
    )
    np.testing.assert_array_equal(pipeline[-1].labels_, expected.labels_)


def test_a_row_of_weight_zero_affects_nothing_but_gets_a_label(blobs):
    X, _ = blobs
    w = np.r_[np.ones(300), 0.0]
    options = {"shuffle": False, "block_size": 1}
    init = np.random.default_rng(0).random((301, 3)) * 0.02 + 1
    without = PAC(3, init=init[:300], **options).fit(X)
    with_it = PAC(3, init=init, **options).fit(np.vstack([X, X[:1] + 100]), sample_weight=w)
    np.testing.assert_allclose(with_it.moments_.mass, without.moments_.mass)
    assert len(with_it.labels_) == 301


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "manhattan", "precomputed"])
@pytest.mark.parametrize("balance", [1.0, 0.0])
def test_a_saved_pac_predicts_the_same(tmp_path, blobs, metric, balance):
    X = pd.DataFrame(blobs[0], columns=list("abcde"))
    X = pairwise_distances(X) if metric == "precomputed" else X
    seed = np.random.RandomState(0)
    pac = PAC(np.int64(3), metric=metric, balance=balance, random_state=seed).fit(X)
    pac.save(tmp_path / "pac.safetensors")
    loaded = PAC.load(tmp_path / "pac.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X[:50]), pac.predict_proba(X[:50]))
    assert loaded.critical_m_ == pac.critical_m_
    with pytest.raises(AttributeError, match="loaded from a file, which has no rows"):
        loaded.probabilities_  # noqa: B018
    if metric in ("sqeuclidean", "cosine"):
        assert (tmp_path / "pac.safetensors").stat().st_size < 4000
        assert list(loaded.feature_names_in_) == list("abcde")
        np.testing.assert_array_equal(loaded.cluster_means_, pac.cluster_means_)


def test_models_that_cannot_be_saved_or_loaded_are_an_error(tmp_path, blobs):
    X = blobs[0][:40]
    by_function = PAC(2, metric=lambda a, b: abs(a - b).sum(), random_state=0).fit(X)
    with pytest.raises(ValueError, match="metric given as a function cannot be saved"):
        by_function.save(tmp_path / "pac.safetensors")
    (tmp_path / "other").write_bytes(b"hello, world")
    with pytest.raises(ValueError, match="cannot be read as a safetensors file"):
        PAC.load(tmp_path / "other")
    from safetensors.numpy import save_file

    save_file({"w": np.ones(3)}, tmp_path / "tensors")
    with pytest.raises(ValueError, match=r"is needed\. Pass a file that"):
        PAC.load(tmp_path / "tensors")
    with pytest.raises(FileNotFoundError):
        PAC.load(tmp_path / "missing")
    with pytest.raises(NotFittedError):
        PAC().save(tmp_path / "pac.safetensors")


def test_a_pickled_pac_predicts_the_same(blobs):
    pac = PAC(3, random_state=0).fit(blobs[0])
    again = pickle.loads(pickle.dumps(pac))
    np.testing.assert_array_equal(again.predict(blobs[0]), pac.labels_)


def test_verbose_logs_progress(blobs, caplog):
    with caplog.at_level(logging.INFO, "probagg"):
        PAC(3, random_state=0).fit(blobs[0])
        assert not caplog.messages
        PAC(3, random_state=0, verbose=2).fit(blobs[0])
    assert "run, sweep 1: J " in caplog.messages[0]
    assert caplog.messages[-1].startswith("run: ")


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({"n_clusters": "auto"}, np.eye(4), r"PAC needs a number. select_n_clusters\(X\)"),
        ({}, pd.DataFrame({"a": [1.0], "b": ["x"]}), "not numbers: b. .* probagg.cluster"),
        ({}, pd.DataFrame({"a": [1.0], "b": pd.to_datetime(["2024-01-01"])}), "not numbers: b"),
        ({}, pl.DataFrame({"a": ["x"], "b": [1]}), "not numbers: a. .* probagg.cluster"),
        ({}, pl.LazyFrame({"a": [1.0]}), r"Pass X.collect\(\)"),
        ({"n_clusters": 9}, np.eye(4), "n_samples=4 should be >= n_clusters=9"),
        ({"m": 1.0}, np.eye(4), "'m' parameter of PAC must be"),
        ({"metric": "euclid"}, np.eye(9), "metric='euclid' cannot be used here"),
        ({"metric": "seuclidean"}, np.eye(9, 10), r"distances that are NaN.*must not be constant"),
        ({"metric": "precomputed"}, np.ones((9, 8)), "square matrix of all distances"),
        ({"metric": "precomputed"}, np.ones((9, 9)), "a non-zero diagonal"),
        ({"metric": "precomputed"}, np.diag(np.ones(8), 1), "different distances from i to j"),
        ({"metric": "precomputed"}, -1 + np.eye(9), "a negative distance"),
        ({"metric": "precomputed"}, sp.csr_array(np.eye(9)), "X.toarray"),
        ({"init": np.ones((9, 3))}, np.eye(9), r"init has shape \(9, 3\)"),
        ({"balance": 1e5}, np.eye(9), "'balance' parameter"),
        ({"init": np.zeros((9, 8))}, np.eye(9), "positive sum in each row"),
    ],
)
def test_bad_input_is_one_clear_error(options, X, message):
    with pytest.raises(ValueError, match=message):
        PAC(**options).fit(X)


@pytest.mark.parametrize("metric", ["seuclidean", "mahalanobis", "chebyshev", "correlation"])
def test_any_metric_of_scikit_learn_is_accepted(blobs, metric):
    X, y = blobs
    pac = PAC(3, metric=metric, random_state=0).fit(X)
    np.testing.assert_array_equal(pac.predict(X[:40]), pac.labels_[:40])
    assert clustering_accuracy(y, pac.labels_) > 0.6


def test_rounding_errors_in_distances_are_corrected(rng):
    U = rng.standard_normal((60, 4))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    D = 1 - U @ U.T
    before = D.copy()
    labels = PAC(3, metric="precomputed", random_state=0).fit(D).labels_
    np.testing.assert_array_equal(D, before)
    np.testing.assert_array_equal(labels, PAC(3, metric="cosine", random_state=0).fit(U).labels_)


def test_a_start_without_noise_and_identical_samples_have_their_own_warnings(blobs):
    with pytest.warns(ConvergenceWarning, match="All probabilities are still equal"):
        PAC(3, init=np.ones((300, 3))).fit(blobs[0])
    with pytest.warns(ConvergenceWarning, match="All samples are the same"):
        PAC(3, m="auto").fit(np.ones((30, 2)))


def test_too_many_rows_for_a_distance_matrix_is_an_error_with_the_size(monkeypatch):
    monkeypatch.setattr("probagg.environment.free_memory", lambda: 10**6)
    with pytest.raises(ValueError, match=r"1000 x 1000 distances, needs about 0.008 GB"):
        PAC(2, metric="manhattan").fit(np.ones((1000, 2)))


def test_weights_that_are_all_zero_are_an_error(blobs):
    with pytest.raises(ValueError, match="zero"):
        PAC(3).fit(blobs[0], sample_weight=np.zeros(300))


@pytest.mark.parametrize("wrong", [np.ones(9), np.zeros(300), -np.ones(300)])
def test_score_refuses_weights_that_fit_refuses(blobs, wrong):
    pac = PAC(3, random_state=0).fit(blobs[0])
    assert pac.score(blobs[0], sample_weight=np.full(300, 2)) == pytest.approx(pac.score(blobs[0]))
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        pac.score(blobs[0], sample_weight=wrong)


def test_other_columns_at_predict_are_an_error(blobs):
    pac = PAC(3, random_state=0).fit(blobs[0])
    with pytest.raises(ValueError, match="4 features, but PAC is expecting 5"):
        pac.predict(blobs[0][:, :4])


@pytest.mark.parametrize("kind", ["array", "csr", "tensor", "dask"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_score_samples_is_minus_the_mean_distance_to_a_cluster_over_that_within(rng, kind, metric):
    X, _ = make_blobs(200, 4, centers=3, random_state=0)
    X[7] += 40.0 * rng.normal(size=4)
    kinds = {"csr": sp.csr_array, "tensor": torch.tensor, "dask": da.from_array}
    rows = kinds.get(kind, np.asarray)(X)
    pac = PAC(3, metric=metric, random_state=0).fit(rows)
    D, labels = pairwise_distances(X, metric=metric), np.asarray(pac.labels_)
    P = np.asarray(pac.probabilities_)
    within = np.array([P[:, k] @ D @ P[:, k] / P[:, k].sum() ** 2 for k in range(3)])
    expected = -(D @ P / P.sum(0))[np.arange(200), labels] / within[labels]
    found = np.asarray(pac.score_samples(rows))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    if metric == "sqeuclidean":
        assert found.argmin() == 7


def test_score_samples_needs_a_linear_metric(blobs):
    pac = PAC(3, metric="manhattan", random_state=0).fit(blobs[0])
    with pytest.raises(InputError, match="needs metric='sqeuclidean' or 'cosine'"):
        pac.score_samples(blobs[0])
