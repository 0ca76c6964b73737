"""Named sets: where each is looked for, and what the real files hold."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from probagg.data import archives, benchmarks, download, packed
from probagg.data.benchmarks import ALL_NAMES, IMAGE_NAMES, NAMES, load_images, n_classes
from probagg.data.images import ArrayImages
from probagg.errors import NoData

rng = np.random.default_rng(0)
EVERY = slice(None)
DATA = os.environ.get("PROBAGG_DATA")
real = pytest.mark.skipif(DATA is None, reason="PROBAGG_DATA does not name a folder with the data")


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """An empty $PROBAGG_DATA and cache, and no network."""
    monkeypatch.setenv("PROBAGG_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PROBAGG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PROBAGG_IMAGENET", raising=False)

    def refuse(*args, **options):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_digits_need_no_file(data_folder):
    images = load_images("digits")
    X, y = load_digits(return_X_y=True)
    np.testing.assert_array_equal(images.y, y)
    pixels = images.read(EVERY).reshape(1797, 64)
    assert pixels.max() == 255
    np.testing.assert_allclose(pixels, X * 255 / 16, atol=0.5)


def test_the_number_of_classes_is_known_without_loading(data_folder):
    assert [n_classes(name) for name in ("isolet", "cifar100-20", "imagenet-dogs")] == [26, 20, 15]
    assert set(ALL_NAMES) == {*NAMES, *IMAGE_NAMES}
    assert [len(s.split()) for s in benchmarks._SYNSETS.values()] == [10, 15]
    with pytest.raises(
        NoData, match=r"'cifar100' is no known data set.*Did you mean 'cifar100-20'"
    ):
        n_classes("cifar100")
    with pytest.raises(NoData, match=r"Did you mean 'stl10'\?"):
        load_images("stl-10")


@pytest.mark.parametrize("name", ["mnist", "mnist-test", "cifar10", "cifar100-20", "stl10"])
def test_what_is_not_there_and_cannot_be_fetched_says_where_to_put_it(data_folder, name):
    with pytest.raises(NoData, match=r"could not be fetched from http.*\(no network\).*by hand at"):
        load_images(name)


def test_what_cannot_be_fetched_at_all_says_which_file_is_needed(data_folder, monkeypatch):
    with pytest.raises(NoData, match=r"coil100_32\.npz does not exist"):
        load_images("coil100")
    with pytest.raises(NoData, match="PROBAGG_IMAGENET is not set"):
        load_images("imagenet10")
    np.savez(data_folder / "coil100_32.npz", X=np.zeros((4, 8, 8, 3), np.uint8))
    with pytest.raises(NoData, match=r"arrays X and y \(no y\)"):
        load_images("coil100")
    monkeypatch.delenv("PROBAGG_DATA")
    with pytest.raises(NoData, match=r"imagenette_96\.npz in the folder that PROBAGG_DATA names"):
        load_images("imagenette")


def test_an_npz_in_the_data_folder_comes_first(data_folder):
    X, y = rng.integers(0, 256, (10_005, 4, 4), dtype=np.uint8), np.arange(10_005) % 10
    np.savez(data_folder / "mnist.npz", X=X, y=y)
    assert len(load_images("mnist")) == 10_005
    test = load_images("mnist-test")
    np.testing.assert_array_equal(test.read(EVERY)[..., 0], X[5:])
    np.testing.assert_array_equal(test.y, y[5:])
    colour = rng.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.savez(data_folder / "cifar10.npz", X=colour, y=np.arange(20) % 10)
    images = load_images("cifar10")
    np.testing.assert_array_equal(images.read(EVERY), colour)
    assert images.class_names[9] == "truck"
    assert load_images("cifar10", size=16).size == (16, 16)


@pytest.mark.parametrize(
    ("name", "release", "reader"),
    [
        ("mnist", "mnist", "read_mnist"),
        ("cifar10", "cifar10", "read_cifar10"),
        ("cifar100-20", "cifar100", "read_cifar100"),
        ("stl10", "stl10", "read_stl10"),
    ],
)
def test_a_release_is_read_from_the_data_folder_or_else_the_cache(
    data_folder, monkeypatch, name, release, reader
):
    """The files are told by their names here; tests/data/test_archives.py reads them."""
    read = []

    def note(folder):
        read.append(folder)
        return ArrayImages(np.zeros((10, 8, 8, 3), np.uint8), np.arange(10), name=name)

    monkeypatch.setattr(archives, reader, note)
    monkeypatch.setattr(benchmarks, "obtain", lambda release, progress: Path("cache", release))
    load_images(name)
    place = data_folder / archives.RELEASES[release].folders[0]
    place.mkdir()
    (place / archives.RELEASES[release].files[0]).touch()
    load_images(name)
    assert read == [Path("cache", release), place]
    assert release in download.REMOTES


def test_cifar10_is_read_from_sheets_of_tiles(data_folder, monkeypatch):
    monkeypatch.setattr(packed, "TILES", 2)
    X, y = rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8), np.arange(12, dtype=np.uint8) % 10
    for part, sheets in enumerate(([0, 1], [2])):
        with zipfile.ZipFile(data_folder / f"cifar10_part{part}.zip", "w") as archive:
            for sheet in sheets:
                tiles = X[4 * sheet : 4 * sheet + 4]
                rows = [np.concatenate(tiles[i : i + 2], axis=1) for i in (0, 2)]
                picture = io.BytesIO()
                Image.fromarray(np.concatenate(rows)).save(picture, "webp", lossless=True)
                archive.writestr(f"{sheet:02d}.webp", picture.getvalue())
            archive.writestr("y.npy", y[4 * sheets[0] : 4 * sheets[-1] + 4].tobytes())
    images = load_images("cifar10")
    np.testing.assert_array_equal(images.read(EVERY), X)
    np.testing.assert_array_equal(images.y, y)
    (data_folder / "cifar10_part1.zip").write_bytes(b"no zip")
    with pytest.raises(NoData, match=r"cifar10_part1\.zip is no zip of image sheets"):
        load_images("cifar10")


def test_sheets_and_classes_must_agree(data_folder):
    for part in (0, 1):
        with zipfile.ZipFile(data_folder / f"cifar10_part{part}.zip", "w") as archive:
            archive.writestr("y.npy", bytes(30))
            archive.writestr(f"{part}.webp", b"no picture")
    with pytest.raises(NoData, match="60 classes for 2 sheets"):
        load_images("cifar10")
    for part in (0, 1):
        with zipfile.ZipFile(data_folder / f"cifar10_part{part}.zip", "w") as archive:
            archive.writestr("y.npy", bytes(2500))
            archive.writestr(f"{part}.webp", b"no picture")
    with pytest.raises(NoData, match=r"Sheet 0 of .* is broken"):
        load_images("cifar10")


def test_imagenette_is_decoded_from_one_file(data_folder):
    levels = [10, 100, 200]
    files = []
    for level in levels:
        file = io.BytesIO()
        Image.new("RGB", (96, 96), (level,) * 3).save(file, "jpeg")
        files.append(file.getvalue())
    arrays = {
        "data": np.frombuffer(b"".join(files), np.uint8),
        "off": np.cumsum([0, *map(len, files)]),
        "y": np.array([1, 0, 1], np.uint8),
        "classes": np.array(["n01440764 tench", "n02102040 English springer"]),
    }
    np.savez(data_folder / "imagenette_96.npz", **arrays)
    images = load_images("imagenette")
    assert images.class_names == ["tench", "English springer"]
    np.testing.assert_array_equal(images.y, [1, 0, 1])
    np.testing.assert_allclose(images.read(EVERY)[:, 0, 0, 0].astype(int), levels, atol=2)
    arrays["off"] = arrays["off"] - [0, 300, 0, 0]
    np.savez(data_folder / "imagenette_96.npz", **arrays)
    with pytest.raises(NoData, match=r"Photo 0 of .* is broken"):
        load_images("imagenette")
    np.savez(data_folder / "imagenette_96.npz", X=np.zeros(3))
    with pytest.raises(NoData, match="arrays data, off, y and classes"):
        load_images("imagenette")


def test_imagenet_subsets_come_from_the_imagenet_folder(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBAGG_IMAGENET", str(tmp_path / "imagenet"))
    with pytest.raises(NoData, match=r"lacks the ImageNet classes n02056570, .*n07747607"):
        load_images("imagenet10")
    synsets = set(" ".join(benchmarks._SYNSETS.values()).split())
    for synset in synsets:
        (tmp_path / "imagenet" / "train" / synset).mkdir(parents=True)
        photo = Image.new("RGB", (30, 20))
        photo.save(tmp_path / "imagenet" / "train" / synset / f"{synset}_1.JPEG")
    for name in ("imagenet10", "imagenet-dogs"):
        images = load_images(name)
        assert images.name == name
        assert images.size == (224, 224)
        assert len(images) == len(images.class_names) == n_classes(name)
    assert load_images("imagenet10", size=96).read(np.array([0])).shape == (1, 96, 96, 3)


@real
@pytest.mark.parametrize(
    ("name", "shape", "counts"),
    [
        ("mnist", (70_000, 28, 28, 1), None),
        ("mnist-test", (10_000, 28, 28, 1), None),
        ("coil100", (7_178, 32, 32, 3), None),
        ("cifar10", (60_000, 32, 32, 3), 6_000),
        ("imagenette", (5_000, 96, 96, 3), 500),
    ],
)
def test_the_real_files_hold_what_the_paper_clusters(name, shape, counts):
    images = load_images(name)
    assert (len(images), *images.size, images.channels) == shape
    assert len(np.unique(images.y)) == n_classes(name)
    assert counts is None or (np.bincount(images.y) == counts).all()
    if name == "mnist":
        assert images.y[:5].tolist() == [5, 0, 4, 1, 9]
        assert images.y[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    if name == "cifar10":
        train = images.read(np.arange(0, 50_000, 10)).mean(axis=(0, 1, 2))
        np.testing.assert_allclose(train, [125.3, 123.0, 113.9], atol=1.5)
