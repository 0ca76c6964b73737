"""Formats that optional packages read, and files that are passed over."""

import pytest
from PIL import Image

from probagg.data import photo
from probagg.data.images import FolderImages
from probagg.data.opening import open_images
from probagg.data.photo import BadImage, decode_photo
from probagg.errors import NoData


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


def test_without_its_package_files_are_passed_over_and_named(mixed, without_packages):
    images = FolderImages(mixed, 8)
    assert images.paths == ["a.png"]
    assert sorted(images.passed) == ["b.HEIC", "d.dng", "e.txt", "g", "sub/c.heic", "sub/f.mp4"]
    assert photo.count_by_kind(images.passed) == (
        "2 .heic (pip install pillow-heif), 1 .dng, 1 .txt, 1 without an ending, 1 .mp4"
    )
    with pytest.raises(NoData, match=r"b\.HEIC cannot be read: .* pip install pillow-heif"):
        open_images(mixed / "b.HEIC")
    with pytest.raises(BadImage, match=r"\.heic files need a package: pip install pillow"):
        decode_photo(mixed / "b.HEIC", 8, 3)
    (mixed / "a.png").unlink()
    with pytest.raises(NoData, match=r"no image that can be read: 2 \.heic \(pip install"):
        FolderImages(mixed, 8)


def test_with_its_package_they_are_images(mixed):
    images = FolderImages(mixed, 8)
    assert images.paths == ["a.png", "b.HEIC", "sub/c.heic"]
    assert images.check()[0].paths == ["a.png"], "those here hold no image"


def test_many_kinds_are_counted_together():
    paths = [f"{i}.x{i % 9}" for i in range(18)]
    assert photo.count_by_kind(paths).endswith(", 2 .x5, 6 others")
