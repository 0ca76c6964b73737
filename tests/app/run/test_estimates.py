"""What is said before work starts: time, and where another job suits the machine better."""

import numpy as np
import pytest
from commands import cluster

import probagg
from probagg.app.run import by_dpac


@pytest.fixture
def rows(tmp_path):
    generator = np.random.default_rng(0)
    means = generator.normal(0, 5, (4, 3))
    np.save(tmp_path / "rows.npy", np.repeat(means, 30, 0) + generator.normal(size=(120, 3)))
    return tmp_path / "rows.npy"


def test_the_time_of_a_run_includes_the_choice_of_k(rows, tmp_path):
    run = probagg.cluster(rows, (2, 6), out=tmp_path / "run", report=False)
    assert 0.0 < run.result["k_seconds"] <= run.result["seconds"] + 0.1


@pytest.fixture
def images(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "my images.npz", X=pixels)
    return tmp_path / "my images.npz"


def test_hours_of_dpac_on_a_cpu_are_advised_against(images, tmp_path, monkeypatch):
    """With the command that does the flat job."""
    options = ("-k", 2, "--method", "dpac", "--device", "cpu", "--out", tmp_path / "run")
    monkeypatch.setattr(by_dpac, "LONG_ON_A_CPU", 1e9)
    assert "GPU" not in cluster(images, *options, "--dry-run").output
    monkeypatch.setattr(by_dpac, "LONG_ON_A_CPU", 0.0)
    result = cluster(images, *options, "--dry-run")
    assert result.exit_code == 0, result.output
    command = f"probagg cluster '{images}' -k 2 --method pac --out {tmp_path}/run-pac"
    assert "DPAC needs a GPU at this size: on this CPU it takes about " in result.stderr
    assert command in result.stderr
