"""Image files: which are read, their classes, and how each format is decoded."""

import os
import shutil

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from probagg.data.images import FolderImages, ImageSet
from probagg.data.opening import open_images
from probagg.data.photo import BadImage, open_photo
from probagg.errors import NoData

rng = np.random.default_rng(0)
pillow_heif.register_heif_opener()  # for `save`


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(path, **options)


def flat(*colour, size=(8, 8)):
    return np.full((*size, 3), colour, np.uint8)


def only_image(folder, size=8, channels=3):
    return FolderImages(folder, size, channels).read(np.array([0]))[0]


def test_files_are_sorted_by_path_whatever_their_suffix(tmp_path):
    for number, name in enumerate(["b.PNG", "a.jpg", "sub/c.JPEG", "sub/deep/d.webp", "a-b.bmp"]):
        save(tmp_path / name, flat(number, number, number))
    for name in (".hidden.png", ".git/x.png", "notes.txt"):
        save(tmp_path / name, flat(9, 9, 9), format="PNG")
    images = FolderImages(tmp_path, 8)
    assert isinstance(images, ImageSet)
    assert images.paths == ["a-b.bmp", "a.jpg", "b.PNG", "sub/c.JPEG", "sub/deep/d.webp"]
    assert (images.name, images.size, images.channels) == (tmp_path.name, (8, 8), 3)
    np.testing.assert_array_equal(images.read(np.array([2, 0, 2]))[:, 0, 0, 0], [0, 4, 0])
    np.testing.assert_array_equal(images.read(np.arange(5) == 0)[0, 0, 0, 0], 4)


def test_classes_are_the_first_level_folders(tmp_path):
    for name in ("dog/1.png", "cat/2.png", "cat/deep/3.png"):
        save(tmp_path / name, flat(0, 0, 0))
    images = FolderImages(tmp_path, 8)
    assert images.class_names == ["cat", "dog"]
    np.testing.assert_array_equal(images.y, [0, 0, 1])
    save(tmp_path / "loose.png", flat(0, 0, 0))
    assert FolderImages(tmp_path, 8).y is None, "an image outside the sub-folders has no class"
    assert FolderImages(tmp_path / "cat", 8).y is None
    shutil.rmtree(tmp_path / "dog")
    (tmp_path / "loose.png").unlink()
    assert FolderImages(tmp_path, 8).y is None, "one folder is not a classification"


def test_links_inside_the_folder_are_followed_and_loops_end(tmp_path):
    save(tmp_path / ".real" / "a.png", flat(1, 1, 1))
    save(tmp_path / "b.png", flat(2, 2, 2))
    (tmp_path / "c.png").symlink_to("b.png")
    (tmp_path / "linked").symlink_to(tmp_path / ".real")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / ".real" / "up").symlink_to(tmp_path)
    images = FolderImages(tmp_path, 8)
    assert (images.paths, images.outside) == (["b.png", "c.png", "linked/a.png"], [])


def test_a_folder_without_images_says_what_is_there(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(NoData, match=r"contains no image that can be read: 1 \.txt\. Pass a"):
        FolderImages(tmp_path, 8)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoData, match="contains no image that can be read: it is empty"):
        FolderImages(tmp_path / "empty", 8)
    with pytest.raises(NoData, match=r"photos does not exist\. Pass the path of a folder"):
        FolderImages(tmp_path / "photos", 8)
    with pytest.raises(NoData, match=r"notes\.txt is a file\. Pass the folder"):
        FolderImages(tmp_path / "notes.txt", 8)
    with pytest.raises(ValueError, match="size must be 1 or more"):
        FolderImages(tmp_path, 0)


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, monkeypatch):
    save(tmp_path / "a.png", flat(0, 0, 0))
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(NoData, match=r"locked cannot be listed \(Permission denied\)"):
        FolderImages(tmp_path, 8)


MODES = {  # file: how it is stored, and the grey level of its pixels
    "palette.png": (lambda: Image.fromarray(flat(90, 90, 90)).quantize(4), {}, 90),
    "one_bit.png": (lambda: Image.new("1", (8, 8), 1), {}, 255),
    "grey_alpha.png": (lambda: Image.new("LA", (8, 8), (0, 0)), {}, 255),
    "half_alpha.png": (lambda: Image.new("RGBA", (8, 8), (0, 0, 0, 128)), {}, 127),
    "key_colour.png": (lambda: Image.fromarray(flat(5, 5, 5)), {"transparency": (5, 5, 5)}, 255),
    "palette_clear.gif": (lambda: Image.new("P", (8, 8), 3), {"transparency": 3}, 255),
    "sixteen.png": (lambda: Image.fromarray(np.full((8, 8), 200 * 256 + 7, np.uint16)), {}, 200),
    "sixteen.tif": (lambda: Image.fromarray(np.full((8, 8), 200 * 256 + 7, np.uint16)), {}, 200),
    "cmyk.jpg": (lambda: Image.new("CMYK", (8, 8), (0, 0, 0, 155)), {"quality": 95}, 100),
    "cmyk.tiff": (lambda: Image.new("CMYK", (8, 8), (0, 0, 0, 155)), {}, 100),
    "grey.jpg": (lambda: Image.new("L", (8, 8), 60), {}, 60),
    "plain.webp": (lambda: Image.new("RGB", (8, 8), (60, 60, 60)), {"lossless": True}, 60),
    "plain.avif": (lambda: Image.new("RGB", (8, 8), (60, 60, 60)), {"quality": 100}, 60),
    "plain.heic": (lambda: Image.new("RGB", (64, 64), (60, 60, 60)), {"quality": 100}, 60),
    "grey.heif": (lambda: Image.new("L", (64, 64), 60), {"quality": 100}, 60),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", MODES)
def test_every_kind_of_file_becomes_eight_bit_pixels(tmp_path, name, channels):
    make, options, grey = MODES[name]
    save(tmp_path / name, make(), **options)
    pixels = only_image(tmp_path, channels=channels)
    assert pixels.shape == (8, 8, channels)
    assert pixels.dtype == np.uint8
    np.testing.assert_allclose(pixels.astype(int), grey, atol=2)


def test_an_animation_is_read_as_its_first_frame(tmp_path):
    frames = [Image.fromarray(flat(level, level, level)) for level in (10, 200)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    np.testing.assert_allclose(only_image(tmp_path).astype(int), 10, atol=2)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif", "avif", "heic"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_exif_orientation_is_applied_once(tmp_path, suffix, orientation):
    """Pillow itself turns a TIFF, and libheif HEIC, which must not be turned twice."""
    upright = np.kron(np.array([[0, 80], [160, 240]]), np.ones((8, 8)))
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.repeat(stored[..., None], 3, 2).astype(np.uint8)
    options = {"exif": exif} if suffix == "tif" else {"exif": exif.tobytes(), "quality": 99}
    save(tmp_path / f"a.{suffix}", pixels, **options)
    np.testing.assert_allclose(only_image(tmp_path, 16)[..., 0], upright, atol=12)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_photo_with_a_broken_exif_block_is_read(tmp_path):
    save(tmp_path / "a.jpg", flat(50, 50, 50), exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    np.testing.assert_allclose(only_image(tmp_path).astype(int), 50, atol=2)


def test_the_centre_is_cropped_and_the_shorter_side_scaled(tmp_path):
    """Cropping first is cheaper and must equal scaling first."""
    pixels = rng.integers(0, 256, (16, 48, 3), dtype=np.uint8)
    whole = Image.fromarray(pixels).resize((24, 8), Image.Resampling.BICUBIC)
    middle = np.asarray(whole.crop((8, 0, 16, 8)))
    save(tmp_path / "wide.png", pixels)
    np.testing.assert_array_equal(only_image(tmp_path), middle)
    save(tmp_path / "wide.png", pixels.swapaxes(0, 1))
    np.testing.assert_allclose(only_image(tmp_path), middle.swapaxes(0, 1), atol=1)
    strip = np.full((1, 50_000, 3), 9, np.uint8)  # scaled before it is cropped: 15 GB
    save(tmp_path / "wide.png", strip)
    assert (only_image(tmp_path, 320) == 9).all()


def test_shrinking_does_not_alias(tmp_path):
    """Alternating black and white pixels average to grey; subsampling would return all or none."""
    stripes = np.tile(np.array([0, 255], np.uint8), (64, 32))
    save(tmp_path / "stripes.png", stripes)
    np.testing.assert_allclose(only_image(tmp_path).astype(int), 127, atol=8)


def test_a_large_jpeg_decoded_small_equals_the_full_decoding(tmp_path):
    """JPEG's draft mode is only an optimisation."""
    waves = 127 + 100 * np.sin(np.arange(800) / 60)
    pixels = np.repeat((waves[:, None] / 2 + waves[None] / 2)[..., None], 3, 2).astype(np.uint8)
    save(tmp_path / "jpg" / "a.jpg", pixels, quality=95)
    save(tmp_path / "png" / "a.png", pixels)
    small = [only_image(tmp_path / kind, 32).astype(int) for kind in ("jpg", "png")]
    np.testing.assert_allclose(*small, atol=4)


def test_a_photo_is_whole_upright_and_in_colour(tmp_path):
    """A backbone's own transform crops and scales; a large JPEG need not be decoded in full."""
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "a.jpg", Image.new("L", (1600, 400), 90), exif=exif)
    assert open_photo(tmp_path / "a.jpg", None).size == (400, 1600)
    small = open_photo(tmp_path / "a.jpg", 64)
    assert (small.mode, small.size) == ("RGB", (200, 800)), "half of it is still twice 64"
    (tmp_path / "a.jpg").write_bytes(b"nothing")
    with pytest.raises(BadImage, match="not an image in a known format"):
        open_photo(tmp_path / "a.jpg", 64)


@pytest.fixture
def bad_folder(tmp_path, monkeypatch):
    save(tmp_path / "good" / "a.png", flat(1, 1, 1))
    save(tmp_path / "good" / "b.jpg", rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    whole = (tmp_path / "good" / "b.jpg").read_bytes()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "bad" / "empty.png").touch()
    (tmp_path / "bad" / "script.jpg").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9"
    )
    (tmp_path / "bad" / "gone.png").symlink_to("nowhere.png")
    (tmp_path / "bad" / "folder.png").mkdir()
    os.mkfifo(tmp_path / "bad" / "pipe.png")
    save(tmp_path / "bad" / "bomb.png", np.zeros((300, 300), np.uint8))
    save(tmp_path / "bad" / "float.tif", np.zeros((8, 8), np.float32))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 128 * 128)
    return tmp_path


def test_bad_files_are_named_and_the_rest_is_kept(bad_folder):
    seen = []
    good, bad = FolderImages(bad_folder, 8).check(lambda done, total: seen.append((done, total)))
    reasons = dict(bad)
    assert good.paths == ["good/a.png", "good/b.jpg"]
    assert good.y.tolist() == [1, 1]
    assert good.read(np.arange(2)).shape == (2, 8, 8, 3)
    assert "truncated" in reasons["bad/cut.jpg"]
    assert reasons["bad/empty.png"] == "it is empty"
    assert reasons["bad/script.jpg"] == "it is not an image in a known format", "no Ghostscript"
    assert reasons["bad/gone.png"] == reasons["bad/pipe.png"]
    assert "broken link" in reasons["bad/gone.png"]
    assert "too many pixels" in reasons["bad/bomb.png"]
    assert "save it with 8 bits" in reasons["bad/float.tif"]
    assert len(bad) == 7
    assert seen == [(done, 9) for done in range(1, 10)]


def test_reading_a_bad_file_names_it(bad_folder):
    images = FolderImages(bad_folder, 8)
    with pytest.raises(NoData, match=r"bad.cut\.jpg cannot be read: .*truncated.*check\(\)"):
        images.read(np.array([images.paths.index("bad/cut.jpg")]))
    with pytest.raises(NoData, match=r"bomb\.png cannot be read"):
        images.read(np.arange(9))
    with pytest.raises(NoData, match=r"None of the 7 image files in .* can be read; bomb\.png"):
        FolderImages(bad_folder / "bad", 8).check()


def test_a_fingerprint_changes_with_any_file_and_with_the_format(tmp_path):
    save(tmp_path / "a.png", flat(1, 1, 1))
    save(tmp_path / "b.png", flat(2, 2, 2))
    (tmp_path / "c.png").symlink_to(tmp_path / "nowhere.png")
    first = FolderImages(tmp_path, 8).fingerprint()
    assert FolderImages(tmp_path, 8).fingerprint() == first
    assert len(first) == 16
    others = {FolderImages(tmp_path, 9).fingerprint(), FolderImages(tmp_path, 8, 1).fingerprint()}
    os.utime(tmp_path / "a.png", ns=(1, 1))
    others.add(FolderImages(tmp_path, 8).fingerprint())
    (tmp_path / "b.png").rename(tmp_path / "d.png")
    others.add(FolderImages(tmp_path, 8).fingerprint())
    assert len(others | {first}) == 5


def test_a_folder_is_opened_at_the_given_size(tmp_path):
    """Another size decodes the files again: a small copy is never enlarged."""
    pixels = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    save(tmp_path / "a.png", pixels)
    assert open_images(tmp_path).size == (96, 96)
    small = open_images(str(tmp_path), size=8, channels=1)
    assert (small.size, small.channels) == ((8, 8), 1)
    big = open_images(small, size=64, channels=3)
    np.testing.assert_array_equal(big.read(np.array([0]))[0], pixels)
    assert small.size == (8, 8)


def test_one_image_file_is_a_set_of_one(tmp_path):
    """`predict RUN photo.jpg` is what people try first; its neighbours do not matter."""
    save(tmp_path / "cat" / "photo.PNG", flat(7, 7, 7))
    save(tmp_path / "cat" / "other.png", flat(9, 9, 9))
    images = open_images(tmp_path / "cat" / "photo.PNG", size=4)
    assert isinstance(images, FolderImages)
    assert (images.paths, images.folder) == (["photo.PNG"], tmp_path / "cat")
    assert (images.name, len(images), images.y, images.class_names) == ("photo", 1, None, None)
    np.testing.assert_array_equal(images.read(np.array([0]))[0], flat(7, 7, 7, size=(4, 4)))
    assert images.check()[1] == []
    assert open_images(tmp_path / "cat" / "photo.PNG").size == (96, 96)
    grey = open_images(tmp_path / "cat" / "photo.PNG", size=32, channels=1)
    assert grey.read(np.array([0])).shape == (1, 32, 32, 1)
    with pytest.raises(ValueError, match="size must be 1 or more"):
        open_images(tmp_path / "cat" / "photo.PNG", size=0)


def test_a_list_of_files_keeps_its_order_and_its_names(tmp_path, monkeypatch):
    for number, name in enumerate(["a.png", "sub/b.png", "c.png"]):
        save(tmp_path / name, flat(number, number, number))
    monkeypatch.chdir(tmp_path)
    names = ["./sub/b.png", str(tmp_path / "a.png")]
    images = open_images([names[0], tmp_path / "a.png"], size=8)
    assert isinstance(images, FolderImages)
    assert (images.paths, images.y, images.class_names) == (names, None, None)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(images.read(np.arange(2))[:, 0, 0, 0], [1, 0])
    assert open_images(tuple(names), channels=1).channels == 1
    with pytest.raises(NoData, match=r"'a\.png' is in the list 2 times"):
        open_images(["a.png", "c.png", "a.png"])


def test_missing_files_of_a_list_are_reported(tmp_path):
    save(tmp_path / "a.png", flat(1, 1, 1))
    images = open_images([tmp_path / "a.png", tmp_path / "gone.png"], size=8)
    good, bad = images.check()
    assert good.paths == [str(tmp_path / "a.png")]
    assert bad[0][0] == str(tmp_path / "gone.png")
    assert "it is missing" in bad[0][1]


def test_a_photo_without_an_ending_is_read_and_other_files_are_not(tmp_path):
    Image.new("RGB", (9, 9), "red").save(tmp_path / "photo", "JPEG")
    Image.new("RGB", (9, 9), "red").save(tmp_path / "a.b", "JPEG")
    (tmp_path / "README").write_text("text")
    os.mkfifo(tmp_path / "pipe")
    images = open_images(tmp_path)
    assert images.paths == ["photo"]
    assert images.passed == ["README", "a.b", "pipe"]
    assert open_images(tmp_path / "photo").paths == ["photo"]
    assert images.read(np.array([0])).shape == (1, 96, 96, 3)


def test_one_file_without_the_suffix_of_an_image_is_refused(tmp_path):
    save(tmp_path / "photo.dat", flat(7, 7, 7), format="PNG")
    with pytest.raises(NoData, match=r"photo\.dat is neither a folder of images nor .* image file"):
        open_images(tmp_path / "photo.dat")
