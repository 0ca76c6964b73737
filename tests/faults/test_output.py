"""Output that nobody reads, that does not fit, or that the terminal cannot show."""

import io
import os
import sys
import threading

import numpy as np
import pytest

from probagg.app.cli import main
from probagg.app.run.folder import MANIFEST


@pytest.fixture
def rows(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 3)))
    return tmp_path / "rows.npy"


def probagg(monkeypatch, *arguments, **streams):
    """Run the console script with other standard streams and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["probagg", *map(str, arguments)])
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as ended:
        main()
    for stream in streams.values():
        if stream is not None:
            stream.flush()  # as Python does when it exits, where an error would be shown
    return ended.value.code or 0


def closed_pipe():
    """A pipe whose reader has gone, as of `| head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w", encoding="utf-8")


def full_disk():
    return open("/dev/full", "w", encoding="utf-8")


@pytest.mark.parametrize("gone", [closed_pipe, full_disk, lambda: None])
def test_a_run_is_finished_where_nobody_reads_what_it_says(rows, tmp_path, monkeypatch, gone):
    """Hours of work do not depend on whether a message arrives; None is a stream that is closed."""
    out = tmp_path / "run"
    streams = {"stdout": gone(), "stderr": gone()}
    code = probagg(monkeypatch, "cluster", rows, "-k", 3, "--out", out, "--no-report", **streams)
    assert code == 0
    assert (out / MANIFEST).exists()
    assert "3 clusters by PAC" in (out / "log.txt").read_text()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii", "utf-8"])
def test_a_run_is_finished_where_the_terminal_lacks_characters(
    rows, tmp_path, monkeypatch, encoding
):
    """Windows writes cp1252 into pipes and files, which lacks most of Unicode."""
    out, shown = tmp_path / "run \u732b", io.TextIOWrapper(io.BytesIO(), encoding)
    arguments = ("cluster", rows, "-k", 3, "--out", out, "--no-report")
    assert probagg(monkeypatch, *arguments, stdout=shown) == 0
    text = shown.buffer.getvalue().decode(encoding)
    assert f"written to {out if encoding == 'utf-8' else tmp_path / 'run ?'}" in text
    assert (out / MANIFEST).exists()


def test_a_reader_of_a_result_who_has_had_enough_is_no_error_message(
    rows, clustered, monkeypatch, capfd
):
    for options in ((), ("--json",)):
        assert probagg(monkeypatch, "predict", clustered, rows, *options, stdout=closed_pipe()) == 1
    assert "Error" not in capfd.readouterr().err


def test_a_result_that_does_not_fit_on_the_disk_is_an_error(rows, clustered, monkeypatch, capfd):
    assert probagg(monkeypatch, "predict", clustered, rows, stdout=full_disk()) == 1
    assert "The result cannot be written to standard output (No space" in capfd.readouterr().err


def test_a_full_disk_is_named_by_the_file_that_did_not_fit(rows, clustered, monkeypatch, capfd):
    out = rows.with_name("new.csv")
    writer = f"{os.getpid()}-{threading.get_ident()}"
    out.with_name(f".new.csv.{writer}.tmp").symlink_to("/dev/full")
    assert probagg(monkeypatch, "predict", clustered, rows, "--out", out) == 1
    said = capfd.readouterr().err
    assert f"The disk is full ([Errno 28] No space left on device: '{out}'). Free some" in said
    assert not out.exists()
