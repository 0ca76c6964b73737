"""Formats that optional packages read, and files that are passed over."""

import numpy as np
import pytest
from PIL import Image
from raw_files import dng, jpeg

from probagg.data import photo
from probagg.data.opening import open_images
from probagg.data.photo import BadImage, decode_photo
from probagg.data.photos import FolderImages
from probagg.errors import NoData

UPRIGHT = np.kron(np.array([[0, 80], [160, 240]], np.uint8), np.ones((32, 32), np.uint8))
STORED = {1: UPRIGHT, 3: UPRIGHT[::-1, ::-1], 6: np.rot90(UPRIGHT), 8: np.rot90(UPRIGHT, -1)}


@pytest.fixture
def mixed(tmp_path):
    """A folder as a phone leaves it."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "sub").mkdir()
    for name in ("b.HEIC", "sub/c.heic", "d.dng", "e.txt", "sub/f.mp4", "g"):
        (tmp_path / name).write_bytes(b"?")
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._a.png"):
        (tmp_path / name).write_bytes(b"?")
    return tmp_path


@pytest.mark.parametrize("kind", ["jpeg", "bitmap"])
@pytest.mark.parametrize("orientation", STORED)
def test_the_preview_of_a_raw_file_is_read_upright(tmp_path, kind, orientation):
    pixels = np.ascontiguousarray(np.repeat(STORED[orientation][..., None], 3, 2))
    given = {"preview": jpeg(pixels)} if kind == "jpeg" else {"pixels": pixels}
    (tmp_path / "a.DNG").write_bytes(dng(**given, orientation=orientation))
    read = FolderImages(tmp_path, 64).read(np.array([0]))[0]
    np.testing.assert_allclose(read[4::8, 4::8, 0].astype(int), UPRIGHT[4::8, 4::8], atol=12)


def test_a_raw_file_without_a_preview_says_so(tmp_path):
    (tmp_path / "a.dng").write_bytes(dng())
    with pytest.raises(BadImage, match="no preview that can be read: convert it to JPEG"):
        decode_photo(tmp_path / "a.dng", 8, 3)
    (tmp_path / "b.nef").write_bytes(b"not a RAW file" * 99)
    with pytest.raises(BadImage, match="format"):
        decode_photo(tmp_path / "b.nef", 8, 3)


def test_without_their_packages_files_are_passed_over_and_named(mixed, without_packages):
    images = FolderImages(mixed, 8)
    assert images.paths == ["a.png"]
    assert sorted(images.passed) == ["b.HEIC", "d.dng", "e.txt", "g", "sub/c.heic", "sub/f.mp4"]
    assert photo.count_by_kind(images.passed) == (
        "2 .heic (pip install pillow-heif), 1 .dng (pip install rawpy), 1 .txt, "
        "1 without an ending, 1 .mp4"
    )
    with pytest.raises(NoData, match=r"b\.HEIC cannot be read: .* pip install pillow-heif"):
        open_images(mixed / "b.HEIC")
    with pytest.raises(BadImage, match=r"\.dng files need a package: pip install rawpy"):
        decode_photo(mixed / "d.dng", 8, 3)
    (mixed / "a.png").unlink()
    with pytest.raises(NoData, match=r"no image that can be read: 2 \.heic \(pip install"):
        FolderImages(mixed, 8)


def test_with_their_packages_they_are_images(mixed):
    images = FolderImages(mixed, 8)
    assert images.paths == ["a.png", "b.HEIC", "d.dng", "sub/c.heic"]
    assert images.check()[0].paths == ["a.png"], "those here hold no image"


def test_many_kinds_are_counted_together():
    paths = [f"{i}.x{i % 9}" for i in range(18)]
    assert photo.count_by_kind(paths).endswith(", 2 .x5, 6 others")
