"""Torch tensors: computed on their device, answered in tensors."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from probagg import PAC, aggregate
from probagg.errors import InputError

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def digits():
    return load_digits().data.astype(np.float32)


@pytest.fixture
def few_rows(monkeypatch):
    """Data of a few hundred rows counts as large, so that it is clustered out of core."""
    monkeypatch.setattr("probagg.pac.solver.sample_size", lambda K: 60 * K)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"metric": "cosine"},
        {"balance": 0.5},
        {"aggregate": "p_m"},
        {"init": "annealed"},
        {"n_init": 2},
        {"block_size": 7},
    ],
    ids=str,
)
def test_tensors_and_arrays_give_the_same_clusters(digits, options, recwarn):
    array = PAC(10, random_state=0, **options).fit(digits)
    tensor = PAC(10, random_state=0, **options).fit(torch.from_numpy(digits))
    assert (tensor.labels_.numpy() == array.labels_).mean() >= 0.999
    assert np.abs(tensor.probabilities_.numpy() - array.probabilities_).max() < 1e-4
    assert tensor.objective_ == pytest.approx(array.objective_, rel=1e-5)
    assert tensor.critical_m_ == pytest.approx(array.critical_m_, rel=1e-5)


def test_fitted_attributes_are_tensors_of_the_type_of_x(digits):
    X = torch.from_numpy(digits)
    pac = PAC(10, random_state=0).fit(X)
    found = [pac.labels_, pac.probabilities_, pac.cluster_means_, pac.moments_.sums]
    assert [tensor.dtype for tensor in found] == [
        torch.int64,
        torch.float32,
        torch.float64,
        torch.float64,
    ]
    assert torch.equal(pac.predict(X), pac.labels_)
    torch.testing.assert_close(pac.predict_proba(X), pac.probabilities_)
    clusters, values = pac.predict_top(X, 2)
    assert torch.equal(clusters[:, 0], pac.labels_)
    torch.testing.assert_close(values[:, 0].float(), pac.probabilities_.amax(1))
    assert pac.transform(X).shape == (len(X), 10)
    assert pac.score(X) == pytest.approx(
        PAC(10, random_state=0).fit(digits).score(digits), rel=1e-5
    )


def test_aggregate_takes_the_moments_of_a_fit(digits):
    """They are in double precision, whatever the rows are in."""
    X = torch.from_numpy(digits)
    pac = PAC(10, random_state=0).fit(X)
    found = aggregate(X, pac.moments_)
    torch.testing.assert_close(found.float(), pac.transform(X).float(), rtol=1e-3, atol=1.0)


def test_a_model_of_tensors_predicts_arrays_and_the_other_way_round(digits, tmp_path):
    X = torch.from_numpy(digits)
    pac = PAC(10, random_state=0).fit(X)
    assert isinstance(pac.predict(digits), np.ndarray)
    np.testing.assert_array_equal(pac.predict(digits), pac.labels_.numpy())
    pac.save(tmp_path / "pac.safetensors")
    loaded = PAC.load(tmp_path / "pac.safetensors")
    assert torch.equal(loaded.predict(X), pac.labels_)


def test_gradients_stay_out(digits):
    X = torch.from_numpy(digits[:200]).requires_grad_()
    assert not PAC(3, random_state=0).fit(X).probabilities_.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_types_are_computed_in_single_precision(digits, dtype):
    exact = PAC(10, random_state=0).fit(torch.from_numpy(digits))  # digits are small integers
    pac = PAC(10, random_state=0).fit(torch.from_numpy(digits).to(dtype))
    assert pac.probabilities_.dtype == torch.float32
    assert torch.equal(pac.labels_, exact.labels_)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_streamed_in_single_precision(digits, dtype):
    exact = PAC(10, random_state=0).partial_fit(digits)
    pac = PAC(10, random_state=0).partial_fit(torch.from_numpy(digits).to(dtype))
    assert pac.probabilities_.dtype == torch.float32
    np.testing.assert_array_equal(pac.labels_, exact.labels_)


def test_weights_count_as_repeated_rows(digits):
    X = torch.from_numpy(digits[:300])
    w = torch.arange(300) % 3
    weighted = PAC(4, random_state=0, block_size=1).fit(X, sample_weight=w)
    assert weighted.moments_.mass.sum() == pytest.approx(float(w.sum()))
    array = PAC(4, random_state=0, block_size=1).fit(digits[:300], sample_weight=w.numpy())
    assert weighted.objective_ == pytest.approx(array.objective_, rel=1e-4)


def test_weights_and_starts_may_be_tensors_of_half_precision(digits):
    X, w = torch.from_numpy(digits[:300]), torch.arange(300) % 3
    P = torch.eye(4)[torch.arange(300) % 4]
    exact = PAC(4, random_state=0, init=P).fit(X, sample_weight=w)
    pac = PAC(4, random_state=0, init=P.bfloat16()).fit(X, sample_weight=w.bfloat16())
    assert torch.equal(pac.labels_, exact.labels_)
    assert pac.score(X, sample_weight=w.bfloat16()) == exact.score(X, sample_weight=w)


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
@pytest.mark.usefixtures("few_rows")
def test_rounds_of_a_large_tensor_reach_the_objective_of_a_fit_in_memory(digits, order):
    X = np.concatenate([digits, digits + 0.5])  # 3,594 rows, a sample of 600
    y = np.tile(load_digits().target, 2)
    rows = (
        np.argsort(y, kind="stable")
        if order == "sorted"
        else np.random.default_rng(0).permutation(len(X))
    )
    whole = PAC(10, random_state=0, n_init=3).fit(X)
    pac = PAC(10, random_state=0, n_init=3).fit(torch.from_numpy(X[rows]))
    assert pac.objective_ <= 1.005 * whole.objective_
    assert pac.n_iter_ <= 1.5 * whole.n_iter_
    assert torch.equal(pac.labels_, pac.predict(torch.from_numpy(X[rows])))
    assert np.bincount(pac.labels_.numpy()).min() > 100


@pytest.mark.usefixtures("few_rows")
def test_large_probabilities_are_not_kept_and_the_error_says_what_to_use(digits, monkeypatch):
    monkeypatch.setattr("probagg.pac.inputs.KEPT_BYTES", 0)
    X = torch.from_numpy(np.tile(digits[:, :8], (2, 1)))  # P would be larger than X
    pac = PAC(10, random_state=0).fit(X)
    assert not hasattr(pac, "probabilities_")
    with pytest.raises(AttributeError, match=r"3,594 rows and 10 clusters .* predict_top"):
        pac.probabilities_  # noqa: B018
    assert pac.labels_.shape == (3594,)


def test_bad_tensors_get_one_clear_error(digits):
    X = torch.from_numpy(digits.copy())
    with pytest.raises(InputError, match=r"flatten"):
        PAC(3).fit(torch.zeros(5, 3, 2))
    with pytest.raises(InputError, match=r"X.to_dense\(\)"):
        PAC(3).fit(X.to_sparse())
    with pytest.raises(InputError, match="'sqeuclidean' or 'cosine'"):
        PAC(3, metric="manhattan").fit(X)
    with pytest.raises(ValueError, match="63 features"):
        PAC(3, random_state=0).fit(X).predict(X[:, :63])
    with pytest.raises(InputError, match="so far from the rows that were fitted"):
        PAC(3, random_state=0).fit(X).predict(X + 1e30)
    X[3, 4] = torch.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        PAC(3).fit(X)


@pytest.mark.gpu
@pytest.mark.parametrize("K", [10, 100])
def test_a_gpu_reaches_the_objective_of_the_cpu_on_the_device(digits, K):
    """With K = 100 a sweep has enough panels to be replayed as a CUDA graph."""
    X = torch.from_numpy(digits).cuda()
    pac = PAC(K, random_state=0).fit(X)
    assert pac.labels_.is_cuda
    assert pac.probabilities_.is_cuda
    cpu = PAC(K, random_state=0).fit(digits)
    assert pac.objective_ == pytest.approx(cpu.objective_, rel=0.02)
