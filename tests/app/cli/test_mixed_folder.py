"""A folder as a phone or a camera leaves it: photos of several formats, and other files."""

import csv
import json

import numpy as np
import pillow_heif
import pytest
from commands import probagg
from PIL import Image

pillow_heif.register_heif_opener()  # to write HEIC files
NETWORK = """
import torch
def build():
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
"""
PAC = ("-k", 2, "--backbone", "small_network:build", "--method", "pac", "--no-report")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Eight JPEG and four HEIC files; a text, a video and what file managers write."""
    (tmp_path / "small_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    folder, rng = tmp_path / "photos", np.random.default_rng(0)
    folder.mkdir()
    for number in range(12):
        pixels = rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.{'jpg' if number < 8 else 'heic'}")
    for name in ("notes.txt", "clip.mp4", ".DS_Store", "Thumbs.db"):
        (folder / name).write_bytes(b"?")
    return folder


def skipped(run):
    with (run / "skipped.csv").open(newline="") as file:
        return {row["path"]: row["reason"] for row in csv.DictReader(file)}


def test_photos_of_all_formats_are_clustered_and_other_files_listed(photos, tmp_path):
    run = tmp_path / "run"
    result = probagg("cluster", photos, *PAC, "--out", run)
    assert result.exit_code == 0, result.output
    assert "2 files are not images that can be read: 1 .mp4, 1 .txt" in result.output
    found = json.loads((run / "result.json").read_text())
    assert (found["n_samples"], found["n_skipped"], found["n_other_files"]) == (12, 0, 2)
    assert skipped(run).keys() == {"notes.txt", "clip.mp4"}


@pytest.mark.usefixtures("without_packages")
def test_photos_that_need_a_package_are_counted_with_the_command(photos, tmp_path):
    run = tmp_path / "run"
    result = probagg("cluster", photos, *PAC, "--out", run)
    assert result.exit_code == 0, result.output
    line = "6 files are not images that can be read: 4 .heic (pip install pillow-heif), 1 "
    assert line in result.output
    found = json.loads((run / "result.json").read_text())
    assert (found["n_samples"], found["n_skipped"], found["n_other_files"]) == (8, 4, 2)
    assert skipped(run)["9.heic"] == ".heic files need a package: pip install pillow-heif"


@pytest.mark.usefixtures("without_packages")
def test_predict_names_many_of_one_kind_in_one_line(photos, tmp_path):
    run = tmp_path / "run"
    assert probagg("cluster", photos, *PAC, "--out", run).exit_code == 0
    for number in range(20, 23):
        (photos / f"{number}.heic").write_bytes(b"?")
    result = probagg("predict", run, photos, "--trust-code")
    assert "10.heic and 6 others are left out: .heic files need a package" in result.stderr
