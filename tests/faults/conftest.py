"""Finished runs for faults."""

import shutil

import numpy as np
import pytest
from commands import cluster_by_pac

import probagg


@pytest.fixture(scope="session")
def clustered_once(tmp_path_factory):
    X = np.random.default_rng(0).normal(size=(60, 3))
    folder = tmp_path_factory.mktemp("faults")
    np.save(folder / "rows.npy", X)
    return probagg.cluster(folder / "rows.npy", 3, out=folder / "run", report=False).path


@pytest.fixture
def clustered(clustered_once, tmp_path):
    """60 rows in 3 clusters; each test gets a copy."""
    return shutil.copytree(clustered_once, tmp_path / "clustered")


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    np.savetxt(path, np.random.default_rng(0).normal(size=(40, 3)), delimiter=",", header="a,b,c")
    return path


@pytest.fixture
def run(rows, tmp_path):
    """A finished run of PAC on these rows."""
    result = cluster_by_pac(rows, "-k", 2, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    return tmp_path / "run"
