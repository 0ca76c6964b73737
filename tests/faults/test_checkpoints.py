"""What training cost hours to find is not lost between its end and the seal of the run."""

import shutil
import signal
import subprocess
import sys
import textwrap
from importlib.metadata import version

import numpy as np
import pytest
from commands import cluster, cluster_by_pac, probagg
from sklearn.datasets import load_digits

from probagg.app.run.folder import unfinished
from probagg.dpac.checkpoint import FORMAT, TrainingState, read_checkpoint, save_checkpoint
from probagg.storage import read_safetensors, write_safetensors

QUICK = ("-k", 3, "--method", "dpac", "--recipe", "digits/fast", "--device", "cpu")
for _setting in (
    "network.width=8", "pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=1",
    "pretrain.batch_size=50", "cluster.batch_size=50", "self_label.batch_size=50",
):  # fmt: skip
    QUICK += ("--set", _setting)
KILLED_BEFORE_THE_SEAL = textwrap.dedent("""
    import os, signal, sys

    def hook(event, arguments):
        if event == "open" and "assignments.csv" in str(arguments[0]):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    from probagg.app.cli import main
    main()
""")


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A finished run, and in its folder the checkpoints of one that is to replace it."""
    home = tmp_path_factory.mktemp("home")
    images = (load_digits().images[:100] * 15.9).astype(np.uint8)
    np.savez(home / "images.npz", X=images)
    np.save(home / "rows.npy", images.reshape(100, -1).astype(float))
    assert cluster_by_pac(home / "rows.npy", "-k", 3, "--out", home / "run").exit_code == 0
    before = contents(home / "run")
    words = ["cluster", home / "images.npz", *QUICK, "--no-report", "--overwrite"]
    command = [sys.executable, "-c", KILLED_BEFORE_THE_SEAL, *words, "--out", home / "run"]
    killed = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    now = contents(home / "run")
    assert {name: now[name] for name in before} == before
    assert len(list(unfinished(home / "run").glob("checkpoints/step-*"))) == 2
    return home


@pytest.fixture
def run(home, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(home / "run", tmp_path / "run")


def again(home, run, *options):
    return cluster(home / "images.npz", *QUICK, "--overwrite", "--out", run, *options)


def damage(run, *which):
    """Flip a bit of checkpoints, the newest first."""
    found = unfinished(run).glob("checkpoints/step-*")
    newest = sorted(found, key=lambda path: -int(path.stem.removeprefix("step-")))
    for path in (newest[i] for i in which):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    return newest


def test_a_kill_after_training_costs_no_training(home, run):
    """The old run is whole meanwhile, and the same command replaces it."""
    assert probagg("predict", run, home / "rows.npy").exit_code == 0
    mine = unfinished(run) / "checkpoints" / "notes.txt"
    mine.write_text("mine")
    result = again(home, run)
    assert result.exit_code == 0, result.output
    assert "epoch" not in result.stderr, "nothing is trained again"
    assert probagg("predict", run, home / "images.npz", "--device", "cpu").exit_code == 0
    assert [path for path in unfinished(run).rglob("*") if path.is_file()] == [mine]


def test_the_folder_is_not_taken_over_without_overwrite(home, run):
    before = contents(run)
    result = cluster(home / "images.npz", *QUICK, "--out", run)
    assert (result.exit_code, "holds a finished run" in result.output) == (2, True)
    assert contents(run) == before


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(home, run, caplog):
    newest = damage(run, 0)
    result = again(home, run)
    assert result.exit_code == 0, result.output
    assert f"{newest[0].name} cannot be read as a safetensors file (its checksum" in caplog.text
    assert "self_label epoch 1/1" in result.stderr
    assert "pretrain" not in result.stderr


def test_a_run_resumed_by_another_version_names_what_differs(home, run, caplog):
    """The rest of the run may differ from what the old version would have made."""
    for path in unfinished(run).glob("checkpoints/step-*"):
        arrays, description = read_safetensors(path, FORMAT)
        description["versions"]["torch"] = "1.0"
        write_safetensors(path, FORMAT, arrays, description)
    result = again(home, run)
    assert result.exit_code == 0, result.output
    assert f"resumed by other versions: torch was '1.0' and is '{version('torch')}'" in caplog.text
    assert "epoch" not in result.stderr, "nothing is trained again"


def test_a_linked_checkpoint_is_neither_read_nor_removed(tmp_path):
    """A folder that somebody sent may have one that leads to another run's."""
    mine = save_checkpoint(tmp_path / "mine", 1, TrainingState({}, {}))
    (tmp_path / "theirs").mkdir()
    link = tmp_path / "theirs" / mine.name
    link.symlink_to(mine)
    assert read_checkpoint(tmp_path / "theirs") is None
    for step in (2, 3, 4):
        save_checkpoint(tmp_path / "theirs", step, TrainingState({}, {"step": step}))
    assert link.is_symlink()
    assert read_checkpoint(tmp_path / "mine") is not None
    assert read_checkpoint(tmp_path / "theirs").description == {"step": 4}


def test_nothing_starts_over_without_a_word(home, run):
    """Where every checkpoint is damaged, a person decides: restore one, or start over."""
    damage(run, 0, 1)
    before = contents(run)
    result = again(home, run)
    assert result.exit_code == 2
    assert "No checkpoint can be used" in result.output
    assert "--resume never" in result.output
    after = contents(run)
    assert {name: after[name] for name in before if "checkpoints" in name.parts} == {
        name: data for name, data in before.items() if "checkpoints" in name.parts
    }
    assert probagg("predict", run, home / "rows.npy").exit_code == 0
    result = again(home, run, "--resume", "never")
    assert result.exit_code == 0, result.output
    assert "pretrain   epoch 1/1" in result.stderr
    assert not unfinished(run).exists()
