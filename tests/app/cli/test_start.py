"""What a command imports before its work starts: seconds that a user would wait for an error."""

import os
import subprocess
import sys

import pytest
from PIL import Image

HEAVY = {"torch", "sklearn", "scipy", "pandas", "pyarrow", "PIL", "timm", "jinja2", "onnxruntime"}


def run(arguments, folder):
    """Return the packages that a command imports, and its exit code."""
    command = [sys.executable, "-X", "importtime", "-m", "probagg", *arguments.split()]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}, result.returncode


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 0),
        ("cluster --help", 0),
        ("cluster nosuch -k 3", 3),
        ("cluster .", 2),
        ("cluster . -k 3 --nosuch", 2),
        ("cluster digits --set cluster.nosuch=1", 2),
        ("predict nosuch new", 3),
        ("compare . -k 3 --methods nosuch", 2),
    ],
)
def test_help_and_errors_before_work_load_no_heavy_package(tmp_path, arguments, code):
    packages, ended = run(arguments, tmp_path)
    assert ended == code
    assert "typer" in packages
    assert not HEAVY & packages


def test_a_wrong_backbone_or_folder_is_an_error_before_torch_is_loaded(tmp_path):
    for k in range(3):
        Image.new("RGB", (8, 8), (80 * k, 0, 0)).save(tmp_path / f"{k}.png")
    for wrong in ("--backbone resnett50", "--out /proc/nowhere/run"):
        packages, ended = run(f"cluster . -k 2 {wrong}", tmp_path)
        assert ended in (1, 2)
        assert "torch" not in packages


def test_a_dry_run_downloads_nothing(tmp_path):
    """Weights that are not on this computer are named; the hub is not asked."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    command = [sys.executable, "-m", "probagg", "cluster", ".", "-k", "1", "--dry-run"]
    offline = {"HF_HOME": str(tmp_path / "hub"), "HF_ENDPOINT": "http://127.0.0.1:9"}
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | offline
    )
    assert result.returncode == 0, result.stderr
    assert "(its weights are downloaded first)" in result.stdout


def test_a_wrong_parameter_is_an_error_before_the_backbone_is_opened(tmp_path):
    """Opening it loads torch and may download weights."""
    for k in range(3):
        Image.new("RGB", (8, 8), (80 * k, 0, 0)).save(tmp_path / f"{k}.png")
    packages, ended = run("cluster . -k 2 --m 0.5", tmp_path)
    assert ended == 2
    assert "sklearn" in packages  # which checks it
    assert "torch" not in packages
