import hashlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from probagg.app.run.folder import LOCK, MANIFEST, RunFolder, RunFolderError, add_to_run, unfinished
from probagg.environment import environment
from probagg.storage import write_atomically


def test_the_manifest_seals_every_file(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        run.write("log.txt", "hello")
        assert not (run.path / MANIFEST).exists()
    hashes = json.loads((tmp_path / "run" / MANIFEST).read_text())["sha256"]
    assert hashes == {"log.txt": hashlib.sha256(b"hello").hexdigest()}
    assert sorted(os.listdir(tmp_path / "run")) == ["log.txt", MANIFEST]


def test_a_failed_run_has_no_manifest_and_may_start_again(tmp_path):
    with pytest.raises(TypeError), RunFolder(tmp_path / "run") as run:
        run.write("log.txt", 3.5)
    assert not (tmp_path / "run" / MANIFEST).exists()
    with RunFolder(tmp_path / "run"):
        pass
    assert (tmp_path / "run" / MANIFEST).exists()


def test_a_finished_run_is_replaced_only_on_request(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        run.write("log.txt", "1")
    with pytest.raises(RunFolderError, match=r"holds a finished run.*--overwrite"):
        RunFolder(tmp_path / "run").__enter__()
    with RunFolder(tmp_path / "run", overwrite=True) as run:
        run.write("log.txt", "2")
    assert (tmp_path / "run" / "log.txt").read_text() == "2"


def test_an_old_run_goes_only_when_the_new_one_writes(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        run.write("log.txt", "1")
    with pytest.raises(TypeError), RunFolder(tmp_path / "run", overwrite=True):
        raise TypeError
    assert (tmp_path / "run" / MANIFEST).exists()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with RunFolder(tmp_path / "run", overwrite=True) as run:
        run.write("result.json", "2")
    assert sorted(os.listdir(run.path)) == [MANIFEST, "notes.txt", "result.json"]


def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path):
    with pytest.raises(TypeError), RunFolder(tmp_path / "run"):
        raise TypeError
    assert not (tmp_path / "run").exists()


def test_files_of_an_earlier_attempt_are_not_part_of_a_run(tmp_path):
    """A kill may have left tables that the run that is made now does not write."""
    unfinished(tmp_path / "run").mkdir(parents=True)
    (unfinished(tmp_path / "run") / "overlaps.csv").write_text("of another run")
    with RunFolder(tmp_path / "run") as run:
        run.write("log.txt", "1")
    assert sorted(os.listdir(tmp_path / "run")) == ["log.txt", MANIFEST]


def test_an_impossible_folder_is_one_error():
    with pytest.raises(RunFolderError, match="cannot be written"):
        RunFolder("/dev/null/run").__enter__()


def test_a_run_that_cannot_be_locked_is_one_error(tmp_path):
    """As in a read-only folder, whose modes would not stop root: the lock cannot be made."""
    (tmp_path / LOCK).mkdir()
    with pytest.raises(RunFolderError, match=r"cannot be written \(Is a directory\). Make"):
        add_to_run(tmp_path, "report.html", b"")


def test_other_files_are_never_touched(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match="holds other files"):
        RunFolder(tmp_path, overwrite=True).__enter__()
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder(tmp_path / "thesis.tex").__enter__()


def test_two_processes_cannot_share_a_folder(tmp_path):
    second = RunFolder(tmp_path / "run")
    with (
        RunFolder(tmp_path / "run"),
        pytest.raises(RunFolderError, match=f"Process {os.getpid()} is writing"),
    ):
        second.__enter__()


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    unfinished(tmp_path / "run").mkdir(parents=True)
    (tmp_path / "run" / LOCK).write_text("999999999")
    with RunFolder(tmp_path / "run"):
        pass
    assert (tmp_path / "run" / MANIFEST).exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(TypeError):
        write_atomically(path, 3.5)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_the_environment_names_machine_and_versions():
    found = environment()
    assert found["packages"]["probagg"]
    assert found["packages"]["numpy"]
    assert found["cpus"] >= 1


def test_the_command_of_python_m_is_the_package(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/lib/probagg/__main__.py", "cluster", "digits"])
    assert environment()["command"] == ["probagg", "cluster", "digits"]
    monkeypatch.setattr(sys, "argv", ["/home/me/mine.py"])
    assert environment()["command"] == ["mine.py"]


def test_overwriting_twice_keeps_what_a_person_put_there(tmp_path):
    """Only what a run wrote is in its manifest, and only that is taken away."""
    for text in ("one", "two", "three"):
        with RunFolder(tmp_path / "run", overwrite=True) as folder:
            folder.write("result.json", text)
            (folder.work / "model.safetensors").write_text(text)
            folder.keep("model.safetensors", "tensorboard/*")
        (tmp_path / "run" / "notes.txt").write_text("mine")
        (tmp_path / "run" / "mine").mkdir(exist_ok=True)
        (tmp_path / "run" / "mine" / "thesis.md").write_text("mine too")
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "run" / "mine" / "thesis.md").exists()
    sealed = json.loads((tmp_path / "run" / "manifest.json").read_text())["sha256"]
    assert set(sealed) == {"result.json", "model.safetensors"}


def test_a_review_outlives_its_run(tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        folder.write("result.json", "{}")
    add_to_run(tmp_path / "run", "review.json", b"names")
    sealed = json.loads((tmp_path / "run" / "manifest.json").read_text())["sha256"]
    assert sealed["review.json"] == hashlib.sha256(b"names").hexdigest()
    with RunFolder(tmp_path / "run", overwrite=True) as folder:
        folder.write("result.json", "{}")
    assert not (tmp_path / "run" / "review.json").exists()
    assert (tmp_path / "run" / "review.old.json").read_bytes() == b"names"


def test_a_name_that_is_no_text_is_written_as_its_bytes(tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        folder.write("assignments.csv", os.fsdecode(b"bad\xff.png"))
    data = (tmp_path / "run" / "assignments.csv").read_bytes()
    assert data == b"bad\xff.png"
    assert data.decode("utf-8", "surrogateescape") == os.fsdecode(data)


def test_threads_that_write_one_file_leave_one_of_the_contents(tmp_path):
    contents = [bytes([n]) * 300_000 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            list(pool.map(lambda data: write_atomically(tmp_path / "a", [data] * 3), contents))
            assert (tmp_path / "a").read_bytes() in [3 * data for data in contents]
    assert os.listdir(tmp_path) == ["a"]
