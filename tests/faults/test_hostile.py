"""A run or an argument that would cost somebody a file, or run a stranger's code."""

import json
import sys

import numpy as np
import pytest
from commands import cluster_by_pac, probagg
from PIL import Image

from probagg.run.layout import MANIFEST


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    np.savetxt(path, np.random.default_rng(0).normal(size=(40, 3)), delimiter=",", header="a,b,c")
    return path


@pytest.fixture
def run(rows, tmp_path):
    result = cluster_by_pac(rows, "-k", 2, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["../thesis.tex", "notes.txt", "linked/metrics.jsonl", "absolute"])
def test_overwrite_removes_only_files_that_runs_write(run, rows, tmp_path, name):
    """An edited manifest may list any path; the code's own list decides."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (run / "linked").symlink_to(outside)
    victim = {"absolute": tmp_path / "absolute.txt"}.get(name, run / name)
    victim.write_text("mine")
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["sha256"][str(victim) if name == "absolute" else name] = "0" * 64
    (run / MANIFEST).write_text(json.dumps(manifest))
    result = cluster_by_pac(rows, "-k", 3, "--out", run, "--overwrite")
    assert result.exit_code == 0, result.output
    assert victim.read_text() == "mine"


def test_overwrite_does_not_follow_a_linked_folder(run, rows, tmp_path):
    """Even a name that runs write is left alone where its folder leads out of the run."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "model.json").write_text("mine")
    (run / "compact").symlink_to(outside)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["sha256"]["compact/model.json"] = "0" * 64
    (run / MANIFEST).write_text(json.dumps(manifest))
    assert cluster_by_pac(rows, "-k", 3, "--out", run, "--overwrite").exit_code == 0
    assert (outside / "model.json").read_text() == "mine"


def test_overwrite_still_removes_the_old_run(run, rows):
    """Files of the old run that the new one does not write go, so that no mixture stays."""
    manifest = json.loads((run / MANIFEST).read_text())
    (run / "classes.csv").write_text("row,class\n")
    manifest["sha256"]["classes.csv"] = "0" * 64
    (run / MANIFEST).write_text(json.dumps(manifest))
    assert cluster_by_pac(rows, "-k", 3, "--out", run, "--overwrite").exit_code == 0
    assert not (run / "classes.csv").exists()


def test_predict_does_not_replace_what_it_reads(run, rows, tmp_path):
    before = rows.read_bytes()
    link = tmp_path / "link.csv"
    link.symlink_to(rows)
    for out in (rows, link, tmp_path / "run" / ".." / "rows.csv"):
        result = probagg("predict", run, rows, "--out", out)
        assert result.exit_code == 2
        assert "is the source itself" in result.output
    assert rows.read_bytes() == before


def test_predict_does_not_write_into_the_run_or_to_a_device(run, rows):
    for out, message in (
        (run / "assignments.csv", "would replace a file in"),
        ("/dev/null", "is not a regular file"),
    ):
        result = probagg("predict", run, rows, "--out", out)
        assert result.exit_code == 2
        assert message in result.output


@pytest.mark.parametrize("command", [("predict", "photos"), ("export",)])
def test_code_that_a_run_names_is_not_run(tmp_path, monkeypatch, command):
    """config.toml may come from a stranger: `evil:build` beside it must not be imported."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for i, image in enumerate(np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), np.uint8)):
        Image.fromarray(image).save(photos / f"{i}.png")
    (tmp_path / "evil.py").write_text(
        "import pathlib, torch\n"
        "pathlib.Path('ran').touch()\n"
        "def build():\n"
        "    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())\n"
    )
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("evil", None)
    made = cluster_by_pac(photos, "-k", 2, "--backbone", "evil:build", "--out", tmp_path / "run")
    assert made.exit_code == 0, made.output
    (tmp_path / "ran").unlink()
    sys.modules.pop("evil")
    name, *arguments = command
    result = probagg(name, tmp_path / "run", *arguments)
    assert result.exit_code == 2
    assert "evil:build" in result.output
    assert "--trust-code" in result.output
    assert not (tmp_path / "ran").exists()
    trusted = probagg(name, tmp_path / "run", *arguments, "--trust-code")
    assert trusted.exit_code == 0, trusted.output
