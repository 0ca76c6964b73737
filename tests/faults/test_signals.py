"""Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 at any moment of a command, with real signals."""

import os
import pkgutil
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from probagg.app.cli import main
from probagg.app.run.folder import LOCK, RunFolder
from probagg.processes import on_signals

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]
pytestmark = pytest.mark.usefixtures("hangups")


@pytest.fixture
def rows(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 3)))
    return tmp_path / "rows.npy"


def probagg(monkeypatch, *arguments):
    """Run the console script and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["probagg", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def signalled(monkeypatch, place, number):
    """Let a function of probagg receive a signal when it begins."""
    module, _, name = place.rpartition(".")
    target = pkgutil.resolve_name(module)
    work = getattr(target, name)

    def begin(*arguments, **options):
        signal.raise_signal(number)
        return work(*arguments, **options)

    monkeypatch.setattr(target, name, begin)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "place",
    [
        "probagg.app.cli.commands.plan",  # start-up
        "probagg.pac.sweeps.BlockSweeps.sweep",  # PAC
        "probagg.app.run.pipeline.write",  # the tables
        "probagg.app.run.folder.RunFolder._seal",
    ],
)
def test_a_signal_ends_a_run_with_a_line_and_without_a_lock(
    rows, tmp_path, monkeypatch, capfd, number, place
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        signalled(patch, place, number)
        code = probagg(patch, "cluster", rows, "-k", 3, "--out", out, "--no-report")
    said = capfd.readouterr().err
    assert code == 128 + number
    assert f"Error: Stopped by {number.name}. " in said
    assert "Traceback" not in said
    assert not (out / LOCK).exists()
    assert "Nothing was written." in said or "The same command" in said
    assert probagg(monkeypatch, "cluster", rows, "-k", 3, "--out", out, "--no-report") == 0


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_features_are_extracted_keeps_those_so_far(monkeypatch, number, capfd):
    """An exception that says how to resume takes the place of the signal's."""
    from probagg.app.cli import stop
    from probagg.app.cli.terminal import Terminal, guarded
    from probagg.app.run.samples import embed_images

    class Pictures:
        pictures = property(lambda self: signal.raise_signal(number))

    with (
        pytest.raises(SystemExit) as ended,
        on_signals(stop),
        guarded("runs/photos"),
    ):
        embed_images(Pictures(), None, Terminal())
    assert ended.value.code == 75
    assert "Run the same command with --out runs/photos to go on." in capfd.readouterr().err


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_ends_the_review_page_and_the_review_is_kept(
    clustered, monkeypatch, number, capfd
):
    """As Done does: the page is closed and the report is written with what was reviewed."""
    from probagg.app.review import Review
    from probagg.app.run.contents import read_review, write_review
    from probagg.app.run.server import ReviewServer

    write_review(clustered, Review(names={0: "cats"}))
    (clustered / "report.html").unlink(missing_ok=True)
    loop = ReviewServer.serve_forever

    def serve(server, **options):
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        loop(server, **options)

    monkeypatch.setattr(ReviewServer, "serve_forever", serve)
    assert probagg(monkeypatch, "report", clustered, "--serve", "--no-browser") == 0
    assert read_review(clustered).names == {0: "cats"}
    assert (clustered / "report.html").exists()
    assert (clustered / "assignments_reviewed.csv").exists()
    assert "Traceback" not in capfd.readouterr().err


def test_a_run_under_nohup_ignores_a_hangup(rows, tmp_path, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signalled(monkeypatch, "probagg.pac.sweeps.BlockSweeps.sweep", signal.SIGHUP)
        arguments = ("cluster", rows, "-k", 3, "--out", tmp_path / "run", "--no-report")
        assert probagg(monkeypatch, *arguments) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_of_the_users_own_program_stays(rows, tmp_path, monkeypatch):
    """As that of submitit, which saves and queues the job again."""
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        signalled(monkeypatch, "probagg.pac.sweeps.BlockSweeps.sweep", signal.SIGUSR1)
        arguments = ("cluster", rows, "-k", 3, "--out", tmp_path / "run", "--no-report")
        assert probagg(monkeypatch, *arguments) == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert {*heard} == {signal.SIGUSR1}


def test_after_a_command_signals_mean_what_they_meant_before(monkeypatch):
    before = [signal.getsignal(number) for number in NUMBERS]
    assert probagg(monkeypatch, "--version") == 0
    assert [signal.getsignal(number) for number in NUMBERS] == before


def start(*arguments):
    """Start the console script; a test run in the background would pass on ignored signals."""

    def reset():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, "-m", "probagg", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=reset,
    )


def ready(process):
    """Wait until Python has started and probagg handles the signals."""
    status = Path(f"/proc/{process.pid}/status")
    while True:
        caught = int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16)
        if caught >> (signal.SIGUSR1 - 1) & 1:  # the last to be set
            return
        time.sleep(0.002)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_modules_are_imported_is_one_line(rows, tmp_path, number):
    process = start("cluster", rows, "-k", 3, "--out", tmp_path / "run")
    ready(process)
    process.send_signal(number)
    out, said = process.communicate(timeout=30)
    assert (process.returncode, out) == (128 + number, "")
    assert said == f"Error: Stopped by {number.name}. Nothing was written.\n"


@pytest.mark.slow
def test_signals_at_random_moments_leave_no_traceback_and_no_lock(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(100_000, 20)))
    rng, out = random.Random(0), tmp_path / "run"
    for _ in range(20):
        number = rng.choice(NUMBERS)
        process = start("cluster", tmp_path / "rows.npy", "-k", 20, "--out", out, "--overwrite")
        ready(process)
        time.sleep(rng.uniform(0.0, 8.0))
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (0, 128 + number), said
        assert "Traceback" not in said
        assert not (out / LOCK).exists()
    with RunFolder(out, overwrite=True):
        pass
