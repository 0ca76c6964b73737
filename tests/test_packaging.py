"""The wheel is complete, and what it installs works without PyTorch."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, **options):
    """The output of a command, which must succeed."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked(folder="."):
    """The files of the repository, those not yet added to it too."""
    listed = run("git", "ls-files", "-co", "--exclude-standard", folder, cwd=ROOT)
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that `python -m build` makes of a clean copy, from its own sdist."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the list of files comes from git, and this is not a clone")
    source = tmp_path_factory.mktemp("clone")
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", source)
    assert len(list(source.glob("dist/*.tar.gz"))) == 1
    (path,) = source.glob("dist/*.whl")
    return path


def test_the_wheel_has_every_file_of_the_package(wheel):
    """Templates, scripts and recipes are data: setuptools leaves out what no pattern names."""
    missing = {name.removeprefix("src/") for name in tracked("src")} - set(
        zipfile.ZipFile(wheel).namelist()
    )
    assert not missing


def test_the_wheel_works_in_a_fresh_environment_without_torch(wheel, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    binaries = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def installed(program, *arguments):
        return run(binaries / program, *arguments, cwd=tmp_path, env=variables)

    def pip_install(*arguments):
        return installed("python", "-m", "pip", "install", "--no-compile", *arguments)

    pip_install("--constraint", ROOT / "constraints.txt", wheel)
    assert "cluster" in installed("probagg", "--help")
    code = (
        "import importlib.util, numpy as np; from probagg import PAC; "
        "assert importlib.util.find_spec('torch') is None; "
        "X = np.repeat(np.eye(3), 20, axis=0) + 0.1 * np.random.default_rng(0).random((60, 3)); "
        "print(sorted(np.bincount(PAC(3, random_state=0).fit_predict(X)).tolist()))"
    )
    assert installed("python", "-c", code) == "[20, 20, 20]\n"

    # The command in messages about a missing extra works wherever probagg is installed.
    assert "jinja2" in pip_install("--dry-run", "probagg[report]").lower()
