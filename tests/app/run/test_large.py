"""`probagg.cluster` on matrices that are read in chunks, with small ones in their place."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import probagg
from probagg.app import assignments
from probagg.app.run import samples, tables
from probagg.app.run.monitor import Monitor
from probagg.pac import solver
from probagg.pac.files import FileRows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
N, D, K = 3000, 6, 4
TABLES = ("assignments.csv", "overlaps.csv", "profiles.csv", "result.json", "model.safetensors")


@pytest.fixture
def sources(tmp_path):
    """The same rows as an array, a .npy and a .parquet file."""
    generator = np.random.default_rng(0)
    X = generator.normal(0, 4.0, (K, D))[generator.integers(0, K, N)]
    X = (X + generator.normal(0, 1.0, (N, D))).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    table = pa.table({f"c{j}": X[:, j] for j in range(D)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    return X, tmp_path / "rows.npy", tmp_path / "rows.parquet"


@pytest.fixture
def all_is_large(monkeypatch):
    monkeypatch.setattr(solver, "sample_size", lambda K: 100 * K)
    monkeypatch.setattr(samples, "READ_IN_CHUNKS", 0)
    monkeypatch.setattr("probagg.app.report.map.LANDMARKS", 50)  # seconds of t-SNE less
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


@pytest.mark.parametrize("kind", [1, 2], ids=["npy", "parquet"])
def test_a_large_file_becomes_the_run_of_the_matrix(sources, kind, tmp_path, all_is_large):
    X, path = sources[0], sources[kind]
    whole = probagg.cluster(X, K, out=tmp_path / "whole", report=False)
    run = probagg.cluster(path, K, out=tmp_path / "run", labels=whole.assignments["cluster"])
    assert not hasattr(probagg.PAC(K, random_state=0).fit(path), "probabilities_")
    assert {p.name for p in run.path.iterdir()} >= {*TABLES, "report.html", "map.npz"}
    found, expected = run.assignments, whole.assignments
    assert adjusted_rand_score(found["cluster"], expected["cluster"]) > 0.99
    assert run.result["acc"] > 0.99
    assert run.result["objective"] == pytest.approx(whole.result["objective"], rel=0.005)
    same = ("probability", "second_probability", "distance")
    for column in same:
        assert np.abs(found[column] - expected[column]).mean() < 0.01
    np.testing.assert_array_equal(run.predict(path)["cluster"], found["cluster"])


def test_a_large_parquet_file_is_not_read_at_once(sources, all_is_large):
    opened = samples.open_samples(sources[2], Monitor(), in_parts=True)
    assert isinstance(opened.X, FileRows)
    assert len(opened) == N
    places = np.array([0, 5, 699, 700, 2999])
    np.testing.assert_array_equal(opened.X[places], sources[0][places])
    np.testing.assert_array_equal(opened.X[650:1500], sources[0][650:1500])


def test_columns_of_a_large_file_may_be_in_another_order(sources, tmp_path, all_is_large):
    run = probagg.cluster(sources[2], K, out=tmp_path / "run", report=False)
    table = pq.read_table(sources[2])
    pq.write_table(table.select(table.column_names[::-1]), tmp_path / "reversed.parquet")
    found = run.predict(tmp_path / "reversed.parquet")
    np.testing.assert_array_equal(found["cluster"], run.assignments["cluster"])


def test_the_number_of_clusters_of_a_large_file_can_be_chosen(sources, tmp_path, all_is_large):
    run = probagg.cluster(sources[2], (2, 6), out=tmp_path / "run", report=False)
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
