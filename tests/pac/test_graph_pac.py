"""GraphPAC: clusters of any shape as a scikit-learn estimator, as runs have them."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_blobs, make_circles, make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from probagg import PAC, GraphPAC, clustering_accuracy
from probagg.errors import InputError
from probagg.neighbours import smoothing
from probagg.storage import read_safetensors, write_safetensors


# Four clusters, because one check expects as many probabilities as its y has classes.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([GraphPAC(4), GraphPAC(4, metric="cosine")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def moons():
    return make_moons(600, noise=0.05, random_state=0)


@pytest.fixture(scope="module")
def model(moons):
    return GraphPAC(2, random_state=0).fit(moons[0][:400])


@pytest.mark.parametrize("make", [make_moons, make_circles])
def test_groups_that_are_not_compact_are_found_in_fitted_and_new_rows(make):
    options = {"factor": 0.4} if make is make_circles else {}
    X, y = make(1200, noise=0.05, random_state=0, **options)
    found = GraphPAC(2, random_state=0).fit(X[:800])
    assert clustering_accuracy(y[:800], PAC(2, random_state=0).fit_predict(X[:800])) < 0.9
    assert clustering_accuracy(y[:800], found.labels_) == 1.0
    assert clustering_accuracy(y[800:], found.predict(X[800:])) == 1.0
    assert found.reason_.startswith("joined parts: ")


def test_compact_clusters_keep_the_numbers_that_pac_gave_them():
    X, _ = make_blobs(2000, 2, centers=5, cluster_std=2.0, random_state=3)
    found = GraphPAC(5, balance=1.0, random_state=0).fit(X)
    assert found.reason_.startswith("PAC's clusters: ")
    assert (found.labels_ == found.pac_.labels_).mean() > 0.97


@pytest.mark.parametrize("sample", [150, 10_000])
def test_fitted_rows_are_predicted_as_they_were_fitted(moons, sample, monkeypatch):
    """Also where the graph has some of the rows only."""
    X, steps = moons[0], []
    monkeypatch.setattr(smoothing, "SAMPLE", sample)
    found = GraphPAC(2, random_state=0).fit(X, progress=lambda *step: steps.append(step))
    assert found.smoothing_.rows.shape == (min(sample, 600), 2)
    assert steps == ([(600, 600)] if sample < 600 else [])
    np.testing.assert_array_equal(found.predict_proba(X[100:300]), found.probabilities_[100:300])
    np.testing.assert_array_equal(found.labels_, found.probabilities_.argmax(1))
    np.testing.assert_allclose(found.probabilities_.sum(1), 1.0, atol=1e-6)


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_sparse_rows_give_what_dense_rows_give(metric, rng):
    X = (
        rng.random((300, 30)) * (rng.random((300, 30)) < 0.3)
        + 4 * np.eye(3, 30)[np.arange(300) % 3]
    )
    dense, sparse = (
        GraphPAC(3, metric=metric, random_state=0).fit(rows[:200]) for rows in (X, sp.csr_array(X))
    )
    assert sparse.smoothing_ is not None
    np.testing.assert_allclose(sparse.probabilities_, dense.probabilities_, atol=1e-5)
    found = sparse.predict_proba(sp.csr_matrix(X[200:]))
    np.testing.assert_allclose(found, dense.predict_proba(X[200:]), atol=1e-5)


def test_sparse_rows_of_too_many_columns_for_memory_are_refused(monkeypatch):
    monkeypatch.setattr("probagg.environment.free_memory", lambda: 1e6)
    X = sp.random_array((100, 10_000), density=0.01, format="csr", rng=np.random.default_rng(0))
    with pytest.raises(InputError, match=r"needs about 0\.024 GB.*fewer columns than 10,000"):
        GraphPAC(2, balance=1.0, random_state=0).fit(X)


def test_float32_rows_have_the_clusters_of_float64(moons):
    X = moons[0].astype(np.float32)
    first, again = (GraphPAC(2, random_state=0).fit(rows) for rows in (X, X.astype(float)))
    np.testing.assert_array_equal(first.labels_, again.labels_)
    assert first.probabilities_.dtype == np.float32


def test_fewer_than_twenty_rows_per_cluster_keep_the_clusters_of_pac(rng, tmp_path):
    X = rng.normal(size=(39, 3))
    found = GraphPAC(2, balance=1.0, random_state=0).fit(X)
    assert found.smoothing_ is None
    assert "fewer than 20 rows per cluster" in found.reason_
    pac = PAC(2, random_state=0).fit(X)
    np.testing.assert_array_equal(found.probabilities_, pac.probabilities_)
    found.save(tmp_path / "x")
    again = GraphPAC.load(tmp_path / "x")
    np.testing.assert_array_equal(again.predict_proba(X), pac.predict_proba(X))


def test_a_seed_decides_and_a_random_state_is_drawn_from(moons):
    X = moons[0]
    first, again = (GraphPAC(2, random_state=3).fit(X).probabilities_ for _ in range(2))
    np.testing.assert_array_equal(first, again)
    generator = np.random.RandomState(0)
    GraphPAC(2, random_state=generator).fit(X)
    assert generator.randint(2**31) != np.random.RandomState(0).randint(2**31)


def test_frames_and_pipelines(moons):
    pd = pytest.importorskip("pandas")
    X, y = moons
    frame = pd.DataFrame(X * [1.0, 50.0], columns=["a", "b"])
    scale = StandardScaler().set_output(transform="pandas")
    found = make_pipeline(scale, GraphPAC(2, random_state=0)).fit(frame[:400])
    assert list(found[-1].feature_names_in_) == ["a", "b"]
    assert clustering_accuracy(y[400:], found.predict(frame[400:])) == 1.0
    assert found.predict_proba(frame[:9]).shape == (9, 2)


def test_tensors_are_clustered_as_arrays(moons, model):
    torch = pytest.importorskip("torch")
    X = torch.tensor(moons[0])
    found = GraphPAC(2, random_state=0).fit(X[:400])
    np.testing.assert_array_equal(found.predict(X[400:]), model.predict(moons[0][400:]))


def test_weights_and_other_metrics_are_refused(moons):
    with pytest.raises(TypeError, match="sample_weight"):
        GraphPAC(2).fit(moons[0], sample_weight=np.ones(600))
    with pytest.raises(ValueError, match="'metric' parameter of GraphPAC must be a str among"):
        GraphPAC(2, metric="manhattan").fit(moons[0])
    with pytest.raises(InputError, match="GraphPAC needs a number"):
        GraphPAC("auto").fit(moons[0])


def test_a_saved_estimator_predicts_the_same(moons, model, tmp_path):
    X = moons[0]
    model.save(tmp_path / "x")
    loaded = GraphPAC.load(tmp_path / "x")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert (loaded.get_params(), loaded.reason_) == (model.get_params(), model.reason_)
    assert (loaded.n_features_in_, loaded.pac_.balance) == (2, model.balance)
    with pytest.raises(InputError, match=r"holds 'probagg.graph-pac/1', but 'probagg.pac/1'"):
        PAC.load(tmp_path / "x")


def test_names_of_columns_are_saved_and_a_random_state_is_not(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(load_digits().data[:200, 20:24], columns=list("abcd"))
    model = GraphPAC(3, random_state=np.random.RandomState(0)).fit(frame)
    model.save(tmp_path / "x")
    loaded = GraphPAC.load(tmp_path / "x")
    assert loaded.random_state is None
    np.testing.assert_array_equal(loaded.predict(frame), model.labels_)
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[list("badc")])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"smoothing.P": np.ones((3, 2), np.float32)}, "do not belong together"),
        ({"smoothing.factor": np.ones(3)}, "do not belong together"),
        ({"smoothing.factor": np.array([1.0, np.nan])}, "not finite"),
        ({"smoothing.rows": np.ones((400, 3), np.float32)}, "not of the size"),
        ({"power": 1}, "not finite"),
        ({"n_nearest": 401}, "400 rows, but 401 are nearest"),
        ({"metric": "manhattan"}, "metric 'manhattan'"),
    ],
    ids=str,
)
def test_a_damaged_file_is_refused(model, tmp_path, changes, problem):
    model.save(tmp_path / "x")
    arrays, description = read_safetensors(tmp_path / "x", "probagg.graph-pac/1")
    for name, value in changes.items():
        (arrays if name in arrays else description["smoothing"])[name] = value
    write_safetensors(tmp_path / "x", "probagg.graph-pac/1", arrays, description)
    with pytest.raises(InputError, match=f"x cannot be read .*{problem}"):
        GraphPAC.load(tmp_path / "x")


def test_clusters_that_are_fitted_again_are_of_the_kind_that_they_were():
    """Labels that come from clusters do not decide which kind of clusters fits them best."""
    X, y = make_moons(600, noise=0.05, random_state=0)
    known = np.where(np.arange(600) % 4 == 0, y, -1)
    for joined, kind in ((True, "joined parts"), (False, "PAC's clusters")):
        model = GraphPAC(2, random_state=0)._fit(X, known, joined=joined)
        assert model.reason_.startswith(kind)
        assert (model.labels_ == known)[known >= 0].all()
