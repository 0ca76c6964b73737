"""Locks of runs and of reviews, with real processes."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from probagg import processes
from probagg.app.review import Review
from probagg.app.run.contents import read_review
from probagg.app.run.folder import LOCK, MANIFEST, RunFolder, RunFolderError, add_to_run
from probagg.app.run.session import Session, StaleReview, version_of
from probagg.processes import hold

HOLD = """
import sys, time
from pathlib import Path
from unittest.mock import Mock
from probagg.processes import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of the folder `run`."""
    (tmp_path / "run").mkdir()
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run" / LOCK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_lock_ends_with_its_process_and_not_before(tmp_path, holder):
    with pytest.raises(RunFolderError, match=f"Process {holder.pid} is writing to"):
        RunFolder(tmp_path / "run").__enter__()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / LOCK).read_text() == str(holder.pid), "the file is left"
    with RunFolder(tmp_path / "run"):
        pass
    assert (tmp_path / "run" / MANIFEST).exists()


def test_the_number_of_a_process_that_lives_again_blocks_nobody(tmp_path):
    """Numbers are used again: that of the killed process is now this one's, which holds nothing."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).write_text(str(os.getpid()))
    with RunFolder(tmp_path / "run"):
        pass
    assert not (tmp_path / "run" / LOCK).exists()


def test_many_take_turns_and_none_is_inside_with_another(tmp_path):
    """The file is removed by each holder, so those who wait must notice that it is a new one."""
    inside, most = [], []

    def enter(_):
        with hold(tmp_path / "lock", wait=30.0):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.001)
            inside.pop()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(100)))
    assert most == [1] * 100
    assert os.listdir(tmp_path) == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    """A folder that somebody sent may hold one that leads to the reader's own file."""
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "mine.txt")
    with pytest.raises(RunFolderError, match="cannot be written"):
        RunFolder(tmp_path / "run").__enter__()
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_signal_between_lock_and_work_leaves_no_lock(tmp_path, monkeypatch):
    """Nothing is entered yet then, so nothing would be left either."""
    folder = RunFolder(tmp_path / "run")
    monkeypatch.setattr("probagg.app.run.folder._remove_links", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), folder:
        pass
    assert not folder.path.exists()


def test_adding_to_a_run_waits_for_its_turn(tmp_path):
    """Two processes that change the manifest at once would lose one of the entries."""
    with RunFolder(tmp_path / "run") as folder:
        folder.write("log.txt", "1")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: add_to_run(tmp_path / "run", f"{i}.txt", b"x"), range(40)))
    listed = json.loads((tmp_path / "run" / MANIFEST).read_text())["sha256"]
    assert set(listed) == {"log.txt", *(f"{i}.txt" for i in range(40))}


def test_adding_to_a_run_that_is_being_replaced_is_an_error(tmp_path, monkeypatch, holder):
    monkeypatch.setattr("probagg.app.run.folder.PATIENCE", 0.1)
    with pytest.raises(RunFolderError, match=f"Process {holder.pid} is writing to"):
        add_to_run(tmp_path / "run", "review.json", b"{}")


def test_waiting_for_a_lock_ends(tmp_path, holder):
    began = time.monotonic()
    with pytest.raises(BlockingIOError), hold(tmp_path / "run" / LOCK, wait=0.3):
        pass
    assert 0.3 <= time.monotonic() - began < 5


def test_of_two_servers_that_save_at_once_one_is_told_to_reload(clustered):
    """Each has its own session, as two `probagg report --serve` of one run do."""
    sessions = [Session(clustered) for _ in range(2)]
    for turn in range(30):
        version, start = version_of(read_review(clustered)), threading.Barrier(2)

        def save(number, version=version, start=start, turn=turn):
            review = Review(names={number: f"turn {turn}"}).to_json()
            start.wait()
            try:
                sessions[number].save(review, version)
            except StaleReview:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            saved = list(pool.map(save, range(2)))
        assert saved.count(True) == 1
        assert read_review(clustered).names == {saved.index(True): f"turn {turn}"}


def test_a_lock_file_that_was_removed_while_it_was_opened_is_not_the_lock(tmp_path, monkeypatch):
    """Its last holder removes it: who has opened it by then must take the new one."""
    path, lock, removed = tmp_path / "lock", processes._lock, []

    def late(descriptor):
        if not removed:
            removed.append(path.unlink())
        return lock(descriptor)

    monkeypatch.setattr(processes, "_lock", late)
    with hold(path), pytest.raises(BlockingIOError), hold(path):
        pass


def test_a_lock_that_is_another_name_of_a_file_is_refused(tmp_path):
    """Its content would be replaced by the number of a process."""
    (tmp_path / "run").mkdir()
    (tmp_path / "thesis.tex").write_text("mine")
    os.link(tmp_path / "thesis.tex", tmp_path / "run" / LOCK)
    with pytest.raises(RunFolderError, match="lock is another name of a file"):
        RunFolder(tmp_path / "run").__enter__()
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_full_disk_leaves_no_lock_and_is_said(tmp_path, clustered, monkeypatch):
    def write(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(RunFolderError, match=r"No space left on device\). Free some space there"):
        add_to_run(clustered, "report.html", b"")
    assert not (clustered / LOCK).exists()


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, caplog):
    """Some network file systems have none; two processes would then write the same run."""

    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(processes.fcntl, "flock", flock)
    with hold(tmp_path / "lock"):
        assert "no locks (" in caplog.text
    assert "run one process at a time" in caplog.text
