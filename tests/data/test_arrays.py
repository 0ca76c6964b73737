"""Matrices from files, arrays and DataFrames, and errors about those that contain none."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from probagg.data.opening import open_source
from probagg.errors import NoData


def open_matrix(source):
    """Return a source as a matrix."""
    return open_source(source, prefer="matrix")


@pytest.fixture
def X(rng):
    return rng.normal(size=(20, 3)).round(3)


def written(path, X):
    """Write the matrix in the format of the suffix; return the path."""
    suffix = path.suffix
    if suffix == ".npy":
        np.save(path, X)
    else:
        np.savez(path, X=X, y=np.arange(len(X)))
    return path


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_both_formats_are_read_as_the_same_matrix(tmp_path, X, suffix):
    found = open_matrix(written(tmp_path / f"rows.{suffix}", X))
    np.testing.assert_allclose(found.X, X)
    assert (found.y is not None) == (suffix == "npz")


def test_integers_become_floats(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(6).reshape(3, 2))
    assert open_matrix(tmp_path / "rows.npy").X.dtype == np.float32


def test_an_array_of_images_is_not_a_matrix(tmp_path, X):
    np.savez(tmp_path / "images.npz", X=np.zeros((3, 8, 8), np.uint8))
    assert open_source(tmp_path / "images.npz").kind == "images"
    assert open_source(written(tmp_path / "rows.npz", X)).kind == "matrix"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", "has no rows"),
        ("a.npy", "no numpy", "cannot be read as a NumPy file"),
        ("a.npz", "no numpy", "cannot be read as a NumPy file"),
        ("a.parquet", "no parquet", "cannot be read as parquet"),
        ("a.xlsx", "", "is neither a folder of images nor a .npz, .npy, .h5ad, .csv"),
    ],
)
def test_an_unreadable_file_is_an_error(tmp_path, name, content, words):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(content)
    with pytest.raises(NoData, match=words):
        open_matrix(tmp_path / name)


@pytest.mark.parametrize("name", ["features", "arr_0"])
def test_the_only_array_of_an_npz_may_have_any_name(tmp_path, X, name):
    np.savez(tmp_path / "a.npz", **{name: X})
    np.testing.assert_array_equal(open_matrix(tmp_path / "a.npz").X, X)
    np.savez(tmp_path / "b.npz", y=np.arange(20), **{name: X})
    found = open_matrix(tmp_path / "b.npz")
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.y, np.arange(20))


@pytest.mark.parametrize("names", [("train", "test"), ("train", "test", "y"), ("y",), ()])
def test_an_npz_without_an_obvious_matrix_lists_its_arrays(tmp_path, names):
    np.savez(tmp_path / "a.npz", **{name: np.zeros((2, 2)) for name in names})
    listed = ", ".join(names) or "none"
    with pytest.raises(NoData, match=f"no array X; its arrays are: {listed}. .*np.savez"):
        open_matrix(tmp_path / "a.npz")


def test_a_truncated_npz_is_an_error(tmp_path, X):
    data = written(tmp_path / "a.npz", X).read_bytes()
    (tmp_path / "a.npz").write_bytes(data[:200])
    with pytest.raises(NoData, match="cannot be read as a NumPy file"):
        open_source(tmp_path / "a.npz")


def test_an_array_is_a_matrix_of_its_precision(X):
    for dtype, expected in ((np.float32, np.float32), (np.float64, np.float64), (int, np.float32)):
        assert open_matrix(X.astype(dtype)).X.dtype == expected
    for wrong in (X[0], X[:0], X.astype(str), X + 1j, np.full((2, 2), np.inf)):
        with pytest.raises(NoData, match=r"The array (holds|has)"):
            open_matrix(wrong)


def test_sparse_rows_stay_sparse(X):
    found = open_matrix(sp.coo_array(np.where(X > 1, X, 0.0))).X
    assert sp.issparse(found)
    assert found.format == "csr"
    X[7, 1] = np.nan
    with pytest.raises(NoData, match=r"The sparse array has 1 rows .* the first is row 7"):
        open_matrix(sp.csr_array(X))


@pytest.mark.parametrize("kind", [sp.csr_array, sp.coo_array, sp.csc_matrix])
def test_sparse_rows_of_scipy_stay_sparse(tmp_path, X, kind):
    X = np.where(X > 1, X, 0.0)
    sp.save_npz(tmp_path / "rows.npz", kind(X))
    found = open_matrix(tmp_path / "rows.npz").X
    assert isinstance(found, sp.csr_array)
    np.testing.assert_array_equal(found.toarray(), X)


def test_a_named_set_and_a_path_are_matrices(tmp_path, X):
    assert open_matrix("digits").n_classes == 10
    assert open_matrix(str(written(tmp_path / "rows.npy", X))).n_classes == 0


def test_parquet_without_pyarrow_is_one_line_with_the_command(tmp_path, monkeypatch):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ImportError, match=r"rows\.parquet needs pyarrow, .*install pandas pyarrow$"
    ):
        open_matrix(tmp_path / "rows.parquet")


def test_tensors_of_any_precision_are_matrices(X):
    """NumPy has no bfloat16."""
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        tensor = torch.from_numpy(X).to(dtype).requires_grad_()
        found = open_matrix(tensor).X
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, tensor.detach().float().numpy())
