"""Named sets: what scikit-learn and torchvision are asked for, and what is made of their files."""

import functools
import pickle
import struct
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from sklearn.datasets import load_digits
from torchvision import datasets

from probagg.data.opening import is_here, n_classes, open_images
from probagg.errors import NoData

rng = np.random.default_rng(0)
EVERY = slice(None)


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Set up an empty $PROBAGG_DATA, and no network."""
    monkeypatch.setenv("PROBAGG_DATA", str(tmp_path))

    def refuse(*args, **options):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    return tmp_path


def test_digits_need_no_file(data_folder):
    images = open_images("digits")
    X, y = load_digits(return_X_y=True)
    np.testing.assert_array_equal(images.y, y)
    pixels = images.read(EVERY).reshape(1797, 64)
    assert pixels.max() == 255
    np.testing.assert_allclose(pixels, X * 255 / 16, atol=0.5)


def test_the_number_of_classes_is_known_without_loading(data_folder):
    assert [n_classes(name) for name in ("cifar100-20", "stl10")] == [20, 10]
    with pytest.raises(NoData, match=r"'stl-10' is not a file.*Did you mean 'stl10'\?"):
        open_images("stl-10")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100-20", "stl10"])
def test_a_failed_download_says_what_to_do(data_folder, name):
    assert not is_here(name)
    with pytest.raises(NoData, match=rf"'{name}' could not be downloaded to .*set PROBAGG_DATA"):
        open_images(name)


@pytest.mark.parametrize(("name", "kind"), [("cifar10", "CIFAR10"), ("stl10", "STL10")])
def test_a_download_of_another_content_is_refused(tmp_path, monkeypatch, name, kind):
    """torchvision unpacks and unpickles only what has the checksum that it knows."""
    (tmp_path / "forged.tar.gz").write_bytes(b"forged")
    monkeypatch.setenv("PROBAGG_DATA", str(tmp_path / "data"))
    handler = functools.partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/forged.tar.gz"
        monkeypatch.setattr(getattr(datasets, kind), "url", url)
        with pytest.raises(NoData, match="File not found or corrupted"):
            open_images(name)
        server.shutdown()
    assert not is_here(name)


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(head + array.tobytes())


def test_mnist_joins_training_and_test_images(data_folder):
    X = rng.integers(0, 256, (10_003, 4, 4), dtype=np.uint8)
    y = (np.arange(10_003) % 10).astype(np.uint8)
    for part, rows in (("train", slice(0, 3)), ("t10k", slice(3, None))):
        write_idx(data_folder / "MNIST" / "raw" / f"{part}-images-idx3-ubyte", X[rows])
        write_idx(data_folder / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte", y[rows])
    images = open_images("mnist")
    np.testing.assert_array_equal(images.read(EVERY)[..., 0], X)
    np.testing.assert_array_equal(images.y, y)
    assert is_here("mnist")
    assert is_here("digits")
    raw = data_folder / "MNIST" / "raw" / "train-images-idx3-ubyte"
    raw.write_bytes(raw.read_bytes()[:-1])
    with pytest.raises(NoData, match=r"'mnist' could not be downloaded .* and read"):
        open_images("mnist")


def unchecked(monkeypatch, kind):
    """Let torchvision take files of another content; their names stay."""
    for files in ("train_list", "test_list"):
        monkeypatch.setattr(kind, files, [[name, None] for name, _ in getattr(kind, files)])
    if hasattr(kind, "meta"):
        monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": None})


def write_cifar(kind, folder, X, **labels):
    place = folder / kind.base_folder
    place.mkdir()
    files = [name for name, _ in kind.train_list + kind.test_list]
    for file, rows in zip(files, np.array_split(np.arange(len(X)), len(files)), strict=True):
        planes = X[rows].transpose(0, 3, 1, 2).reshape(len(rows), -1)
        entry = {"data": planes, **{k: [v[row] for row in rows] for k, v in labels.items()}}
        (place / file).write_bytes(pickle.dumps(entry))
    return place


@pytest.mark.parametrize("kind", [datasets.CIFAR10, datasets.CIFAR100])
def test_cifar_joins_its_batches_and_cifar100_has_its_superclasses(data_folder, monkeypatch, kind):
    unchecked(monkeypatch, kind)
    X, y = rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8), np.arange(12) % 10
    if kind is datasets.CIFAR10:
        place = write_cifar(kind, data_folder, X, labels=y.tolist())
        meta = {"label_names": ["airplane", "automobile"]}
    else:
        place = write_cifar(kind, data_folder, X, fine_labels=[0] * 12, coarse_labels=y.tolist())
        meta = {"fine_label_names": ["apple"], "coarse_label_names": ["airplane", "automobile"]}
    (place / kind.meta["filename"]).write_bytes(pickle.dumps(meta))
    images = open_images("cifar10" if kind is datasets.CIFAR10 else "cifar100-20")
    np.testing.assert_array_equal(images.read(EVERY), X)
    np.testing.assert_array_equal(images.y, y)
    assert images.class_names == ["airplane", "automobile"]


def test_stl10_is_upright_and_its_unlabelled_images_stay_on_disk(data_folder, monkeypatch):
    unchecked(monkeypatch, datasets.STL10)
    X, y = rng.integers(0, 256, (9, 96, 96, 3), dtype=np.uint8), np.arange(9) % 10
    place = data_folder / "stl10_binary"
    place.mkdir()
    for part, rows in (("train", slice(0, 3)), ("test", slice(3, 7)), ("unlabeled", slice(7, 9))):
        X[rows].transpose(0, 3, 2, 1).tofile(place / f"{part}_X.bin")
        (y[rows] + 1).astype(np.uint8).tofile(place / f"{part}_y.bin")
    (place / "class_names.txt").write_text("airplane\nbird\n")
    images = open_images("stl10")
    np.testing.assert_array_equal(images.read(EVERY), X[:7])
    np.testing.assert_array_equal(images.y, y[:7])
    np.testing.assert_array_equal(images.extra.read(EVERY), X[7:])
    assert images.class_names == ["airplane", "bird"]
    assert isinstance(images.extra._array, np.memmap)
