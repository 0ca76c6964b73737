"""Sources as samples: each is opened once, whatever it is."""

import os
import zipfile

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import probagg


@pytest.fixture
def opened(monkeypatch):
    """The archives that were opened for reading, in order."""
    names = []

    class Counted(zipfile.ZipFile):
        def __init__(self, file, mode="r", *args, **kwargs):
            if mode == "r":
                names.append(os.path.basename(str(getattr(file, "name", file))))
            super().__init__(file, mode, *args, **kwargs)

    monkeypatch.setattr(zipfile, "ZipFile", Counted)
    return names


def test_a_matrix_is_unpacked_once_to_cluster_and_once_to_predict(tmp_path, opened):
    X, y = make_blobs(90, 4, centers=3, random_state=0)
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, X=X, y=y)
    run = probagg.cluster(path, 3, out=tmp_path / "run", report=False)
    assert opened.count(path.name) == 1
    found = run.predict(path)
    assert opened.count(path.name) == 2
    np.testing.assert_array_equal(found["cluster"], run.assignments["cluster"])


def test_images_are_unpacked_once_to_cluster_and_once_to_predict(tmp_path, opened):
    rng = np.random.default_rng(0)
    path = tmp_path / "images.npz"
    np.savez_compressed(path, X=rng.integers(0, 256, (24, 8, 8), np.uint8))
    settings = ["pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=0"]
    run = probagg.cluster(
        path, 2, out=tmp_path / "run", method="dpac", recipe="digits/fast", settings=settings,
        report=False,
    )  # fmt: skip
    assert opened.count(path.name) == 1
    assert len(run.predict(path)) == 24
    assert opened.count(path.name) == 2


def test_tensors_of_low_precision_are_clustered(tmp_path):
    torch = pytest.importorskip("torch")
    X, y = make_blobs(90, 4, centers=3, random_state=0)
    tensor = torch.from_numpy(X).bfloat16()
    run = probagg.cluster(tensor, 3, out=tmp_path / "run", labels=y, report=False)
    assert run.result["acc"] == 1.0
    assert len(run.predict(tensor[:5])) == 5
