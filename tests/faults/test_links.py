"""A link in a folder of photos that leads out of it may point at anything a person has."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
from commands import probagg
from PIL import Image

from probagg.app.embed.features import pictures_of
from probagg.app.report.thumbnails import image_rows, read_picture, read_whole
from probagg.app.run.folder import RunFolderError
from probagg.app.run.output import sort_images
from probagg.app.run.run import Run
from probagg.data.images import OUTSIDE, FolderImages
from probagg.data.photo import BadImage
from probagg.errors import NoData

rng = np.random.default_rng(0)


def photo(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path):
    """Photos with a link to a file and to a folder elsewhere, and one to a device."""
    for i in range(8):
        photo(tmp_path / "photos" / f"{i}.png")
    photo(tmp_path / "private" / "passport.png")
    (tmp_path / "photos" / "file.png").symlink_to(tmp_path / "private" / "passport.png")
    (tmp_path / "photos" / "folder").symlink_to(tmp_path / "private")
    (tmp_path / "photos" / "device.png").symlink_to("/dev/zero")
    return tmp_path / "photos"


def test_links_that_lead_out_are_named_and_not_read(photos):
    images = FolderImages(photos, 8)
    assert images.paths == [f"{i}.png" for i in range(8)]
    outside = [(name, OUTSIDE) for name in ("device.png", "file.png", "folder")]
    assert sorted(images.outside) == outside


def test_a_page_does_not_show_them(photos):
    """Also where the table of a run from a stranger names one."""
    samples = SimpleNamespace(names=["file.png", "folder/passport.png", "1.png"])
    assert image_rows(FolderImages(photos, 8), samples) == [None, None, 1]


def test_the_folder_itself_may_be_a_link(photos, tmp_path):
    (tmp_path / "shortcut").symlink_to(photos)
    assert len(FolderImages(tmp_path / "shortcut", 8)) == 8


def test_a_folder_of_such_links_only_says_so(photos, tmp_path):
    only = tmp_path / "only"
    only.mkdir()
    (only / "a.png").symlink_to(photos / "0.png")
    with pytest.raises(NoData, match="1 links that lead out of it"):
        FolderImages(only, 8)


NETWORK = """
import torch
def build():
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
"""


def test_a_run_skips_and_names_them(photos, tmp_path, monkeypatch):
    """In its tables, and when it is given new photos."""
    (tmp_path / "small_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    network = ("--backbone", "small_network:build", "--method", "pac", "--no-report")
    result = probagg("cluster", photos, "-k", 2, *network, "--out", run)
    assert result.exit_code == 0, result.output
    assert "3 files skipped (skipped.csv says why)" in result.output
    skipped = list(csv.DictReader((run / "skipped.csv").open()))
    assert {row["path"] for row in skipped} == {"device.png", "file.png", "folder"}
    assert {row["reason"] for row in skipped} == {OUTSIDE}
    result = probagg("predict", run, photos, "--trust-code")
    assert result.exit_code == 0, result.output
    assert f"file.png is left out: {OUTSIDE}" in result.output


def test_a_photo_that_becomes_such_a_link_is_not_read_any_more(photos, tmp_path):
    """As while a review is served: the folder was listed before."""
    images = FolderImages(photos, 8)
    (photos / "3.png").unlink()
    (photos / "3.png").symlink_to(tmp_path / "private" / "passport.png")
    assert read_whole(images, 2, 100) is not None
    assert read_whole(images, 3, 100) is None
    assert read_picture(images, 3) is None
    with pytest.raises(NoData, match=OUTSIDE):
        images.read(np.array([3]))
    assert images.check()[1] == [("3.png", OUTSIDE)]
    with pytest.raises(BadImage, match=OUTSIDE):
        pictures_of(images, None).items(np.arange(4))[3].picture()


@pytest.mark.parametrize(
    "name", ["../private/passport.png", "absolute", "file.png", "a/../../x.png"]
)
def test_a_run_that_names_a_file_elsewhere_copies_and_lists_nothing(photos, tmp_path, name):
    """A table that somebody wrote may name any file of yours."""
    name = str(tmp_path / "private" / "passport.png") if name == "absolute" else name
    target = tmp_path / "sorted"
    for link in (False, True):
        with pytest.raises(RunFolderError, match=r"which is not in .*photos"):
            sort_images(photos, ["0.png", name], [0, 0], {}, target, link=link)
    assert not target.exists()
    run = SimpleNamespace(config={"source": str(photos)}, images=None)
    with pytest.raises(RunFolderError, match=r"which is not in .*photos"):
        Run.photos(run, ["0.png", name])
    assert Run.photos(run, ["0.png"]) == (photos, [photos / "0.png"])
