"""On a full disk what was there stays whole, and the file that does not fit is named."""

import contextlib
import shutil
import subprocess

import numpy as np
import pytest
from commands import probagg
from served import Client, start, words

from probagg.app.review import Review
from probagg.app.run.contents import read_review, write_review
from probagg.app.run.folder import RunFolderError, changed_files
from probagg.app.run.output import sort_images
from probagg.app.run.session import version_of

PAGE = 4096


class Disk:
    """A small file system in memory."""

    def __init__(self, path):
        self.path = path

    def fill(self, left=0):
        """Leave so many bytes, or with None not even room for a name."""
        with (self.path / "filler").open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(PAGE))
            file.truncate(file.tell() - (left or 0))
        if left is None:
            with contextlib.suppress(OSError):
                for number in range(10_000):
                    (self.path / f"filler-{number}").touch()

    def free(self):
        for path in self.path.glob("filler*"):
            path.unlink()


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "tmpfs", path]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield Disk(path)
    subprocess.run(["umount", path], check=True)


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


CATS = Review(names={0: "cats"})
# Three pages of a disk.
LONG = Review(names={0: "dogs"}, moved={f"{row}" * 200: 1 for row in range(10, 35)})


@pytest.fixture
def run(disk, clustered):
    """A run on the disk, with a review."""
    run = shutil.copytree(clustered, disk.path / "run")
    write_review(run, CATS)
    return run


@pytest.mark.parametrize("left", [None, 0, PAGE, 2 * PAGE])
def test_a_review_that_does_not_fit_leaves_the_one_before(disk, run, left):
    disk.fill(left)
    with pytest.raises((OSError, RunFolderError), match="No space left on device") as caught:
        write_review(run, LONG)
    assert str(run) in str(caught.value)
    assert "ermission" not in str(caught.value)
    assert read_review(run) == CATS
    assert changed_files(run) == []
    assert not list(run.glob(".*")), "neither a lock nor a part of a file"
    disk.free()
    write_review(run, LONG)
    assert read_review(run) == LONG


def test_the_review_page_says_which_file_does_not_fit(disk, run):
    client = Client(start(run))
    disk.fill(PAGE)
    answer = client.save(version_of(CATS), names={"0": "dogs"})
    client.server.server_close()
    assert answer.status == 500
    why = "cannot be written (No space left on device). Free some space there"
    assert f"{run / 'manifest.json'} {why}" in words(answer)
    assert read_review(run) == CATS


@pytest.mark.parametrize("left", [None, 0])
def test_what_a_command_writes_is_named_and_an_old_file_stays(disk, run, tmp_path, left):
    """Where not even a name fits, too: then a place looks as if it could not be written."""
    table, rows = disk.path / "table.csv", tmp_path / "rows.npy"
    np.save(rows, np.zeros((60, 3)))
    table.write_text("old")
    before = contents(run)
    disk.fill(left)
    overwrite = ("--out", table, "--overwrite")
    for command in (
        ("predict", run, rows, *overwrite),
        ("select", run, *overwrite),
        ("cluster", rows, "-k", 2, "--method", "pac", "--out", run, "--overwrite"),
        ("cluster", rows, "-k", 2, "--method", "pac", "--out", disk.path / "new"),
        ("report", run),
    ):
        result = probagg(*command)
        said = " ".join(result.stderr.split())
        assert result.exit_code in (1, 2), command
        assert "No space left on device" in said
        assert "Free some space there" in said
        assert str(disk.path) in said
        assert "ermission" not in said
    assert (contents(run), table.read_text()) == (before, "old")


def test_photos_that_do_not_fit_are_not_sorted(disk, tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "photos" / name).write_bytes(bytes(300_000))
    disk.fill(400_000)
    with pytest.raises(OSError, match="No space left on device") as caught:
        sort_images(
            tmp_path / "photos", ["a.jpg", "b.jpg"], [0, 1], {}, disk.path / "sorted", link=False
        )
    assert caught.value.filename == str(disk.path / "sorted")
    assert [path.name for path in disk.path.iterdir()] == ["filler"]
