"""A run or an export that somebody sent does not run code."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import timm
from commands import cluster_by_pac, probagg
from PIL import Image

import probagg as package
from probagg import open_run
from probagg.app.embed.backbone import BackboneError
from probagg.app.embed.opening import reopen_backbone

CODE = """
import pathlib, torch
pathlib.Path({ran!r}).touch()
def build():
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Photos, and a run whose backbone is evil:build, which is in the current folder too."""
    (tmp_path / "photos").mkdir()
    for i, image in enumerate(np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), np.uint8)):
        Image.fromarray(image).save(tmp_path / "photos" / f"{i}.png")
    (tmp_path / "evil.py").write_text(CODE.format(ran=str(tmp_path / "ran")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    made = cluster_by_pac("photos", "-k", 2, "--backbone", "evil:build", "--out", "run")
    assert made.exit_code == 0, made.output
    (tmp_path / "ran").unlink()  # what a person types is theirs, and runs
    monkeypatch.delitem(sys.modules, "evil")
    return tmp_path


def test_code_that_a_run_names_runs_only_on_request(world):
    for name, *source in (("predict", "photos"), ("export",), ("similar", "photos/0.png")):
        result = probagg(name, "run", *source)
        assert result.exit_code == 2
        assert "evil:build" in result.output
        assert "pass --trust-code" in result.output
        assert not (world / "ran").exists()
    assert probagg("predict", "run", "photos", "--trust-code").exit_code == 0
    assert (world / "ran").exists()


def test_code_beside_a_run_is_not_imported(world, monkeypatch):
    """Neither in Python, nor from a folder that one happens to be in."""
    shutil.copy(world / "evil.py", world / "run")
    monkeypatch.chdir(world / "run")
    run = open_run(".")
    with pytest.raises(BackboneError, match="trust_code=True"):
        run.predict(world / "photos")
    assert probagg("report", ".").exit_code == 0
    assert not (world / "ran").exists()
    assert len(open_run(".", trust_code=True).predict(world / "photos")) == 8


@pytest.fixture
def hub_folder(tmp_path):
    """A network in the format of timm's hub."""
    network = timm.create_model("test_resnet", pretrained=False)
    timm.models.save_for_hf(network, str(tmp_path / "network"), safe_serialization=True)
    return tmp_path / "network"


def test_a_network_from_a_folder_that_a_run_names_is_loaded_only_on_request(world, hub_folder):
    """timm before 1.0.26 runs the code in a pytorch_model.bin of such a folder."""
    backbone = ["--backbone", hub_folder]  # what a person types is theirs
    made = cluster_by_pac("photos", "-k", 2, *backbone, "--out", "other")
    assert made.exit_code == 0, made.output
    result = probagg("predict", "other", "photos")
    assert result.exit_code == 2
    assert f"names {hub_folder} as its backbone, a folder or a page of a hub" in result.output
    assert "pass --trust-code" in result.output
    assert probagg("predict", "other", "photos", "--trust-code").exit_code == 0


@pytest.mark.parametrize(
    "name",
    [
        "hf-hub:somebody/network",
        "hf_hub:somebody/network",
        "HF-HUB:somebody/network",
        "local-dir:network",
        "local-dir:/network",
        "network",
        "./network",
        "~/network",
        "..\\network",
        "https://somewhere/network",
        "somebody/network",
    ],
)
def test_every_name_that_points_to_a_place_needs_trust(hub_folder, monkeypatch, name):
    monkeypatch.chdir(hub_folder.parent)
    with pytest.raises(BackboneError, match="trust_code=True"):
        reopen_backbone({"backbone": name}, "cpu")


@pytest.mark.parametrize("name", ["torch.py", "typer.py", "numpy/__init__.py", "json.py"])
def test_a_module_in_the_current_folder_is_not_imported(tmp_path, name):
    """`python -m` looks there first, and it may be a run that somebody sent."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("print('evil')")
    command = [sys.executable, "-m", "probagg", "evaluate", "."]
    environment = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(package.__file__))}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "evil" not in done.stdout + done.stderr
    assert "holds no run" in done.stderr
