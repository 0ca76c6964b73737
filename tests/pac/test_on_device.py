"""PAC of arrays and files whose rows torch computes on a device."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from probagg import PAC
from probagg.errors import InputError
from probagg.pac import on_device, solver

torch = pytest.importorskip("torch")
N, K = 6000, 5
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def X():
    return make_blobs(N, 6, centers=K, cluster_std=2.0, random_state=0)[0].astype(np.float32)


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch):
    """Pieces are of 50 rows, and fits of 240 rows per cluster and more start from a sample."""
    monkeypatch.setattr(on_device, "PIECE_BYTES", 1200)
    monkeypatch.setattr(solver, "sample_size", lambda K: 60 * K)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("kind", ["array", "npy", "parquet"])
def test_a_device_finds_the_clusters_of_numpy(kind, fits, device, X, tmp_path, monkeypatch):
    monkeypatch.setattr(on_device, "SHARE", 0.4 if fits else 0.0)
    source = X
    if kind == "npy":
        source = tmp_path / "rows.npy"
        np.save(source, X)
    elif kind == "parquet":
        pytest.importorskip("pyarrow")
        source = tmp_path / "rows.parquet"
        table = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
        table.to_parquet(source, row_group_size=700)
    weights = np.random.default_rng(0).integers(1, 4, N)
    expected = PAC(K, random_state=0).fit(X, sample_weight=weights)
    pac = PAC(K, device=device, random_state=0).fit(source, sample_weight=weights)
    assert pac.objective_ == pytest.approx(expected.objective_, rel=1e-3)
    assert adjusted_rand_score(expected.labels_, pac.labels_) > 0.99
    for found in (pac.labels_, pac.cluster_means_, pac.predict_proba(source), pac.moments_.mass):
        assert isinstance(found, np.ndarray)
    assert (pac.predict(source) == pac.labels_).all()
    np.testing.assert_allclose(pac.predict_proba(source).sum(1), 1.0, rtol=1e-5)
    assert pac.score(source) == pytest.approx(expected.score(X), rel=1e-3)
    if kind == "array":
        assert isinstance(pac.probabilities_, np.ndarray)


@pytest.mark.parametrize("fits", [True, False])
def test_known_rows_keep_their_clusters_on_a_device(fits, X, monkeypatch):
    monkeypatch.setattr(on_device, "SHARE", 0.4 if fits else 0.0)
    known = np.full(N, -1)
    known[:40] = PAC(K, random_state=0).fit_predict(X)[:40]
    pac = PAC(K, device="cpu", random_state=0).fit(X, known_labels=known, sample_weight=np.ones(N))
    assert (pac.labels_[:40] == known[:40]).all()


def test_a_saved_model_computes_where_it_is_loaded(X, tmp_path):
    pac = PAC(K, device="cpu", random_state=0).fit(X)
    pac.save(tmp_path / "pac.safetensors")
    loaded = PAC.load(tmp_path / "pac.safetensors")
    assert loaded.device is None
    assert (loaded.predict(X) == pac.labels_).mean() > 0.999


def test_blocks_are_copied_in_pieces(X):
    rows = on_device.DeviceRows(X, "cpu")
    block = [(chunk, slice(None)) for chunk in rows.filled]
    pieces = rows.divided(block)
    assert [part for piece in pieces for part in piece] == block
    sizes = [len(some) for some, _ in rows.copied(pieces)]
    assert sum(sizes) == N
    assert max(sizes) < 2 * 50


def test_missing_values_are_named_before_the_first_sweep(X):
    X[77, 3] = np.nan
    rows = on_device.DeviceRows(X, "cpu")
    with pytest.raises(InputError, match="column 3"):
        rows.load()


@pytest.mark.parametrize(
    ("source", "options"),
    [(np.eye(9), {"metric": "l1"}), (torch.eye(9), {}), (np.eye(9), {"device": "tpu0"})],
)
def test_what_a_device_cannot_take_is_one_error(source, options):
    with pytest.raises(InputError, match="device"):
        PAC(2, **{"device": "cpu"} | options).fit(source)
