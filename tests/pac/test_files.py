"""PAC on files: memory maps, .npy, Parquet and Arrow, read piece by piece."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from probagg import PAC
from probagg.errors import InputError
from probagg.pac import solver

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
N, D, K = 6000, 6, 5


@pytest.fixture(autouse=True)
def _small_files_are_large(monkeypatch):
    """Fits of 240 rows per cluster and more go the way of files that memory cannot hold."""
    monkeypatch.setattr(solver, "sample_size", lambda K: 60 * K)


def _blobs(order="shuffled", dtype=np.float32, n=N):
    generator = np.random.default_rng(0)
    y = generator.integers(0, K, n)
    X = generator.normal(0, 3.0, (K, D))[y] + generator.normal(0, 1.0, (n, D))
    return X[np.argsort(y)].astype(dtype) if order == "sorted" else X.astype(dtype)


def _table(X):
    return pa.table({f"c{j}": X[:, j] for j in range(X.shape[1])})


def _write(kind, X, folder):
    """Return the source of one kind that holds X."""
    if kind in ("npy", "memmap"):
        np.save(folder / "rows.npy", X)
        return folder / "rows.npy" if kind == "npy" else np.load(folder / "rows.npy", mmap_mode="r")
    if kind.startswith("parquet"):
        size = {"parquet, many groups": 50, "parquet, few groups": 2500, "parquet, one": 10**6}
        pq.write_table(_table(X), folder / "rows.parquet", row_group_size=size[kind])
        return folder / "rows.parquet"
    with pa.ipc.new_file(folder / "rows.arrow", _table(X).schema) as file:
        file.write_table(_table(X), max_chunksize=500)
    return folder / "rows.arrow"


KINDS = ["npy", "memmap", "parquet, many groups", "parquet, few groups", "parquet, one", "arrow"]


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_clustered_as_well_as_the_array(kind, order, tmp_path):
    X = _blobs(order)
    whole = PAC(K, random_state=0).fit(X)
    pac = PAC(K, random_state=0).fit(_write(kind, X, tmp_path))
    assert pac.objective_ <= 1.005 * whole.objective_
    assert adjusted_rand_score(whole.labels_, pac.labels_) > 0.99
    assert pac.labels_.shape == (N,)
    assert pac.labels_.dtype == np.int64


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_the_labels_of_a_file_are_those_that_predict_gives(metric, tmp_path):
    X = _blobs()
    pac = PAC(K, metric=metric, random_state=0).fit(_write("npy", X, tmp_path))
    np.testing.assert_array_equal(pac.labels_, pac.predict(X))


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_of_a_file_are_those_of_the_array(kind, tmp_path):
    X = _blobs()
    source = _write(kind, X, tmp_path)
    has_names = kind not in ("npy", "memmap")
    pac = PAC(K, random_state=0).fit(_frame(X) if has_names else X)
    X = _frame(X) if has_names else X
    np.testing.assert_allclose(pac.predict_proba(source), pac.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(pac.predict(source), pac.predict(X))
    np.testing.assert_allclose(pac.transform(source), pac.transform(X), rtol=1e-4)
    assert pac.score(source) == pytest.approx(pac.score(X), rel=1e-5)


def _frame(X):
    return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])


def test_a_small_file_is_clustered_as_the_array_is(tmp_path):
    """Below `is_large` a file is read whole, and P is kept."""
    X = _blobs(n=500)
    for kind in KINDS:
        pac = PAC(K, random_state=0).fit(_write(kind, X, tmp_path))
        np.testing.assert_array_equal(
            pac.probabilities_, PAC(K, random_state=0).fit(X).probabilities_
        )


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int16, np.int32, np.uint8, ">f4"])
@pytest.mark.parametrize("n", [500, N])
def test_numbers_of_any_type_are_read_as_floats(dtype, n, tmp_path):
    X = np.round(5 * _blobs(n=n)).clip(0, 100).astype(dtype)
    kinds = ["npy", "parquet, few groups"] if dtype != ">f4" else ["npy"]
    expected = PAC(K, random_state=0).fit(X.astype(float)).labels_
    for kind in kinds:
        found = PAC(K, random_state=0).fit(_write(kind, X, tmp_path)).labels_
        assert adjusted_rand_score(expected, found) > 0.99


def test_pyarrow_objects_are_read_as_their_files(tmp_path):
    X = _blobs()
    parquet, arrow = _write("parquet, few groups", X, tmp_path), _write("arrow", X, tmp_path)
    dataset = pytest.importorskip("pyarrow.dataset")
    expected = PAC(K, random_state=0).fit(parquet).labels_
    for source in (
        _table(X),
        _table(X).combine_chunks().to_batches()[0],
        pq.ParquetFile(parquet),
        pa.ipc.open_file(arrow),
        dataset.dataset(parquet),
        str(arrow),
    ):
        found = PAC(K, random_state=0).fit(source)
        assert adjusted_rand_score(expected, found.labels_) > 0.99
        assert found.feature_names_in_.tolist() == [f"c{j}" for j in range(D)]


def test_probabilities_of_a_large_file_are_not_kept_and_the_error_says_what_to_use(tmp_path):
    pac = PAC(K, random_state=0).fit(_write("npy", _blobs(), tmp_path))
    assert not hasattr(pac, "probabilities_")
    with pytest.raises(AttributeError, match=r"6,000 rows and 5 clusters.*labels_, predict_top"):
        _ = pac.probabilities_


@pytest.mark.parametrize("kind", ["array", *KINDS[:3]])
@pytest.mark.parametrize("k", [1, 2, K])
def test_predict_top_gives_the_largest_of_predict_proba(kind, k, tmp_path):
    X = _blobs()
    source = X if kind == "array" else _write(kind, X, tmp_path)
    pac = PAC(K, m=1.3, random_state=0).fit(source)
    clusters, P = pac.predict_top(source, k)
    every = pac.predict_proba(source)
    assert clusters.shape == P.shape == (N, k)
    assert clusters.dtype == np.int64
    np.testing.assert_allclose(P, -np.sort(-every, axis=1)[:, :k], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(every, clusters, 1), P, atol=1e-6)
    np.testing.assert_array_equal(clusters[:, 0], pac.predict(source))


def test_predict_top_has_the_number_type_of_predict_proba():
    for dtype in (np.float32, np.float64):
        X = _blobs(dtype=dtype, n=200)
        pac = PAC(K, random_state=0).fit(X)
        assert pac.predict_top(X, 2)[1].dtype == pac.predict_proba(X).dtype == dtype


def test_equal_probabilities_are_ordered_by_cluster():
    """So that the first is the one `predict` gives."""
    pac = PAC(3, m=1.3, random_state=0).fit(_blobs(n=300))
    middle = pac.cluster_means_[[0, 1]].mean(0, keepdims=True).repeat(2, 0)
    assert (pac.predict_top(middle, 3)[0][:, 0] == pac.predict(middle)).all()


@pytest.mark.parametrize("k", [0, K + 1, -1, 1.5])
def test_predict_top_refuses_a_k_out_of_range(k):
    pac = PAC(K, random_state=0).fit(_blobs(n=200))
    with pytest.raises(InputError, match=r"k is .* from 1 to the 5 clusters"):
        pac.predict_top(_blobs(n=10), k)


@pytest.mark.parametrize("n", [500, N])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["npy", "parquet, few groups", "arrow"])
def test_missing_and_infinite_values_are_refused(kind, bad, n, tmp_path):
    X = _blobs(n=n)
    good = _write(kind, X, tmp_path)
    pac = PAC(K, random_state=0).fit(good)
    X[n // 2, 3] = bad
    (tmp_path / "bad").mkdir()
    source = _write(kind, X, tmp_path / "bad")
    for call in (PAC(K).fit, pac.predict, pac.predict_proba, lambda X: pac.predict_top(X, 2)):
        with pytest.raises(InputError, match="missing or infinite values, the first in column 3"):
            call(source)


def test_nulls_are_refused_with_the_name_of_their_column(tmp_path):
    table = pa.table({"height": [1.0, None, 3.0], "width": [1, 2, 3]})
    pq.write_table(table, tmp_path / "rows.parquet")
    for source in (table, tmp_path / "rows.parquet"):
        with pytest.raises(InputError, match="missing values in the column 'height'"):
            PAC(2).fit(source)


def test_columns_that_are_not_numbers_are_refused_by_name(tmp_path):
    table = pa.table({"height": [1.0, 2.0], "city": ["a", "b"], "yes": [True, False]})
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"rows.parquet .* not numbers: city, yes\."):
        PAC(2).fit(tmp_path / "rows.parquet")


def test_a_table_without_rows_is_refused():
    with pytest.raises(InputError, match="0 rows"):
        PAC(2).fit(pa.table({"height": pa.array([], pa.float32())}))


def test_predict_refuses_other_columns(tmp_path):
    X = _blobs()
    pac = PAC(K, random_state=0).fit(_write("parquet, few groups", X, tmp_path))
    renamed = _table(X).rename_columns(["c0", "c1", "c2", "c3", "c4", "weight"])
    with pytest.raises(InputError, match=r"column 'c5' where X has 'weight' \(column 5"):
        pac.predict(renamed)
    np.save(tmp_path / "narrow.npy", X[:, :3])
    with pytest.raises(ValueError, match="3 features"):
        pac.predict(tmp_path / "narrow.npy")


def test_other_files_are_refused_with_what_is_read(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2\n3,4\n")
    with pytest.raises(InputError, match=r"rows.csv .* \.npy, \.parquet, \.arrow"):
        PAC(2).fit(tmp_path / "rows.csv")
    for name in ("rows.npy", "rows.parquet", "rows.arrow"):
        with pytest.raises(InputError, match=f"{name} cannot be read"):
            PAC(2).fit(tmp_path / name)  # not there
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(InputError, match=f"{name} cannot be read"):
            PAC(2).fit(str(tmp_path / name))
    np.save(tmp_path / "cube.npy", np.zeros((4, 4, 4)))
    with pytest.raises(InputError, match=r"shape \(4, 4, 4\)"):
        PAC(2).fit(tmp_path / "cube.npy")


def test_a_stream_of_batches_is_refused_with_what_to_call():
    table = _table(_blobs(n=100))
    with pytest.raises(InputError, match=r"read once only.*partial_fit"):
        PAC(2).fit(table.to_reader())


def test_a_memory_map_may_hold_distances(tmp_path):
    X = _blobs(n=200)
    distances = ((X[:, None] - X) ** 2).sum(2)
    source = _write("memmap", distances, tmp_path)
    pac = PAC(K, metric="precomputed", random_state=0)
    expected = pac.fit_predict(distances)
    np.testing.assert_array_equal(expected, pac.fit_predict(source))


@pytest.mark.parametrize("copy", [np.memmap.copy, lambda X: X.astype(np.float64)])
def test_a_copy_of_a_memory_map_is_an_array_in_memory(copy, tmp_path):
    """NumPy gives some copies the class of the map."""
    X = copy(_write("memmap", _blobs(), tmp_path))
    pac = PAC(K, random_state=0).fit(X)
    expected = PAC(K, random_state=0).fit(np.array(X))
    np.testing.assert_array_equal(pac.probabilities_, expected.probabilities_)
    np.testing.assert_array_equal(pac.predict(X), expected.predict(np.array(X)))


@pytest.mark.parametrize("kind", ["npy", "parquet, few groups", "parquet, many groups"])
def test_a_row_of_weight_zero_in_a_file_does_not_count(kind, tmp_path):
    """Outliers that would have a cluster of their own have no effect without weight."""
    X = _blobs("sorted")
    outliers = np.full((600, D), 60.0, X.dtype)
    weights = np.r_[np.ones(N), np.zeros(600)]
    source = _write(kind, np.vstack([X, outliers]), tmp_path)
    pac = PAC(K, random_state=0).fit(source, sample_weight=weights)
    expected = PAC(K, random_state=0).fit(X)
    assert adjusted_rand_score(expected.labels_, pac.labels_[:N]) > 0.99
    assert pac.objective_ == pytest.approx(expected.objective_, rel=0.005)


class _Interrupt(logging.Handler):
    def emit(self, record):
        if "out of core, sweep 3" in record.getMessage():
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore:PAC still changed")
@pytest.mark.parametrize("kind", ["npy", "parquet, few groups"])
def test_an_interrupted_fit_resumes_to_the_same_labels(kind, tmp_path):
    generator = np.random.default_rng(1)  # overlapping: many sweeps
    source = _write(kind, generator.normal(0, 1.0, (N, D)).astype(np.float32), tmp_path)
    expected = PAC(K, max_iter=5, random_state=0).fit(source)
    saved, log, handler = tmp_path / "fit.safetensors", logging.getLogger("probagg"), _Interrupt()
    pac = PAC(K, max_iter=5, checkpoint=saved, random_state=0, verbose=2)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with pytest.raises(KeyboardInterrupt):
            pac.fit(source)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert saved.exists()
    resumed = PAC(K, max_iter=5, checkpoint=saved).fit(source)  # the seed is the file's
    np.testing.assert_array_equal(resumed.labels_, expected.labels_)
    assert resumed.objective_history_ == expected.objective_history_
    assert not saved.exists()


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    from probagg.pac.out_of_core import FitCheckpoint

    saved = FitCheckpoint(tmp_path / "fit.safetensors", 0)
    saved.match({"data": "other"})
    saved.write(np.zeros((4, K, D + 2)), 1, [1.0])
    with pytest.raises(InputError, match="written by another fit"):
        PAC(K, checkpoint=tmp_path / "fit.safetensors").fit(_write("npy", _blobs(), tmp_path))


LIMITED = """
import re, resource, sys
from pathlib import Path
import numpy as np, pyarrow.parquet as pq
from probagg import PAC
from sklearn.metrics import adjusted_rand_score

PAC(2, random_state=0).fit(np.arange(100, dtype=np.float32).reshape(50, 2))  # all imports
used = int(re.search(r"VmData:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
limit = used + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
path = Path(sys.argv[1])
if path.suffix == ".npy":
    try:
        np.ones(np.load(path, mmap_mode="r").shape, np.float32)
    except MemoryError:
        print("X does not fit")
pac = PAC(8, random_state=0, tol=0.01).fit(path)
print("sizes", *sorted(np.bincount(pac.labels_, minlength=8)))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """160 MB of rows in 8 equal clusters, one after the other, as .npy and as Parquet."""
    folder, generator = tmp_path_factory.mktemp("large"), np.random.default_rng(0)
    n, d, k = 1_250_000, 32, 8
    X = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, (n, d))
    centers, noise = generator.normal(0, 3, (k, d)), generator.normal(0, 1, (n // 40, d))
    schema = pa.schema([(f"c{j}", pa.float32()) for j in range(d)])
    with pq.ParquetWriter(folder / "rows.parquet", schema, use_dictionary=False) as file:
        for part in range(40):
            rows = slice(part * n // 40, (part + 1) * n // 40)
            X[rows] = centers[part // 5] + noise
            file.write_table(pa.table(list(X[rows].T), schema=schema))
    X.flush()
    yield folder
    (folder / "rows.npy").unlink()
    (folder / "rows.parquet").unlink()


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts allocations on Linux only")
@pytest.mark.parametrize("name", ["rows.npy", "rows.parquet"])
def test_a_file_larger_than_the_memory_allowed_is_clustered(name, large):
    """160 MB of sorted rows with 80 MB of memory beyond the imports'."""
    assert (large / name).stat().st_size > 150e6
    command = [sys.executable, "-c", LIMITED, str(large / name), "80_000_000"]
    # Arrow's own allocator reserves 1 GiB at once, which counts.
    env = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    *first, sizes = done.stdout.splitlines()
    assert first == (["X does not fit"] if name == "rows.npy" else [])
    np.testing.assert_allclose([int(s) for s in sizes.split()[1:]], 156_250, rtol=0.001)


def test_a_path_is_read_relative_to_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "rows.npy", _blobs(n=100))
    assert PAC(2).fit(Path("~/rows.npy")).labels_.shape == (100,)
