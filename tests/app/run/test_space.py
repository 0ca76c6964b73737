"""The space in which a run clusters rows, its file, and new rows in it."""

import numpy as np
import pytest
from sklearn.datasets import make_moons

from probagg import cluster, clustering_accuracy, open_run
from probagg.app.run.folder import RunFolderError
from probagg.errors import InputError


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(900, noise=0.05, random_state=0)
    return X[:600], y[:600], X[600:], y[600:]


@pytest.fixture(scope="module")
def folder(moons, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "moons"
    return cluster(moons[0], 2, out=out, report=False).path


def test_groups_that_are_not_compact_are_found_by_default(moons, folder):
    X, y, new, y_new = moons
    run = open_run(folder)
    assert run.result["space"] == run.config["space"] == "coordinates"
    assert run.result["space_reason"].startswith("2 coordinates on the graph of neighbours")
    assert f"space: {run.result['space_reason']}" in (folder / "log.txt").read_text()
    assert clustering_accuracy(y, run.assignments.cluster) == 1.0
    assert clustering_accuracy(y_new, run.predict(new).cluster) == 1.0
    np.testing.assert_array_equal(run.predict(X).cluster, run.assignments.cluster)


def test_raw_rows_are_pac_alone(moons, tmp_path):
    X, y, _, _ = moons
    run = cluster(X, 2, out=tmp_path / "raw", space="raw", report=False)
    assert "space" not in run.config
    assert "space" not in run.result
    assert not (run.path / "space.safetensors").exists()
    assert clustering_accuracy(y, run.assignments.cluster) < 0.9


def test_a_missing_or_damaged_space_is_an_error(moons, folder, tmp_path):
    X = moons[0]
    run = cluster(X, 2, out=tmp_path / "run", space="averaged", report=False)
    file = run.path / "space.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + b"\x00" * 9)
    with pytest.raises(RunFolderError, match=r"space\.safetensors"):
        run.predict(X)
    file.unlink()
    with pytest.raises((RunFolderError, InputError, OSError), match=r"space\.safetensors"):
        run.predict(X)


def test_onnx_cannot_hold_neighbours(folder):
    with pytest.raises(InputError, match=r"which ONNX cannot\. Use predict"):
        open_run(folder).export("onnx")


def test_a_space_needs_neighbours(moons, tmp_path):
    with pytest.raises(InputError, match="space is 'averaged', but metric is 'cityblock'"):
        cluster(moons[0], 2, out=tmp_path / "x", space="averaged", metric="cityblock")
    with pytest.raises(InputError, match="space is 'flat'; possible are auto, raw, averaged, coo"):
        cluster(moons[0], 2, out=tmp_path / "x", space="flat")
    images = np.zeros((9, 8, 8, 3), np.uint8)
    with pytest.raises(InputError, match="space is for rows, but ndarray holds images"):
        cluster(images, 2, out=tmp_path / "x", space="averaged")
