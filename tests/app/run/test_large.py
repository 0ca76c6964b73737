"""`probagg.cluster` on matrices that are read in chunks, with small ones in their place."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import probagg
from probagg.app import assignments
from probagg.app.run import tables
from probagg.pac import solver

N, D, K = 3000, 6, 4
TABLES = ("assignments.csv", "overlaps.csv", "profiles.csv", "result.json", "model.safetensors")


@pytest.fixture
def sources(tmp_path):
    """The same rows as an array and a .npy file."""
    generator = np.random.default_rng(0)
    X = generator.normal(0, 4.0, (K, D))[generator.integers(0, K, N)]
    X = (X + generator.normal(0, 1.0, (N, D))).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    return X, tmp_path / "rows.npy"


@pytest.fixture
def all_is_large(monkeypatch):
    monkeypatch.setattr(solver, "sample_size", lambda K: 100 * K)
    monkeypatch.setattr(assignments, "PART_NUMBERS", 1000)
    monkeypatch.setattr(assignments, "PART_ROWS", 500)


def test_tables_in_parts_are_those_in_one_piece(sources, tmp_path, monkeypatch):
    first = probagg.cluster(sources[0], K, out=tmp_path / "whole", report=False)
    monkeypatch.setattr(assignments, "PART_NUMBERS", 1000)
    monkeypatch.setattr(assignments, "PART_ROWS", 500)
    second = probagg.cluster(sources[0], K, out=tmp_path / "parts", report=False)
    for name in TABLES[:3]:
        assert (first.path / name).read_bytes() == (second.path / name).read_bytes()
    for column in first.assignments:
        np.testing.assert_array_equal(first.assignments[column], second.assignments[column])


def test_a_large_file_becomes_the_run_of_the_matrix(sources, tmp_path, all_is_large):
    X, path = sources
    whole = probagg.cluster(X, K, out=tmp_path / "whole", report=False)
    run = probagg.cluster(path, K, out=tmp_path / "run", labels=whole.assignments["cluster"])
    assert not hasattr(probagg.PAC(K, random_state=0).fit(path), "probabilities_")
    assert {p.name for p in run.path.iterdir()} >= {*TABLES, "report.html"}
    found, expected = run.assignments, whole.assignments
    assert adjusted_rand_score(found["cluster"], expected["cluster"]) > 0.99
    assert run.result["acc"] > 0.99
    assert run.result["objective"] == pytest.approx(whole.result["objective"], rel=0.005)
    same = ("probability", "second_probability", "distance")
    for column in same:
        assert np.abs(found[column] - expected[column]).mean() < 0.01
    np.testing.assert_array_equal(run.predict(path)["cluster"], found["cluster"])


def test_the_number_of_clusters_of_a_large_file_can_be_chosen(sources, tmp_path, all_is_large):
    run = probagg.cluster(sources[1], (2, 6), out=tmp_path / "run", report=False)
    assert run.result["n_clusters"] == K


def test_profiles_of_a_large_matrix_are_those_of_a_sample(sources, tmp_path, monkeypatch):
    exact = probagg.cluster(sources[1], K, out=tmp_path / "exact", report=False)
    monkeypatch.setattr(tables, "LARGE", 0)
    monkeypatch.setattr(tables, "SAMPLE", 1000 * D)
    rough = probagg.cluster(sources[1], K, out=tmp_path / "rough", report=False)
    found = [
        np.loadtxt(run.path / "profiles.csv", delimiter=",", skiprows=1, usecols=(0, 2, 3, 4, 5))
        for run in (exact, rough)
    ]
    np.testing.assert_allclose(*found, atol=0.5)
    assert (found[0] != found[1]).any()
