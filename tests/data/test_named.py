"""Named sets: where each is looked for, and what the real files contain."""

import os
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import sklearn.utils
from PIL import Image
from sklearn.datasets import load_digits

from probagg.data import archives, download, named
from probagg.data.images import ArrayImages
from probagg.data.named import ALL_NAMES, IMAGE_NAMES, NAMES, load_images, load_rows, n_classes
from probagg.errors import NoData

rng = np.random.default_rng(0)
EVERY = slice(None)
DATA = os.environ.get("PROBAGG_DATA")
real = pytest.mark.skipif(DATA is None, reason="PROBAGG_DATA does not name a folder with the data")


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Set up an empty $PROBAGG_DATA and cache, and no network."""
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
    assert [len(s.split()) for s in named._SYNSETS.values()] == [10, 15]
    with pytest.raises(
        NoData, match=r"'cifar100' is not a known data set.*Did you mean 'cifar100-20'"
    ):
        n_classes("cifar100")
    with pytest.raises(NoData, match=r"Did you mean 'stl10'\?"):
        load_images("stl-10")


@pytest.mark.parametrize("name", ["mnist", "mnist-test", "cifar10", "cifar100-20", "stl10"])
def test_a_failed_download_says_where_to_put_the_file(data_folder, name):
    with pytest.raises(
        NoData, match=r"could not be fetched from http.*\(no network\).*save the file yourself as"
    ):
        load_images(name)


def test_a_set_without_a_download_says_which_file_is_needed(data_folder, monkeypatch):
    with pytest.raises(NoData, match=r"coil100_32\.npz does not exist"):
        load_images("coil100")
    with pytest.raises(NoData, match="PROBAGG_IMAGENET is not set"):
        load_images("imagenet10")
    np.savez(data_folder / "coil100_32.npz", X=np.zeros((4, 8, 8, 3), np.uint8))
    with pytest.raises(NoData, match=r"has no array y\. Put a \.npz file with arrays X and y"):
        load_images("coil100")
    with pytest.raises(
        NoData, match=r"imagenette2-160 or .* does not exist\. Put the unpacked arc"
    ):
        load_images("imagenette")
    monkeypatch.delenv("PROBAGG_DATA")
    with pytest.raises(NoData, match=r"imagenette2 in the folder that PROBAGG_DATA names"):
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
    """Only the names of the files matter here; tests/data/test_archives.py reads them."""
    read = []

    def note(folder):
        read.append(folder)
        return ArrayImages(np.zeros((10, 8, 8, 3), np.uint8), np.arange(10), name=name)

    monkeypatch.setattr(archives, reader, note)
    monkeypatch.setattr(named, "obtain", lambda release, progress: Path("cache", release))
    load_images(name)
    place = data_folder / archives.RELEASES[release].folders[0]
    place.mkdir()
    (place / archives.RELEASES[release].files[0]).touch()
    load_images(name)
    assert read == [Path("cache", release), place]
    assert release in download.REMOTES


def test_imagenette_is_read_from_its_release(data_folder):
    for synset in archives.IMAGENETTE:
        (data_folder / "imagenette2-320" / "val" / synset).mkdir(parents=True)
        photo = Image.new("RGB", (30, 20))
        photo.save(data_folder / "imagenette2-320" / "val" / synset / "1.JPEG")
    images = load_images("imagenette")
    assert (images.name, images.size, len(images)) == ("imagenette", (160, 160), 10)
    assert load_images("imagenette", size=96).size == (96, 96)


def test_imagenet_subsets_come_from_the_imagenet_folder(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBAGG_IMAGENET", str(tmp_path / "imagenet"))
    with pytest.raises(NoData, match=r"lacks the ImageNet classes n02056570, .*n07747607"):
        load_images("imagenet10")
    synsets = set(" ".join(named._SYNSETS.values()).split())
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
    ("name", "shape"),
    [
        ("mnist", (70_000, 28, 28, 1)),
        ("mnist-test", (10_000, 28, 28, 1)),
        ("coil100", (7_178, 32, 32, 3)),
    ],
)
def test_the_real_files_contain_the_data_of_the_paper(name, shape):
    images = load_images(name)
    assert (len(images), *images.size, images.channels) == shape
    assert len(np.unique(images.y)) == n_classes(name)
    if name == "mnist":
        assert images.y[:5].tolist() == [5, 0, 4, 1, 9]
        assert images.y[60_000:60_005].tolist() == [7, 2, 1, 0, 4]


@pytest.mark.parametrize("name", ["pendigits", "isolet"])
def test_a_set_of_openml_is_fetched_by_its_number(data_folder, monkeypatch, name):
    """As scikit-learn returns it: float64 features and classes as text."""
    asked = []

    def fetch(**options):
        asked.append(options)
        X, y = np.arange(12.0).reshape(4, 3), np.array(["10", "2", "10", "2"], object)
        return sklearn.utils.Bunch(data=X, target=y)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    found = load_rows(name)
    assert (found.X.dtype, found.X.shape) == (np.float32, (4, 3))
    assert found.y.tolist() == [0, 1, 0, 1]
    assert asked[0]["data_id"] == {"pendigits": 32, "isolet": 300}[name]
    np.savez(data_folder / f"{name}.npz", X=np.ones((2, 3)), y=np.zeros(2, int))
    assert load_rows(name).X.shape == (2, 3)
    assert len(asked) == 1


def test_a_set_of_openml_that_cannot_be_fetched_says_what_to_do(data_folder, monkeypatch):
    def refuse(**options):
        raise OSError("no network")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)
    with pytest.raises(NoData, match=r"could not be fetched from OpenML .*pendigits\.npz in the"):
        load_rows("pendigits")


def test_only_sets_that_anybody_can_get_are_listed(data_folder):
    assert "coil100" not in ALL_NAMES
