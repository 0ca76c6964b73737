"""One flipped bit, a cut end or a lying header in a file is noticed where it is opened."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import reseal
from faults.fuzz.targets import CSV, network, run_files
from safetensors import safe_open
from safetensors.numpy import save_file

from probagg import DPAC, PAC, Recipe, cluster, open_run
from probagg.app.review import Review
from probagg.app.run.contents import read_contents, write_review
from probagg.app.run.folder import RunFolder, RunFolderError
from probagg.arrays import check_mapped
from probagg.data.opening import open_images, open_source
from probagg.dpac.checkpoint import (
    TrainingState,
    read_checkpoint,
    save_checkpoint,
)
from probagg.dpac.engine import trim_metrics
from probagg.dpac.model import FORMAT
from probagg.dpac.recipe import RecipeError
from probagg.errors import InputError, NoData, ProbaggError
from probagg.storage import read_bytes, read_safetensors, write_safetensors


def flip(path, place):
    """Flip one bit of a file; a place below zero is counted from the end."""
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(bytes(data))


@pytest.fixture
def run(tmp_path):
    """A finished run of a small table, and the table beside it."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name, data in run_files().items():
        (folder / name).write_bytes(data)
    (tmp_path / "rows.csv").write_text(CSV)
    return folder


@pytest.mark.parametrize("name", ["model.safetensors", "yardstick.safetensors", "preparation.json"])
def test_a_flipped_bit_in_a_file_that_predicts_is_refused(run, name):
    """Without the manifest's checksum this gave another table and exit code 0."""
    flip(run / name, -3)
    with pytest.warns(UserWarning, match=rf"{name} was changed after the run had finished"):
        opened = open_run(run)
    with pytest.raises(RunFolderError, match=rf"{name} is damaged: it is not the file"):
        opened.predict(run.parent / "rows.csv")


def use_all(run, opened):
    """Ask a run for everything it knows."""
    opened.predict(run.parent / "rows.csv")
    return opened.assignments, opened.result, opened.evaluate(), read_contents(run)


def test_every_file_that_differs_is_named_when_a_run_is_opened(run):
    """And where it matters to the question, it is an error: no answer is silently another."""
    write_review(run, Review(names={0: "cats"}))
    listed = json.loads((run / "manifest.json").read_text())["sha256"]
    for name in listed:
        before = (run / name).read_bytes()
        if name in ("config.toml", "review.json"):
            (run / name).write_bytes(before + b"\n")
        else:
            flip(run / name, len(before) // 2)
        with pytest.warns(UserWarning, match=rf"{re.escape(name)} was changed after the run"):
            opened = open_run(run)
        if name in ("assignments.csv", "classes.csv", "result.json"):
            with pytest.raises(RunFolderError, match=rf"{name} is damaged"):
                opened.evaluate()
        if name not in ("config.toml", "review.json", "log.txt", "metrics.jsonl", "report.html"):
            with pytest.raises(RunFolderError, match=f"{name} is damaged"):
                use_all(run, opened)
        (run / name).write_bytes(before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use_all(run, open_run(run))


def test_a_run_notices_that_another_took_its_place(run):
    """Its answers would mix two runs."""
    opened, rows = open_run(run), run.parent / "rows.csv"
    opened.predict(rows)
    cluster(rows, 2, out=run, overwrite=True, report=False, labels=[0] * 12)
    for ask in (lambda: opened.assignments, lambda: opened.predict(rows), opened.evaluate):
        with pytest.raises(RunFolderError, match="was replaced after it had been opened"):
            ask()
    assert len(open_run(run).predict(rows)) == 12


@pytest.mark.parametrize("name", ["assignments.csv", "overlaps.csv", "result.json", "review.json"])
@pytest.mark.parametrize("what", ["pipe", "/dev/zero", "another file"])
def test_a_file_of_a_run_that_is_no_file_is_refused(run, name, what):
    """It may hang, never end, or lead to what a person keeps elsewhere."""
    (run / name).unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to(what if what == "/dev/zero" else run.parent / "rows.csv")
    with pytest.raises(ProbaggError, match=rf"{name} (is damaged|cannot be read)|has no {name}"):
        read_contents(run)


@pytest.mark.parametrize("what", ["pipe", "/dev/zero"])
def test_a_manifest_that_is_no_file_is_refused(run, what):
    (run / "manifest.json").unlink()
    if what == "pipe":
        os.mkfifo(run / "manifest.json")
    else:
        (run / "manifest.json").symlink_to(what)
    with pytest.raises(ProbaggError, match=r"manifest\.json cannot be read|is not finished"):
        open_run(run)
    with pytest.raises(RunFolderError, match="holds other files and no run"):
        RunFolder(run, overwrite=True).check()


def test_a_config_that_was_changed_is_said(run):
    """It is text that a person may edit, so it is used, with a warning."""
    config = run / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    with pytest.warns(UserWarning, match=r"config\.toml was changed after the run had finished"):
        open_run(run)


@pytest.mark.parametrize("place", [-3, 40, 400])
def test_a_lone_model_knows_its_own_checksum(tmp_path, blobs, place):
    """A model that was copied out of its run has no manifest."""
    path = tmp_path / "pac.safetensors"
    PAC(3, random_state=0).fit(blobs[0]).save(path)
    flip(path, place)
    with pytest.raises(InputError, match=r"pac\.safetensors"):
        PAC.load(path)


def test_a_model_whose_checksum_was_removed_is_refused(tmp_path, blobs):
    """It could be any other file."""
    path = tmp_path / "pac.safetensors"
    PAC(3, random_state=0).fit(blobs[0]).save(path)
    with safe_open(path, "np") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del metadata["checksum"]
    save_file(tensors, path, metadata)
    with pytest.raises(InputError, match=r"pac\.safetensors cannot be read .*it has no checksum"):
        PAC.load(path)


def test_the_description_of_a_checkpoint_is_sealed(tmp_path):
    """A wrong epoch or seed in it would resume a run that nobody had."""
    for step in (1, 2):
        save_checkpoint(tmp_path, step, TrainingState({}, {"position": {"epoch": step}}))
    newest = tmp_path / "step-2.safetensors"
    content = newest.read_bytes()
    newest.write_bytes(content.replace(b'epoch\\": 2', b'epoch\\": 3'))
    assert newest.read_bytes() != content
    assert read_checkpoint(tmp_path).description == {"position": {"epoch": 1}}


@pytest.mark.parametrize("head", [b"[]", b"{}", b"[1]", b"null", b'{"w": 3}', b"[" * 9000])
def test_a_newest_checkpoint_that_says_nothing_is_not_used(tmp_path, head):
    for step in (1, 2):
        save_checkpoint(tmp_path, step, TrainingState({}, {"step": step}))
    (tmp_path / "step-2.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    assert read_checkpoint(tmp_path).description == {"step": 1}


def test_a_damaged_line_of_metrics_does_not_stop_a_resume(tmp_path):
    good = '{"stage": "pretrain", "epoch": 1, "loss": 2.0}\n'
    bad = (
        '{"epoch": 1}\n[1}\n{"stage": "pretrain", "epoch": "x"}\n{"stage": {}}\n'
        + "[" * 9000
        + "}\n"
    )
    (tmp_path / "metrics.jsonl").write_bytes((good + bad + good).encode() + b"\xff}\n")
    trim_metrics(tmp_path / "metrics.jsonl", [], "pretrain", 3)
    assert (tmp_path / "metrics.jsonl").read_text() == good + good


BROKEN = {
    "empty": b"",
    "nested": b"[" * 100_000,
    "cut": None,
    "another type": b'["a"]',
    "binary": bytes(range(256)),
}
READ = (
    "config.toml", "env.json", "result.json", "overlaps.csv", "review.json",
    "preparation.json", "profiles.csv", "cells.csv", "assignments.csv", "skipped.csv",
    "k_selection.csv", "classes.csv", "probabilities.npz",
)  # fmt: skip


def message_of(function, *arguments):
    """Return what an error of probagg says, or an empty string."""
    try:
        function(*arguments)
    except ProbaggError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("name", READ)
def test_a_broken_file_of_a_run_is_named_or_left_out(run, name, how):
    """A page is made without what is optional; anything else is one error that names the file."""
    content = BROKEN[how]
    if content is None:
        content = (run / name).read_bytes()[:-7] if (run / name).exists() else b"\0"
    (run / name).write_bytes(content)
    said = message_of(read_contents, run)
    assert name in said or not said
    assert len(said) < 600


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("result.json", {"n_clusters": 2, "seconds": "long"}, "seconds is 'long'"),
        ("result.json", {"n_clusters": 2, "seconds": float("inf")}, "seconds is inf"),
        ("result.json", {"n_clusters": 10**12}, "does not give the number of clusters"),
        ("result.json", {"n_clusters": 90_000}, "states 90000 clusters of 12 samples"),
        ("env.json", {"time": 3, "packages": []}, "time is 3"),
        ("env.json", {"packages": []}, r"packages is \[\]"),
    ],
)
def test_values_that_the_page_cannot_show_are_named(run, name, content, what):
    (run / name).write_text(json.dumps(content))
    reseal(run)
    with pytest.raises(RunFolderError, match=rf"{name}.*{what}"):
        read_contents(run)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 100_000, b'{"sha256": [1]}', b"\xff"])
def test_a_broken_manifest_is_named(run, content):
    (run / "manifest.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"manifest\.json cannot be read .* Restore it"):
        open_run(run).model()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("network.width=1000000",), "do not fit its recipe"),
        (("network.classifier=[1000000, 1000000]",), "do not fit its recipe"),
        (("network.backbone=mlp", "network.layers=[10000000]"), "do not fit its recipe"),
    ],
)
def test_absurd_sizes_in_a_model_take_no_memory(tmp_path, change, message):
    """The sizes are compared before the network is built; the largest here has 4 TB."""
    network(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors, description = read_safetensors(path, FORMAT)
    recipe = Recipe.from_toml(description["recipe"]).override(change)
    write_safetensors(path, FORMAT, tensors, description | {"recipe": recipe.to_toml()})
    with pytest.raises(InputError, match=message):
        DPAC.load(path, device="cpu")


def test_views_of_absurd_size_are_refused():
    with pytest.raises(InputError, match=r"size is 20000, but 1 to 1024"):
        Recipe.of("digits/fast").override(["views.size=20000"])


def test_a_recipe_that_is_its_own_base_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text('base = "b.toml"')
    (tmp_path / "b.toml").write_text('base = "./a.toml"')
    (tmp_path / "c.toml").write_text('base = "c.toml"')
    for name in ("a.toml", "c.toml"):
        with pytest.raises(RecipeError, match="is its own base"):
            Recipe.of(tmp_path / name)


def write_npz(path, shape, size, compression=zipfile.ZIP_DEFLATED):
    """Write an archive whose header states a shape, with `size` bytes of zeros after it."""
    with zipfile.ZipFile(path, "w", compression) as archive, archive.open("X.npy", "w") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(size // 2**20):
            file.write(bytes(2**20))
        file.write(bytes(size % 2**20))


def test_an_archive_whose_header_lies_is_refused(tmp_path):
    """NumPy would take 8 TB before it noticed."""
    write_npz(tmp_path / "a.npz", (10**6, 10**6), 800)
    with pytest.raises(NoData, match=r"a\.npz cannot be read as a NumPy file .*but there are"):
        open_source(tmp_path / "a.npz")


def test_an_archive_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch):
    """Eight megabytes can unpack to eight gigabytes."""
    monkeypatch.setattr("probagg.environment.free_memory", lambda: 2e6)
    write_npz(tmp_path / "a.npz", (500, 1000), 4_000_000)
    with pytest.raises(InputError, match=r"a\.npz, unpacked, needs about 0\.006 GB of memory"):
        open_source(tmp_path / "a.npz")


def test_a_parquet_file_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch):
    """A million equal rows take ten kilobytes."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"a": np.zeros(10**6), "b": 1}).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("probagg.environment.free_memory", lambda: 2e6)
    with pytest.raises(InputError, match=r"a\.parquet, unpacked, needs about"):
        open_source(tmp_path / "a.parquet")


def test_memory_is_estimated_before_a_fit(monkeypatch):
    monkeypatch.setattr("probagg.environment.free_memory", lambda: 1e6)
    with pytest.raises(InputError, match=r"PAC of 1,000 rows and 500 clusters needs about 0\.008"):
        PAC(500).fit(np.random.default_rng(0).normal(size=(1000, 2)))


LIMITED = """
import numpy, resource
from probagg.environment import free_memory
from probagg import PAC
used = next(1024 * int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 2**20,) * 2)
assert free_memory() < 310 * 2**20, free_memory()
X = numpy.random.default_rng(0).normal(size=(200_000, 2))
try:
    PAC(500).fit(X)
except ValueError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of processes are read from /proc")
def test_a_limit_of_the_process_is_known(tmp_path):
    """Beyond `ulimit -v` OpenBLAS ends the process without a word."""
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("InputError PAC of 200,000 rows and 500 clusters needs")


MAPPED = """
import os, sys, numpy
from probagg.data.images import ArrayImages
from probagg.pac.files import open_file
rows, images = (numpy.load(path, mmap_mode="r") for path in sys.argv[1:])
rows, images = open_file(rows), ArrayImages(images)
for path in sys.argv[1:]:
    os.truncate(path, 4096)
for read in (lambda: rows.read(rows.n_chunks - 1), lambda: images.read(numpy.array([9]))):
    try:
        read()
    except ValueError as error:
        print("cut short" in str(error))
"""


def test_a_matrix_that_is_cut_while_it_is_mapped_is_an_error(tmp_path):
    """Reading the missing pages would end the process (SIGBUS)."""
    np.save(tmp_path / "a.npy", np.ones((100_000, 4)))
    np.save(tmp_path / "b.npy", np.ones((10, 96, 96), np.uint8))
    command = [sys.executable, "-c", MAPPED, tmp_path / "a.npy", tmp_path / "b.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n"), done.stderr


def test_a_part_of_a_map_is_checked_to_its_own_end(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((1000, 4)))
    rows = np.load(tmp_path / "a.npy", mmap_mode="r")[900:]
    os.truncate(tmp_path / "a.npy", 16_000)
    with pytest.raises(InputError, match="cut short"):
        check_mapped(rows)


@pytest.mark.parametrize("name", ["rows.npy", "rows.npz", "rows.csv", "rows.parquet", "a.toml"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    read, kind = (Recipe.of, InputError) if name.endswith(".toml") else (open_source, NoData)
    with pytest.raises(kind, match="regular file"):
        read(tmp_path / name)


class Touching:
    """What makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["rows.npy", "rows.npz", "run/probabilities.npz"])
def test_no_array_is_unpickled(run, tmp_path, name):
    """Neither of a run nor of what is clustered."""
    X = np.array([[Touching(tmp_path / "ran")]], object)
    if name == "rows.npy":
        np.save(tmp_path / name, X)
    else:
        np.savez(tmp_path / name, X=X)
    read = partial(read_contents, run) if "run" in name else partial(open_source, tmp_path / name)
    with pytest.raises(ProbaggError, match=r"(rows|probabilities)\.np[yz] cannot be read"):
        read()
    assert not (tmp_path / "ran").exists()


def test_a_file_is_read_to_the_length_it_states(tmp_path):
    """Files below /proc state no length, and some of them never end."""
    if os.path.exists("/proc/self/status"):
        assert read_bytes("/proc/self/status") == b""
    (tmp_path / "rows.csv").write_text("1,2\n3,4\n")
    assert read_bytes(tmp_path / "rows.csv") == b"1,2\n3,4\n"


def test_a_table_larger_than_memory_is_refused_before_it_is_read(tmp_path):
    """A sparse file of 1 TB; nothing of it is read."""
    with (tmp_path / "rows.csv").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(InputError, match=r"rows\.csv, as a table, needs about .* GB of memory"):
        open_source(tmp_path / "rows.csv")


def test_a_run_without_its_pictures_still_opens(run):
    """The guards refuse damage, not what is missing on purpose."""
    for name in ("report.html", "overlaps.csv", "env.json"):
        (run / name).unlink(missing_ok=True)
    assert len(read_contents(run).assigned) == 12
    assert len(open_run(run).predict(run.parent / "rows.csv")) == 12
    shutil.rmtree(run)


def test_images_in_an_array_file_are_read(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 8, 8), np.uint8))
    assert open_images(tmp_path / "a.npy").read(np.arange(3)).shape == (3, 8, 8, 1)
