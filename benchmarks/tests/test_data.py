"""The packed image sets of the benchmarks (benchmarks/data.py)."""

import io
import itertools
import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from benchmarks import data
from probagg.errors import NoData

EVERY = slice(None)


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBAGG_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "prefix", "labels"),
    [("cifar10", "cifar10", "y.npy"), ("cifar100-20", "cifar100", "coarse.npy")],
)
def test_cifar_is_read_from_sheets_of_tiles(data_folder, monkeypatch, name, prefix, labels):
    monkeypatch.setattr(data, "TILES", 2)
    X = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    y = np.arange(12, dtype=np.uint8) % 10
    for part, sheets in enumerate(([0, 1], [2])):
        with zipfile.ZipFile(data_folder / f"{prefix}_part{part}.zip", "w") as archive:
            for sheet in sheets:
                tiles = X[4 * sheet : 4 * sheet + 4]
                rows = [np.concatenate(tiles[i : i + 2], axis=1) for i in (0, 2)]
                picture = io.BytesIO()
                Image.fromarray(np.concatenate(rows)).save(picture, "webp", lossless=True)
                archive.writestr(f"{sheet:02d}.webp", picture.getvalue())
            archive.writestr(labels, y[4 * sheets[0] : 4 * sheets[-1] + 4].tobytes())
    images = data.open_lab_images(name)
    np.testing.assert_array_equal(images.read(EVERY), X)
    np.testing.assert_array_equal(images.y, y)


def test_photos_are_read_from_joined_jpegs(data_folder):
    levels, files = [10, 100, 200], []
    for level in levels:
        file = io.BytesIO()
        Image.new("RGB", (96, 96), (level,) * 3).save(file, "jpeg")
        files.append(file.getvalue())
    np.savez(
        data_folder / "imagenette_96.npz",
        data=np.frombuffer(b"".join(files), np.uint8),
        off=np.cumsum([0, *map(len, files)]),
        y=np.array([1, 0, 1], np.uint8),
        classes=np.array(["n01440764 tench", "n02102040 English springer"]),
    )
    images = data.open_lab_images("imagenette")
    assert images.class_names == ["tench", "English springer"]
    np.testing.assert_array_equal(images.y, [1, 0, 1])
    np.testing.assert_allclose(images.read(EVERY)[:, 0, 0, 0].astype(int), levels, atol=2)


def test_other_sources_are_opened_as_usual(data_folder):
    assert len(data.open_lab_images("digits")) == 1797
    assert data.lab_matrix("digits").X.shape == (1797, 64)
    with pytest.raises(NoData, match=r"coil100_32\.npz does not exist"):
        data.lab_matrix("coil100")


def test_small_sets_are_read_from_one_file(data_folder):
    X = np.random.default_rng(0).integers(0, 256, (10_005, 4, 4), dtype=np.uint8)
    np.savez(data_folder / "mnist.npz", X=X, y=np.arange(10_005) % 10)
    assert len(data.open_lab_images("mnist")) == 10_005
    np.testing.assert_array_equal(data.open_lab_images("mnist-test").read(EVERY)[..., 0], X[5:])
    test = data.lab_matrix("mnist-test")
    assert (test.X.shape, test.X.dtype, test.y[0]) == ((10_000, 16), np.float32, 5)


@pytest.mark.parametrize(
    ("name", "parts"),
    [("imagenet10", ("",)), ("imagenet10", ("train",)), ("imagenette", ("train", "val"))],
)
def test_classes_of_imagenet_are_read_from_their_folders(data_folder, monkeypatch, name, parts):
    monkeypatch.setenv("PROBAGG_IMAGENET", str(data_folder))
    folder = data_folder / "imagenette2-160" if name == "imagenette" else data_folder
    with pytest.raises(NoData, match=r"lacks the ImageNet classes n0\d+, "):
        data.open_lab_images(name)
    for part, synset in itertools.product(parts, data.SYNSETS[name].split()):
        (folder / part / synset).mkdir(parents=True)
        Image.new("RGB", (30, 20)).save(folder / part / synset / "1.JPEG")
    images = data.open_lab_images(name)
    assert len(images) == 10 * len(parts)
    assert images.read(np.array([0])).shape[1:] == (*images.size, 3)
    np.testing.assert_array_equal(images.y, [*range(10)] * len(parts))


@pytest.mark.skipif("PROBAGG_DATA" not in os.environ, reason="PROBAGG_DATA is not set")
@pytest.mark.parametrize(
    ("name", "shape", "per_class"),
    [
        ("mnist", (70_000, 28, 28, 1), set(range(6_313, 7_878))),
        ("coil100", (7_178, 32, 32, 3), set(range(50, 73))),
        ("cifar10", (60_000, 32, 32, 3), {6_000}),
        ("cifar100-20", (60_000, 32, 32, 3), {3_000}),
        ("imagenette", (5_000, 96, 96, 3), {500}),
        ("imagenet-dogs", (2_571, 96, 96, 3), set(range(149, 253))),
    ],
)
def test_the_real_files_are_balanced_as_expected(name, shape, per_class):
    images = data.open_lab_images(name)
    assert (len(images), *images.size, images.channels) == shape
    counts = np.bincount(images.y)
    assert len(counts) == {"cifar100-20": 20, "imagenet-dogs": 15, "coil100": 100}.get(name, 10)
    assert set(counts.tolist()) <= per_class
    if name == "cifar10":
        train = images.read(np.arange(0, 50_000, 10)).mean(axis=(0, 1, 2))
        np.testing.assert_allclose(train, [125.3, 123.0, 113.9], atol=1.5)
