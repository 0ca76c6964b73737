"""What --out names is written only where nobody loses a file."""

import os
import stat
from pathlib import Path

import pytest
from commands import cluster_by_pac, probagg

from probagg.app.run.output import Output
from probagg.errors import InputError


def commands(run, rows):
    """Every command that takes a file as --out."""
    return (
        ("predict", run, rows),
        ("select", run),
    )


def test_an_existing_file_is_replaced_only_on_request(run, rows, tmp_path):
    thesis = tmp_path / "thesis"
    for command in commands(run, rows):
        thesis.write_text("mine")
        result = probagg(*command, "--out", thesis)
        assert result.exit_code == 2
        assert "exists. Name a new file, or replace it with --overwrite" in result.output
        assert thesis.read_text() == "mine"
        assert probagg(*command, "--out", thesis, "--overwrite").exit_code == 0
        assert thesis.read_bytes() != b"mine"


def test_a_place_is_refused_before_the_work(run, rows, tmp_path):
    """Hours may be lost otherwise: here a file is missing that the work begins with."""
    thesis = tmp_path / "thesis"
    thesis.write_text("mine")
    (run / "model.safetensors").unlink()
    for command in (("predict", run, rows), ("export", run)):
        assert f"{thesis} exists" in probagg(*command, "--out", thesis).output


def test_a_link_is_neither_followed_nor_replaced(run, rows, tmp_path):
    outside, link = tmp_path / "outside.txt", tmp_path / "link"
    outside.write_text("mine")
    for target in (outside, tmp_path / "nowhere"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        for command in commands(run, rows):
            result = probagg(*command, "--out", link, "--overwrite")
            assert result.exit_code == 2
            assert "is a symbolic link to" in result.output
        assert link.is_symlink()
    assert outside.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_run_keeps_its_files(run, rows, tmp_path):
    """Also another run's than the one that predicts, and one that it does not have yet."""
    result = cluster_by_pac(rows, "-k", 3, "--out", tmp_path / "other")
    assert result.exit_code == 0
    before = (tmp_path / "other" / "assignments.csv").read_bytes()
    for name in ("assignments.csv", "classes.csv", ".probagg-unfinished/new.csv"):
        for home in (run, tmp_path / "other"):
            (home / name).parent.mkdir(exist_ok=True)
            result = probagg("predict", run, rows, "--out", home / name, "--overwrite")
            assert result.exit_code == 2
            assert "belongs to the run there" in result.output
    assert (tmp_path / "other" / "assignments.csv").read_bytes() == before
    assert probagg("predict", run, rows, "--out", run / "new.csv").exit_code == 0


def test_a_source_is_never_replaced(run, rows, tmp_path):
    """Under any of its names, and with --overwrite too."""
    before = rows.read_bytes()
    os.link(rows, tmp_path / "same.csv")
    (tmp_path / "link.csv").symlink_to(rows)
    for name in ("rows.csv", "same.csv", "link.csv", "run/../rows.csv"):
        result = probagg("predict", run, rows, "--out", tmp_path / name, "--overwrite")
        assert result.exit_code == 2
        assert "is the source itself" in result.output
    assert rows.read_bytes() == before


def test_a_device_is_not_replaced(run, rows, tmp_path):
    """Root could replace /dev/null itself, so this is another name of it."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.stat("/dev/null").st_rdev)
    except PermissionError:
        device = Path("/dev/null")
    for command in commands(run, rows):
        result = probagg(*command, "--out", device, "--overwrite")
        assert (result.exit_code, "is not a regular file" in result.output) == (2, True)
    assert device.is_char_device()


def test_a_file_in_a_folder_of_photos_is_not_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    notes = tmp_path / "photos" / "notes.csv"
    notes.write_text("mine")
    with pytest.raises(InputError, match="would replace a file in"):
        Output(notes, overwrite=True, sources=(tmp_path / "photos",)).check()
    Output(tmp_path / "photos" / "new.csv", sources=(tmp_path / "photos",)).check()


def test_a_file_that_came_up_during_the_work_is_not_replaced(tmp_path):
    output = Output(tmp_path / "new.csv").check()
    output.path.write_text("mine")
    with pytest.raises(InputError, match="exists"):
        output.write(b"ours")
    assert output.path.read_text() == "mine"
    output.path.unlink()

    def ours():
        output.path.write_text("mine")
        yield b"ours"

    with pytest.raises(InputError, match="exists"):
        output.write(ours())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("new.csv", "mine")]


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_a_folder_or_a_pipe_is_not_replaced(run, rows, tmp_path, what):
    out = tmp_path / what
    os.mkfifo(out) if what == "pipe" else out.mkdir()
    for command in commands(run, rows):
        result = probagg(*command, "--out", out, "--overwrite")
        assert (result.exit_code, "is a folder." in result.output) == (2, what == "folder")
    assert out.is_dir() or out.is_fifo()
