"""The public releases, from small files of the same format written here."""

import gzip
import itertools
import shutil
import struct

import numpy as np
import pytest
from PIL import Image

from probagg.data.archives import (
    IMAGENETTE,
    find_release,
    read_cifar10,
    read_cifar100,
    read_imagenet,
    read_imagenette,
    read_mnist,
    read_stl10,
)
from probagg.errors import NoData

rng = np.random.default_rng(0)
EVERY = slice(None)


def pixels(n, side, channels=3):
    return rng.integers(0, 256, (n, side, side, channels), dtype=np.uint8)


def write_cifar(folder, files, heads, X):
    """Write records of label bytes, then the red, green and blue planes, each row by row."""
    folder.mkdir(parents=True, exist_ok=True)
    n = len(X) // len(files)
    for i, file in enumerate(files):
        with (folder / file).open("wb") as out:
            for row in range(i * n, (i + 1) * n):
                out.write(bytes(head[row] for head in heads))
                out.write(X[row].transpose(2, 0, 1).tobytes())


def write_cifar10(folder):
    X, y = pixels(12, 32), np.arange(12) % 10
    files = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    write_cifar(folder, files, [y], X)
    (folder / "batches.meta.txt").write_text("airplane\nautomobile\n\n")
    return X, y


def write_stl10(folder):
    """Write images as red, green and blue planes, each column by column; classes from 1."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = pixels(9, 96), np.arange(9) % 10
    for part, rows in (("train", slice(0, 3)), ("test", slice(3, 7)), ("unlabeled", slice(7, 9))):
        X[rows].transpose(0, 3, 2, 1).tofile(folder / f"{part}_X.bin")
        if part != "unlabeled":
            (y[rows] + 1).astype(np.uint8).tofile(folder / f"{part}_y.bin")
    (folder / "class_names.txt").write_text("airplane\nbird\n")
    return X, y


def write_mnist(folder, zipped):
    folder.mkdir(parents=True, exist_ok=True)
    X, y = pixels(7, 28, 1)[..., 0], np.arange(7, dtype=np.uint8)
    for part, rows in (("train", slice(0, 5)), ("t10k", slice(5, 7))):
        images = struct.pack(">4I", 0x803, len(X[rows]), 28, 28) + X[rows].tobytes()
        labels = struct.pack(">2I", 0x801, len(y[rows])) + y[rows].tobytes()
        for name, data in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            path = folder / f"{part}-{name}{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(data) if zipped else data)
    return X, y


@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_cifar10_joins_its_batches_and_the_test_set(tmp_path, below):
    X, y = write_cifar10(tmp_path / below)
    images = read_cifar10(tmp_path)
    np.testing.assert_array_equal(images.read(EVERY), X)
    np.testing.assert_array_equal(images.y, y)
    assert (images.name, images.class_names) == ("cifar10", ["airplane", "automobile"])


def test_cifar100_has_its_twenty_superclasses(tmp_path):
    X, coarse, fine = pixels(8, 32), np.arange(8) + 12, np.arange(8) + 90
    write_cifar(tmp_path / "cifar-100-binary", ["train.bin", "test.bin"], [coarse, fine], X)
    images = read_cifar100(tmp_path)
    np.testing.assert_array_equal(images.read(EVERY), X)
    np.testing.assert_array_equal(images.y, coarse)
    assert (images.name, images.class_names) == ("cifar100-20", None)


def test_stl10_is_upright_and_its_unlabelled_images_stay_on_disk(tmp_path):
    X, y = write_stl10(tmp_path / "stl10_binary")
    images = read_stl10(tmp_path)
    np.testing.assert_array_equal(images.read(EVERY), X[:7])
    np.testing.assert_array_equal(images.y, y[:7])
    np.testing.assert_array_equal(images.extra.read(np.array([1, 0])), X[[8, 7]])
    assert isinstance(images.extra._array, np.memmap)
    assert images.extra.y is None
    assert images.class_names == ["airplane", "bird"]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("below", ["", "mnist", "MNIST/raw"])
def test_mnist_joins_training_and_test_images(tmp_path, zipped, below):
    X, y = write_mnist(tmp_path / below, zipped)
    images = read_mnist(tmp_path)
    np.testing.assert_array_equal(images.read(EVERY)[..., 0], X)
    np.testing.assert_array_equal(images.y, y)
    assert images.channels == 1


def cut(path, n_bytes=1):
    path.write_bytes(path.read_bytes()[:-n_bytes])


@pytest.mark.parametrize(
    ("write", "read", "file", "message"),
    [
        (write_cifar10, read_cifar10, "data_batch_3.bin", "not a multiple of the 3073 of a record"),
        (write_stl10, read_stl10, "unlabeled_X.bin", "not a multiple of the 27648 of an image"),
        (write_stl10, read_stl10, "test_y.bin", "3 classes for 4 images"),
        (
            lambda folder: write_mnist(folder, False),
            read_mnist,
            "train-images-idx3-ubyte",
            "3,919 values where its header says 3,920",
        ),
        (
            lambda folder: write_mnist(folder, True),
            read_mnist,
            "t10k-images-idx3-ubyte.gz",
            "ended before",
        ),
    ],
)
def test_a_truncated_file_is_named(tmp_path, write, read, file, message):
    write(tmp_path)
    cut(tmp_path / file)
    with pytest.raises(NoData, match=rf"{file} is truncated or of another format: .*{message}"):
        read(tmp_path)
    (tmp_path / file).write_bytes(b"")
    with pytest.raises(NoData, match=f"{file} is truncated"):
        read(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(NoData, match=rf"lacks {file.removesuffix('.gz')} of the binary"):
        read(tmp_path)


def test_invalid_bytes_are_not_read_as_classes_or_images(tmp_path):
    write_cifar(tmp_path, ["train.bin", "test.bin"], [np.arange(8) + 80] * 2, pixels(8, 32))
    with pytest.raises(NoData, match="class numbers beyond its 20 classes"):
        read_cifar100(tmp_path)
    write_stl10(tmp_path)
    (tmp_path / "train_y.bin").write_bytes(bytes([0, 1, 2]))
    with pytest.raises(NoData, match="class numbers beyond its 10 classes"):
        read_stl10(tmp_path)
    write_mnist(tmp_path, False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 1) + b"\1")
    with pytest.raises(NoData, match="1 classes for 2 images"):
        read_mnist(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0xD03, 1, 1, 1))
    with pytest.raises(NoData, match="does not start like an IDX file of bytes with 3 axes"):
        read_mnist(tmp_path)


def test_a_missing_release_names_every_file(tmp_path):
    assert find_release(tmp_path, "stl10") is None
    with pytest.raises(NoData, match=r"lacks train\.bin, test\.bin of the binary cifar100"):
        read_cifar100(tmp_path)


@pytest.mark.parametrize("below", ["", "train"])
def test_imagenet_reads_the_given_classes(tmp_path, below):
    for synset in ("n03", "n01", "n02"):
        folder = tmp_path / below / synset
        folder.mkdir(parents=True)
        for i in range(2):
            Image.fromarray(pixels(1, 20)[0]).save(folder / f"{synset}_{i}.JPEG")
    images = read_imagenet(tmp_path, ["n03", "n01"], 16)
    assert images.class_names == ["n01", "n03"]
    np.testing.assert_array_equal(images.y, [0, 0, 1, 1])
    assert images.read(EVERY).shape == (4, 16, 16, 3)
    with pytest.raises(NoData, match="lacks the ImageNet classes n04, n05"):
        read_imagenet(tmp_path, ["n05", "n01", "n04"], 16)
    (tmp_path / below / "n04").mkdir()
    with pytest.raises(NoData, match="has no image in n04"):
        read_imagenet(tmp_path, ["n01", "n03", "n04"], 16)


def test_imagenette_joins_train_and_val_and_names_its_classes(tmp_path):
    for part, synset in itertools.product(("train", "val"), IMAGENETTE):
        folder = tmp_path / part / synset
        folder.mkdir(parents=True)
        Image.fromarray(pixels(1, 20)[0]).save(folder / f"{synset}_1.JPEG")
    images = read_imagenette(tmp_path, 16)
    assert images.class_names[:2] == ["tench", "English springer"]
    np.testing.assert_array_equal(images.y, [*range(10), *range(10)])
    assert images.read(EVERY).shape == (20, 16, 16, 3)
    shutil.rmtree(tmp_path / "train")
    assert len(read_imagenette(tmp_path, 16)) == 10
    (tmp_path / "val" / "n01440764").rename(tmp_path / "val" / "fish")
    with pytest.raises(NoData, match=r"is not Imagenette: .* a folder for each of n01440764, "):
        read_imagenette(tmp_path, 16)
