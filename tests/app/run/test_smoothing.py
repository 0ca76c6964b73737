"""Runs on photos and rows: the table, `predict` and exported models smooth in the same way."""

import json

import numpy as np
import pytest
from commands import cluster as cluster_command
from commands import probagg as command
from exported import run_onnx
from PIL import Image
from sklearn.datasets import make_moons

import probagg
from probagg import PAC, GraphPAC, clustering_accuracy
from probagg.app.run.folder import RunFolderError
from probagg.errors import InputError
from probagg.neighbours import smoothing

K = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty smooth pictures of three weak tints: as few per cluster as are smoothed."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(60):
        coarse = rng.integers(0, 200, (5, 5, 3)) + 40 * np.eye(K, dtype=int)[number % K]
        picture = Image.fromarray(coarse.astype(np.uint8))
        picture.resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{number:02d}.png")
    return folder


def run_of(source, out, **options):
    shared = {"backbone": "efficientnet-lite0", "report": False}
    return probagg.cluster(source, K, out=out, **shared | options)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """Return a run that keeps 40 of its photos."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smoothing, "SAMPLE", 40)
        return run_of(folder, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def plain(folder, tmp_path_factory):
    return run_of(folder, tmp_path_factory.mktemp("runs") / "plain", smooth=False)


def test_a_run_says_that_it_is_smoothed(run):
    assert run.config["smooth"] is run.result["smooth"] is True
    assert isinstance(probagg.open_run(run.path).model(), GraphPAC)
    assert "smooth = true" in (run.path / "config.toml").read_text()
    assert "by PAC, smoothed\n" in (run.path / "log.txt").read_text()
    assert "Probabilities are averaged over similar images." in run.report().read_text()


def test_predict_on_a_fitted_photo_gives_its_row_of_the_table(run, folder):
    opened = probagg.open_run(run.path)
    table = (run.path / "assignments.csv").read_text()
    assert opened.predict(folder).to_csv() == table
    one = opened.predict(folder / "07.png").to_csv()
    assert one.splitlines()[1] == table.splitlines()[8]


def test_exported_models_give_the_labels_of_predict(run, folder):
    table = run.assignments
    P, labels = run_onnx(run.export("onnx"), run.onnx_inputs(folder))
    np.testing.assert_array_equal(labels, table["cluster"])
    np.testing.assert_allclose(P.max(1), table["probability"], atol=1e-3)


def test_without_smoothing_a_run_is_plain_pac(plain, run):
    assert plain.config["smooth"] is plain.result["smooth"] is False
    assert isinstance(plain.model(), PAC)
    P = plain.model().predict_proba(np.array(plain.embeddings))
    np.testing.assert_allclose(plain.assignments["probability"], P.max(1), rtol=1e-5)
    assert (plain.assignments["probability"] != run.assignments["probability"]).any()


def test_the_command_has_the_switch_and_says_in_the_plan_that_it_smooths(folder, tmp_path):
    options = ("-k", K, "--dry-run", "--out", tmp_path / "run")
    planned = cluster_command(folder, *options, "--backbone", "efficientnet-lite0")
    assert "PAC into 3 clusters, smoothed; result in" in planned.output
    plain = cluster_command("digits", *options, "--method", "pac", "--no-smooth")
    assert "PAC into 3 clusters; result in" in plain.output


def test_fewer_than_twenty_photos_per_cluster_are_not_smoothed(folder, tmp_path):
    """A photo would be averaged with members of other clusters: here each is one."""
    photos = sorted(folder.iterdir())[:K]
    run = run_of(photos, tmp_path / "run", smooth=True)
    assert run.result["smooth"] is False
    assert "not smoothed: fewer than 20 images per cluster" in (run.path / "log.txt").read_text()
    assert sorted(run.assignments["cluster"]) == [0, 1, 2]


def test_photos_compared_by_another_metric_are_not_smoothed(folder, tmp_path):
    run = run_of(folder, tmp_path / "run", metric="manhattan")
    assert run.result["smooth"] is False
    assert run.predict(folder).to_csv() == (run.path / "assignments.csv").read_text()


def test_one_cluster_is_smoothed_to_itself(folder, tmp_path):
    run = probagg.cluster(
        folder, 1, out=tmp_path / "run", backbone="efficientnet-lite0", report=False
    )
    assert run.result["smooth"] is True
    assert set(run.assignments["probability"]) == {1.0}


def test_smooth_is_for_pac(folder, tmp_path):
    with pytest.raises(InputError, match="smooth: not used by method dpac"):
        run_of(folder, tmp_path / "run", smooth=True, method="dpac")


def test_a_damaged_or_missing_model_is_an_error(folder, tmp_path):
    run = run_of(folder, tmp_path / "run")
    path = run.path / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(bytes(data))
    with pytest.raises(RunFolderError, match=r"model\.safetensors is damaged"):
        run.predict(folder)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        run.predict(folder)


def test_compare_shows_smoothed_clusters(folder):
    """Those of `probagg cluster`."""
    options = ("--methods", "pac,pac-smoothed", "--seeds", 1, "--json")

    def methods(*arguments):
        result = command("compare", *arguments, *options)
        return [row["method"] for row in json.loads(result.stdout)["methods"]]

    assert methods(folder, "-k", K, "--backbone", "efficientnet-lite0") == ["pac", "pac-smoothed"]
    assert methods("digits", "-k", 10) == ["pac", "pac-smoothed"]


def test_clusters_of_a_matrix_need_not_be_compact(tmp_path):
    """The two halves of each moon are joined; without smoothing PAC cuts both moons."""
    X, y = make_moons(1000, noise=0.05, random_state=0)
    run = probagg.cluster(X[::2], 2, out=tmp_path / "run", report=False)
    assert clustering_accuracy(y[::2], run.assignments["cluster"]) > 0.99
    assert run.result["clusters"].startswith("joined parts: ")
    assert run.result["clusters"] in (run.path / "log.txt").read_text()
    assert clustering_accuracy(y[1::2], run.predict(X[1::2])["cluster"]) > 0.99
    own = GraphPAC(2, random_state=0).fit(X[::2])
    np.testing.assert_array_equal(own.labels_, run.assignments["cluster"])
    np.testing.assert_array_equal(own.predict(X[1::2]), run.predict(X[1::2])["cluster"])
    paper = probagg.cluster(X[::2], 2, out=tmp_path / "paper", report=False, smooth=False)
    assert clustering_accuracy(y[::2], paper.assignments["cluster"]) < 0.9
