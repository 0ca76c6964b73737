"""Finished runs for faults."""

import shutil

import numpy as np
import pytest

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
