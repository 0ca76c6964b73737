import numpy as np
import pytest
from commands import cluster_by_pac


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
