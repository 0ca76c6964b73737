"""A power cut at any moment leaves the old state or the new one, whole.

A recorder stands between the library and the system: it notes what `fsync` made last, and every
change of a name. What a cut leaves is then replayed for each moment: names as they are, as the last
`fsync` of a folder left them, or these with the last change of a name alone, as a file system may
reorder them; and of each file what was last synced, often nothing.
"""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import probagg
from probagg import open_run
from probagg.app.review import Review
from probagg.app.run.contents import read_review, write_review
from probagg.app.run.folder import MANIFEST, RunFolder, changed_files, is_finished, unfinished
from probagg.dpac.checkpoint import TrainingState, read_checkpoint, save_checkpoint
from probagg.storage import checksum, whole_folder, write_atomically

NAMES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "shutil.rmtree"}


class Recorder:
    """What would be on the disk of `folder` after a cut at each moment, in `cuts`."""

    def __init__(self, folder):
        self.folder, self.cuts = Path(folder), []
        self._synced = {}  # the content of each file that `fsync` has made last, by inode
        self._active = False

    def _names(self):
        """Return the inode of every file, and None for every folder, by path."""
        found = {}
        for here, folders, files in os.walk(self.folder):
            place = Path(here).relative_to(self.folder)
            found |= {place / name: None for name in folders}
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    found[place / name] = (Path(here) / name).stat().st_ino
        return found

    def _note(self, *more):
        self._active = False
        for names in (self._names(), self._kept, *more):
            synced = {inode: self._synced.get(inode, b"") for inode in names.values() if inode}
            cut = {path: synced.get(inode) for path, inode in names.items()}
            if cut not in self.cuts[-3:]:
                self.cuts.append(cut)
        self._active = True

    def _hook(self, event, arguments):
        if self._active and event == "os.rename":
            self._note(self._renamed(*map(Path, arguments[:2])))
        elif self._active and (event in NAMES or (event == "open" and arguments[2] & os.O_CREAT)):
            self._note()

    def _renamed(self, old, new):
        """Return the kept names with one more change."""
        if not (old.is_relative_to(self.folder) and new.is_relative_to(self.folder)):
            return self._kept
        old, new = old.relative_to(self.folder), new.relative_to(self.folder)
        moved = {path: inode for path, inode in self._names().items() if path.is_relative_to(old)}
        kept = {path: i for path, i in self._kept.items() if not path.is_relative_to(old)}
        parents = dict.fromkeys(new.parents[:-1])
        return parents | kept | {new / path.relative_to(old): i for path, i in moved.items()}

    @contextlib.contextmanager
    def recording(self, monkeypatch):
        fsync = os.fsync

        def recorded(descriptor):
            fsync(descriptor)
            status = os.fstat(descriptor)
            self._active = False
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path.is_dir():
                self._kept = self._names()
            elif path.is_relative_to(self.folder):
                self._synced[status.st_ino] = path.read_bytes()
            self._note()

        for path in self.folder.rglob("*"):
            if path.is_file():
                self._synced[path.stat().st_ino] = path.read_bytes()
        self._kept = self._names()
        monkeypatch.setattr(os, "fsync", recorded)
        sys.addaudithook(self._hook)
        self._note()
        try:
            yield self
        finally:
            self._note()
            self._active = False
            monkeypatch.undo()

    def replay(self, place):
        """Yield a folder with what each cut left, the last being the end of the work."""
        for cut in self.cuts:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for path, content in sorted(cut.items()):
                if content is None:
                    (place / path).mkdir(parents=True, exist_ok=True)
                else:
                    (place / path).write_bytes(content)
            yield place


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open files are read from /proc")


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    return Recorder(tmp_path / "disk")


def state(run):
    """Return the seed of a whole run, which the next command finishes if need be; None for none."""
    if (unfinished(run) / MANIFEST).exists():
        with contextlib.suppress(RuntimeError), RunFolder(run, overwrite=True):
            raise RuntimeError
    if not (run / MANIFEST).exists():
        return None
    assert is_finished(run)
    assert changed_files(run) == []
    listed = json.loads((run / MANIFEST).read_bytes())["sha256"]
    assert {name: checksum(run / name) for name in listed} == listed
    return open_run(run).config["seed"]


def test_a_run_and_one_that_replaces_it(recorder, tmp_path, monkeypatch):
    """Not a manifest of files that are empty, and not a mixture."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 3)))
    rows, run = tmp_path / "rows.npy", recorder.folder / "run"
    with recorder.recording(monkeypatch):
        for seed in (1, 2):
            probagg.cluster(rows, 3, out=run, report=False, random_state=seed, overwrite=True)
    seen = [state(place / "run") for place in recorder.replay(tmp_path / "after")]
    assert seen == sorted(seen, key=lambda seed: seed or 0)
    assert {*seen} == {None, 1, 2}
    assert len(seen) > 30


def test_a_saved_review(recorder, clustered, tmp_path, monkeypatch):
    run = shutil.copytree(clustered, recorder.folder / "run")
    seen = []
    with recorder.recording(monkeypatch):
        for name in ("cats", "dogs"):
            write_review(run, Review(names={0: name}))
    for place in recorder.replay(tmp_path / "after"):
        assert changed_files(place / "run") == []
        seen.append(read_review(place / "run").names.get(0, ""))
    assert list(dict.fromkeys(seen)) == ["", "cats", "dogs"]


def test_an_exported_file_and_folder(recorder, tmp_path, monkeypatch):
    with recorder.recording(monkeypatch):
        write_atomically(recorder.folder / "a.onnx", b"old")
        write_atomically(recorder.folder / "a.onnx", [b"n", b"ew"])
        with whole_folder(recorder.folder / "tasks") as folder:
            for name in "ab":
                (folder / name).write_text(name)
    files, folders = [], []
    for place in recorder.replay(tmp_path / "after"):
        file, tasks = place / "a.onnx", place / "tasks"
        files.append(file.read_bytes() if file.exists() else None)
        folders.append({p.name: p.read_text() for p in tasks.iterdir()} if tasks.exists() else None)
    assert list(dict.fromkeys(files)) == [None, b"old", b"new"]
    assert [f for f in folders if f not in (None, {"a": "a", "b": "b"})] == []
    assert folders[-1] is not None


def test_a_checkpoint(recorder, tmp_path, monkeypatch):
    """The newest that is named is whole; none is removed before the next one lasts."""
    place = recorder.folder / "checkpoints"
    with recorder.recording(monkeypatch):
        for step in (1, 2, 3, 3):
            tensors = {"w": torch.full((5,), float(step))}
            save_checkpoint(place, step, TrainingState(tensors, {"step": step}))
    seen = []
    for after in recorder.replay(tmp_path / "after"):
        found = read_checkpoint(after / "checkpoints")
        seen.append(found.description["step"] if found else 0)
    assert seen == sorted(seen)
    assert {*seen} == {0, 1, 2, 3}
