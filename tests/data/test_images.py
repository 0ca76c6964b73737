"""Sets of images from arrays, files and Datasets, and errors that say what to do."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from probagg.data.images import ArrayImages, DatasetImages, ImageSet
from probagg.data.opening import open_images, open_source
from probagg.errors import NoData

rng = np.random.default_rng(0)
GREY = rng.integers(0, 256, (5, 6, 7), dtype=np.uint8)
COLOUR = rng.integers(0, 256, (5, 6, 6, 3), dtype=np.uint8)


class Items:
    """A map-style dataset of given items."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


@pytest.mark.parametrize("array", [GREY, COLOUR], ids=["grey", "colour"])
def test_an_array_is_read_in_the_given_order(array):
    images = ArrayImages(array)
    assert isinstance(images, ImageSet)
    assert images.size == array.shape[1:3]
    assert images.channels == (3 if array is COLOUR else 1)
    assert (images.y, images.class_names, images.paths, images.extra) == (None,) * 4
    picked = images.read(np.array([3, 0, 3]))
    assert picked.flags.c_contiguous
    np.testing.assert_array_equal(picked, array.reshape(*array.shape[:3], -1)[[3, 0, 3]])


def test_floats_are_the_same_images_in_an_array_a_file_and_a_dataset(tmp_path):
    expected = COLOUR / 255.0
    np.save(tmp_path / "floats.npy", expected.astype(np.float32))
    for source in (expected, tmp_path / "floats.npy", Items(list(expected))):
        np.testing.assert_array_equal(open_images(source).read(np.arange(5)), COLOUR[:5])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.full((5, 4, 4), 16.0),
            r"float64 .* 16 to 16, but \[0, 1\] .* divide by the largest",
        ),
        (np.full((5, 4, 4), np.nan), r"values from nan to nan"),
        (np.zeros((5, 4, 4), np.int64), r"Pass x\.astype\(np\.uint8\)"),
        (np.zeros((5, 3, 8, 8), np.uint8), r"x\.transpose\(0, 2, 3, 1\)"),
        (np.zeros((5, 8, 8, 4), np.uint8), r"must come last.*x\[\.\.\., :3\]"),
        (np.zeros((5, 64), np.uint8), r"flat rows.*x\.reshape\(-1, H, W\)"),
        (np.zeros(5, np.uint8), r"as \(N, H, W\), grey"),
        (np.zeros((480, 640, 3), np.uint8), r"probably one image.*x\[None\]"),
        (np.zeros((0, 8, 8), np.uint8), "one or more"),
    ],
)
def test_an_invalid_array_is_an_error_that_says_what_to_pass(array, message):
    with pytest.raises(NoData, match=message):
        ArrayImages(array)


def test_classes_are_one_integer_per_image():
    assert ArrayImages(GREY, np.arange(5, dtype=np.uint8)).y.dtype == np.int64
    with pytest.raises(NoData, match=r"y has shape \(4,\) but there are 5 images"):
        ArrayImages(GREY, np.arange(4))
    with pytest.raises(NoData, match=r"classes must be integers.*return_inverse"):
        ArrayImages(GREY, np.array(list("abcde")))


def test_a_fingerprint_depends_on_the_pixels_only():
    """A run is resumed only on the same images, whatever their name or memory layout."""
    print_ = ArrayImages(COLOUR).fingerprint()
    content = repr(COLOUR.shape).encode() + COLOUR.tobytes()
    assert print_ == hashlib.blake2b(content, digest_size=8).hexdigest(), "checkpoints store it"
    planar = np.ascontiguousarray(COLOUR.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    assert ArrayImages(planar, np.arange(5), name="other").fingerprint() == print_
    other = COLOUR.copy()
    other[4, 5, 5, 2] ^= 1
    assert ArrayImages(other).fingerprint() != print_
    assert ArrayImages(COLOUR.reshape(5, 6, 18)).fingerprint() != print_


def test_npz_and_npy_files_open(tmp_path):
    np.savez(tmp_path / "set.npz", X=COLOUR, y=np.arange(5))
    images = open_images(tmp_path / "set.npz")
    assert images.name == "set"
    np.testing.assert_array_equal(images.y, np.arange(5))
    np.testing.assert_array_equal(images.read(np.arange(5)), COLOUR)
    np.savez(tmp_path / "bare.npz", X=GREY)
    assert open_images(str(tmp_path / "bare.npz")).y is None
    np.save(tmp_path / "set.npy", COLOUR)
    mapped = open_images(tmp_path / "set.npy")
    assert isinstance(mapped._array, np.memmap)
    assert type(mapped.read(np.array([1]))) is np.ndarray
    assert mapped.fingerprint() == images.fingerprint()


@pytest.mark.parametrize("name", ["images", "arr_0"])
def test_the_only_array_of_an_npz_may_have_any_name(tmp_path, name):
    np.savez(tmp_path / "bare.npz", **{name: COLOUR})
    np.testing.assert_array_equal(open_images(tmp_path / "bare.npz").read(np.arange(5)), COLOUR)
    np.savez(tmp_path / "set.npz", y=np.arange(5), **{name: COLOUR})
    np.testing.assert_array_equal(open_images(tmp_path / "set.npz").y, np.arange(5))


def test_files_without_images_are_named(tmp_path):
    np.savez(tmp_path / "other.npz", data=GREY, labels=np.arange(5))
    with pytest.raises(NoData, match="has no array X; its arrays are: data, labels"):
        open_images(tmp_path / "other.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "other.npz").read_bytes()[:200])
    with pytest.raises(NoData, match="cannot be read as a NumPy file"):
        open_images(tmp_path / "cut.npz")
    np.savez(tmp_path / "objects.npz", X=np.array([{}], dtype=object))
    with pytest.raises(NoData, match="allow_pickle"):
        open_images(tmp_path / "objects.npz")
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(NoData, match="cannot be read as a NumPy file"):
        open_images(tmp_path / "text.npy")
    np.save(tmp_path / "floats.npy", np.full((5, 4, 4), 9.0))
    with pytest.raises(NoData, match=r"\[0, 1\] is needed"):
        open_images(tmp_path / "floats.npy")
    (tmp_path / "table.csv").write_text("1,2")
    with pytest.raises(NoData, match=r"table\.csv is neither a folder of images nor a \.npz"):
        open_images(tmp_path / "table.csv")


def test_a_name_is_opened_unless_a_path_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(open_images("digits")) == 1797
    with pytest.raises(NoData, match=r"not a file, a folder or .*Did you mean 'digits'\?"):
        open_images("digit")
    (tmp_path / "digits").mkdir()
    Image.fromarray(COLOUR[0]).save(tmp_path / "digits" / "a.png")
    assert len(open_images("digits")) == 1


@pytest.mark.parametrize("typed", ["phtos", "photo", "Photos/"])
def test_a_mistyped_folder_is_found(tmp_path, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "other").mkdir()
    with pytest.raises(NoData, match="Did you mean 'photos'"):
        open_source(typed)
    with pytest.raises(NoData, match=f"Did you mean '{tmp_path}/photos'"):
        open_images(tmp_path / typed)


def test_arrays_and_image_sets_are_opened():
    images = open_images(COLOUR)
    assert open_images(images) is images
    assert open_images(images, size=6, channels=3) is images
    with pytest.raises(NoData, match="int has no length"):
        open_images(5)
    for wrong in ({"size": 0}, {"channels": 4}):
        with pytest.raises(ValueError, match="size must be 1 or more pixels"):
            open_images(COLOUR, **wrong)


def test_every_source_is_opened_at_the_given_size_and_channels(tmp_path):
    np.save(tmp_path / "set.npy", COLOUR)
    Image.fromarray(COLOUR[0]).save(tmp_path / "a.png")
    sources = ["digits", COLOUR, GREY, tmp_path, tmp_path / "a.png", tmp_path / "set.npy"]
    for source in [*sources, [tmp_path / "a.png"], Items(COLOUR), open_images(COLOUR)]:
        for size, channels in ((5, 1), (9, 3)):
            images = open_images(source, size=size, channels=channels)
            assert (images.size, images.channels) == ((size, size), channels)
            assert images.read(np.array([0])).shape == (1, size, size, channels)


def test_images_are_told_from_matrices(tmp_path):
    pd = pytest.importorskip("pandas")
    np.save(tmp_path / "images.npy", COLOUR)
    np.save(tmp_path / "rows.npy", np.zeros((3, 2)))
    Image.fromarray(COLOUR[0]).save(tmp_path / "a.png")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    images = ["digits", COLOUR, GREY, tmp_path, tmp_path / "images.npy", [tmp_path / "a.png"]]
    for source in [*images, Items(COLOUR), open_images(COLOUR), torch.zeros(2, 3, 4, 4)]:
        assert open_source(source).kind == "images"
    for source in [np.zeros((3, 2)), torch.zeros(3, 2), tmp_path / "rows.npy"]:
        assert open_source(source).kind == "matrix"
    for source in [pd.DataFrame({"a": [1.0]}), tmp_path / "a.csv"]:
        assert open_source(source).kind == "table"
    assert open_source("digits", prefer="matrix").X.shape == (1797, 64)
    with pytest.raises(NoData, match=r"'cifar1' is not a file, .*Did you mean 'cifar10'\?"):
        open_source("cifar1")


def test_a_set_is_opened_at_another_size_and_in_other_channels():
    """The paper's STL-10 is 224 px where its files have 96; extra images are converted too."""
    flat = np.full((4, 6, 8, 3), 77, np.uint8)
    images = open_images(ArrayImages(flat, extra=ArrayImages(flat[:2])), size=12, channels=1)
    assert images.size == (12, 12)
    assert images.channels == 1
    assert images.extra.size == (12, 12)
    assert (images.read(np.arange(4)) == 77).all()
    assert images.read(np.array([2])).shape == (1, 12, 12, 1)
    assert images.fingerprint() != ArrayImages(flat).fingerprint()
    coloured = open_images(GREY, channels=3)
    assert coloured.size == (6, 7)
    np.testing.assert_array_equal(coloured.read(np.array([4])), GREY[[4], ..., None].repeat(3, 3))


@pytest.mark.parametrize(
    "wrap",
    [
        Image.fromarray,
        lambda x: (Image.fromarray(x), 3),
        np.asarray,
        lambda x: x / 255,
        lambda x: (torch.from_numpy(x).permute(2, 0, 1), 3, "more"),
        lambda x: torch.from_numpy(x).permute(2, 0, 1) / 255,
    ],
    ids=["pillow", "pillow and class", "array", "float array", "uint8 tensor", "float tensor"],
)
def test_a_dataset_may_return_any_kind_of_image(wrap):
    images = open_images(Items([wrap(x) for x in COLOUR]))
    assert isinstance(images, ImageSet)
    assert (images.size, images.channels, images.y) == ((6, 6), 3, None)
    np.testing.assert_array_equal(images.read(np.array([2, 0])), COLOUR[[2, 0]])
    np.testing.assert_array_equal(images.read(np.arange(5) == 4), COLOUR[[4]])
    assert len(images.fingerprint()) == 16
    assert images.fingerprint() != open_images(Items([wrap(x) for x in COLOUR[::-1]])).fingerprint()


def test_a_dataset_of_grey_images_has_one_channel():
    for wrap in (Image.fromarray, np.asarray, torch.from_numpy):
        images = DatasetImages(Items([wrap(x) for x in GREY]))
        np.testing.assert_array_equal(images.read(np.array([1]))[..., 0], GREY[[1]])
    mixed = DatasetImages(Items([COLOUR[0], GREY[0, :, :6]]))
    np.testing.assert_array_equal(mixed.read(np.array([1]))[0, ..., 2], GREY[0, :, :6])
    with pytest.raises(NoData, match=r"Image 1 has colour.*convert\('RGB'\)"):
        DatasetImages(Items([GREY[0, :, :6], COLOUR[0]])).read(np.array([1]))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "is empty"),
        ([{"image": 1}], "Item 0 is a dict"),
        ([COLOUR[0] / 1.0], r"array of float64 with values from .* \[0, 1\] is needed"),
        ([torch.randn(3, 4, 4)], r"\[0, 1\] is needed\. Leave Normalize out"),
        ([torch.zeros(3, 4, 4, dtype=torch.int64)], r"tensor of torch\.int64"),
        ([torch.zeros(4, 4, 4)], "drop its transparency"),
        ([COLOUR[0], COLOUR[0, :4]], "Image 1 is 4 x 6 but the first is 6 x 6. Resize all"),
    ],
)
def test_a_dataset_that_cannot_be_read_says_what_to_change(items, message):
    with pytest.raises(NoData, match=message):
        DatasetImages(Items(items)).read(np.arange(len(items)))


def test_without_pillow_one_line_names_the_packages(tmp_path):
    Image.fromarray(COLOUR[0]).save(tmp_path / "a.png")
    code = (
        "import sys; sys.modules['PIL'] = None; from probagg.data.opening import open_images; "
        f"images = open_images({str(tmp_path)!r}); assert len(images) == 1; images.read([0])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = result.stderr.strip().splitlines()[-1]
    command = "pip install torch torchvision 'timm>=1.0.26' pillow"
    assert last.endswith(f"Reading image files needs Pillow, which is not installed: {command}")


def test_opening_images_loads_no_torch():
    code = "import probagg.data.opening, sys; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"torch", "PIL", "sklearn"} & set(loaded)
