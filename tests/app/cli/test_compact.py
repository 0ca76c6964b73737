"""A trained network as a small folder that labels new images without its run."""

import csv
import hashlib
import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from commands import cluster, cluster_by_pac, probagg
from PIL import Image

from probagg import DPAC
from probagg.app.review import Review
from probagg.app.run.contents import write_review
from probagg.app.run.folder import LOCK
from probagg.data.named import load_images
from probagg.processes import hold
from probagg.storage import seal, unseal

QUICK = ("--method", "dpac", "--recipe", "digits/fast", "--device", "cpu")
for _setting in (
    "network.width=8", "pretrain.epochs=5", "cluster.epochs=25", "self_label.epochs=1",
    "pretrain.batch_size=125", "cluster.batch_size=125",
):  # fmt: skip
    QUICK += ("--set", _setting)
ROUNDING = 0.02  # what weights of 8 bits of precision may change of a probability


def photos(folder, rows):
    folder.mkdir()
    for row, image in zip(rows, load_images("digits").read(np.array(rows)), strict=True):
        Image.fromarray(image[..., 0]).save(folder / f"{row:04}.png")
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Photos clustered by a network, new photos, and the export of the network; not to change."""
    home = tmp_path_factory.mktemp("home")
    photos(home / "photos", range(500))
    photos(home / "new", range(1000, 1200))
    result = cluster(home / "photos", "-k", 10, *QUICK, "--out", home / "run")
    assert result.exit_code == 0, result.stderr
    result = probagg("export", home / "run", "--format", "compact", "--out", home / "small")
    assert result.exit_code == 0, result.stderr
    home.joinpath("said").write_text(result.stdout)
    return home


@pytest.fixture
def run(home, tmp_path):
    """A copy of the run that a test may change."""
    return shutil.copytree(home / "run", tmp_path / "run")


@pytest.fixture
def small(home, tmp_path):
    """A copy of the export, far from the run."""
    return shutil.copytree(home / "small", tmp_path / "small")


def predict(model, source):
    result = probagg("predict", model, source, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    return list(csv.DictReader(result.stdout.splitlines()))


def column(table, name):
    return np.array([float(row[name]) for row in table])


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_export_labels_new_photos_nearly_as_its_run_does(home, small):
    """Rounded weights may flip a photo only where two clusters are about as likely."""
    whole, rounded = predict(home / "run", home / "new"), predict(small, home / "new")
    assert list(rounded[0]) == list(whole[0])
    assert [row["path"] for row in rounded] == [row["path"] for row in whole]
    p, q = column(whole, "probability"), column(rounded, "probability")
    assert p.mean() > 0.35  # a network that is unsure of all would agree with any
    np.testing.assert_allclose(q, p, atol=ROUNDING)
    sure = p - column(whole, "second_probability") > 2 * ROUNDING
    assert sure.mean() > 0.6
    labels, again = column(whole, "cluster"), column(rounded, "cluster")
    np.testing.assert_array_equal(again[sure], labels[sure])
    same = again == labels
    distance, near = column(whole, "distance"), column(rounded, "distance")
    np.testing.assert_allclose(near[same], distance[same], atol=0.1 * distance.mean())


def test_an_export_needs_nothing_of_its_run(run, home, tmp_path):
    result = probagg("export", run, "--format", "compact", "--json")
    said = json.loads(result.stdout)
    assert said["folder"] == str(run / "compact")
    before = predict(run / "compact", home / "new")
    shutil.copytree(run / "compact", tmp_path / "elsewhere")
    shutil.rmtree(run)
    assert predict(tmp_path / "elsewhere", home / "new") == before
    files = {path.name: path.stat().st_size for path in (tmp_path / "elsewhere").iterdir()}
    assert (said["files"], said["bytes"]) == (files, sum(files.values()))


def test_the_weights_have_half_the_size(home, small):
    parts = sum(path.stat().st_size for path in small.glob("weights-*"))
    assert parts < 0.6 * (home / "run" / "model.safetensors").stat().st_size
    assert f"probagg predict {home / 'small'} images/" in (home / "said").read_text()


def test_names_merges_and_moves_go_with_the_export(run, home, tmp_path):
    table = predict(run, home / "photos")
    a, b = np.unique([int(row["cluster"]) for row in table])[:2].tolist()
    stays = next(row["path"] for row in table if int(row["cluster"]) not in (a, b))
    write_review(run, Review(names={a: "round"}, merged={b: a}, moved={stays: a}))
    assert probagg("export", run, "--format", "compact").exit_code == 0
    shutil.move(run / "compact", tmp_path / "elsewhere")
    again = {row["path"]: row for row in predict(tmp_path / "elsewhere", home / "photos")}
    assert b not in {int(row["cluster"]) for row in again.values()}
    assert (int(again[stays]["cluster"]), again[stays]["name"]) == (a, "round")


def test_compact_onnx_and_the_run_number_clusters_alike(run, home, tmp_path):
    """Also after a merge into a cluster of a higher number."""
    a, b = np.unique(column(predict(run, home / "photos"), "cluster").astype(int))[:2].tolist()
    write_review(run, Review(names={b: "both"}, merged={a: b}))
    for format in ("compact", "onnx"):
        assert probagg("export", run, "--format", format).exit_code == 0
    session = onnxruntime.InferenceSession(run / "model.onnx")
    pixels = load_images("digits").read(np.arange(1000, 1200))
    P, labels = session.run(None, {"images": pixels})
    small, sure = predict(run / "compact", home / "new"), np.sort(P)[:, -1] > 0.6
    assert sure.sum() > 20
    np.testing.assert_array_equal(labels[sure], column(small, "cluster")[sure])
    assert {small[i]["name"] for i in np.flatnonzero(labels == b) if sure[i]} == {"both"}
    names = json.loads(session.get_modelmeta().custom_metadata_map["probagg.names"])
    assert (names[b], a in labels) == ("both", False)


def test_a_network_saved_without_a_run_labels_photos_too(run, home, tmp_path):
    DPAC.load(run / "model.safetensors").save(tmp_path / "net", compact=True)
    result = probagg("predict", tmp_path / "net", home / "new", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert "distances and outliers are not known" in result.stderr
    table = list(csv.DictReader(result.stdout.splitlines()))
    assert {row["distance"] for row in table} == {""}
    assert {row["flag"] for row in table} <= {"", "borderline"}
    with_run = predict(home / "small", home / "new")
    np.testing.assert_allclose(column(table, "probability"), column(with_run, "probability"))


def test_an_export_in_the_run_is_part_of_it_and_goes_with_it(run, home):
    (run / "compact").mkdir()  # an empty folder is in nobody's way
    write_review(run, Review(names={0: "zero"}))
    assert probagg("export", run, "--format", "compact").exit_code == 0
    (run / "review.json").unlink()
    assert probagg("export", run, "--format", "compact").exit_code == 0
    assert not (run / "compact" / "review.json").exists()
    sealed = json.loads((run / "manifest.json").read_text())["sha256"]
    inside = {f"compact/{path.name}": path for path in (run / "compact").iterdir()}
    assert {name for name in sealed if name.startswith("compact/")} == set(inside)
    for name, path in inside.items():
        assert sealed[name] == hashlib.sha256(path.read_bytes()).hexdigest()
    source = tomllib.loads((run / "config.toml").read_text())["source"]
    short = ("--set", "pretrain.epochs=1", "--set", "cluster.epochs=1")
    again = cluster(source, "-k", 3, *QUICK, *short, "--out", run, "--overwrite")
    assert again.exit_code == 0, again.stderr
    assert not (run / "compact").exists()


def test_other_files_are_never_replaced(run, tmp_path, monkeypatch):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "diary.txt").write_text("dear diary")
    (tmp_path / "file").write_text("a file")
    own = tmp_path / "own"
    assert probagg("export", run, "--format", "compact", "--out", own).exit_code == 0
    (own / "diary.txt").write_text("dear diary")  # somebody's, in an older export
    half = tmp_path / "half"
    half.mkdir()
    shutil.copy(run / "config.toml", half)  # a name of ours alone makes no export
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.json").write_text('{"a": 1}')  # of another program
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = content(tmp_path)
    for out in (notes, own, half, other, run, run.parent, tmp_path / "file", "."):
        result = probagg("export", run, "--format", "compact", "--out", out)
        assert (result.exit_code, "Name " in result.stderr) == (2, True), result.stderr
    assert content(tmp_path) == before


def test_an_export_into_a_run_waits_for_its_turn(run, monkeypatch):
    """Two that change the manifest at once would lose one of the entries."""
    monkeypatch.setattr("probagg.app.run.exports.PATIENCE", 0.1)
    before = content(run)
    with hold(run / LOCK):
        result = probagg("export", run, "--format", "compact")
    assert (result.exit_code, "is writing to" in result.stderr) == (2, True), result.stderr
    assert content(run) == before


@pytest.mark.parametrize("step", ["copy", "put in place"])
def test_an_export_that_fails_leaves_the_older_one(run, monkeypatch, step):
    assert probagg("export", run, "--format", "compact").exit_code == 0
    before, folders = content(run), sorted(run.rglob("*"))

    rename = Path.rename

    def full(path, target):
        if step == "put in place" and path.name != "new":
            return rename(path, target)
        raise OSError("the disk is full")

    owner, name = (shutil, "copyfile") if step == "copy" else (Path, "rename")
    monkeypatch.setattr(owner, name, full)
    result = probagg("export", run, "--format", "compact")
    assert (result.exit_code, "the disk is full" in result.stderr) == (1, True)
    assert (content(run), sorted(run.rglob("*"))) == (before, folders)


def test_only_networks_have_a_compact_export(tmp_path, blobs):
    np.save(tmp_path / "rows.npy", blobs[0])
    assert cluster_by_pac(tmp_path / "rows.npy", "-k", 3, "--out", tmp_path / "run").exit_code == 0
    result = probagg("export", tmp_path / "run", "--format", "compact")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "is of PAC. Use onnx." in result.stderr
    assert not (tmp_path / "run" / "compact").exists()


@pytest.mark.parametrize("command", ["report", "evaluate", "export"])
def test_an_export_is_no_run_to_the_other_commands(home, command):
    result = probagg(command, home / "small")
    assert (result.exit_code, result.stderr.count("\n")) == (3, 1)
    assert "is a compact export" in result.stderr
    assert "Name the run folder" in result.stderr


def shorten(path, by):
    path.write_bytes(path.read_bytes()[:-by])


def widen(path):
    """Change the recipe of a model, with a valid checksum."""
    description = unseal(json.loads(path.read_text()))
    description["recipe"] = description["recipe"].replace("width = 8", "width = 16")
    path.write_text(json.dumps(seal(description)))


PART = "weights-1-of-1.safetensors"
DAMAGE = {
    "no part": (lambda small: (small / PART).unlink(), 2, "0 of 1 weights files. Copy all"),
    "an empty part": (lambda small: (small / PART).write_bytes(b""), 2, f"{PART} is damaged"),
    "half a part": (lambda small: shorten(small / PART, 9000), 2, f"{PART} is damaged"),
    "a byte less": (lambda small: shorten(small / PART, 1), 2, f"{PART} is damaged"),
    "no model.json": (lambda small: (small / "model.json").unlink(), 2, "model.json is missing"),
    "half of model.json": (lambda small: shorten(small / "model.json", 500), 2, "cannot be read"),
    "half of config.toml": (lambda small: shorten(small / "config.toml", 900), 2, "cannot be read"),
    "half a yardstick": (
        lambda small: shorten(small / "yardstick.safetensors", 900), 2, "cannot be read as a"
    ),
    "another width": (
        lambda small: (small / "model.json").write_text(
            (small / "model.json").read_text().replace("width = 8", "width = 16")
        ), 2, "its checksum is wrong"
    ),
    "another network": (lambda small: widen(small / "model.json"), 2, "do not fit its recipe"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_one_clear_line(home, small, what):
    harm, code, words = DAMAGE[what]
    harm(small)
    result = probagg("predict", small, home / "new", "--device", "cpu")
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr
    assert str(small) in result.stderr
    assert (result.stderr.count("\n"), result.stdout) == (1, "")
