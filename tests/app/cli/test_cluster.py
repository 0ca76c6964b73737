import csv
import json
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from commands import cluster as run
from commands import cluster_by_pac as cluster
from commands import probagg

from probagg import DPAC, PAC, __version__, clustering_accuracy
from probagg.app.run.folder import unfinished
from probagg.data.opening import open_images
from probagg.errors import NoData


def test_pac_clusters_digits_and_fills_a_run_folder(tmp_path, digits):
    out = tmp_path / "demo"
    result = cluster("digits", "-k", 10, "--no-smooth", "--out", out)
    assert result.exit_code == 0
    assert "objective" in result.stdout
    assert "ACC" in result.stdout
    with (out / "assignments.csv").open() as file:
        rows = list(csv.DictReader(file))
    labels = np.array([int(row["cluster"]) for row in rows])
    model = PAC.load(out / "model.safetensors")
    np.testing.assert_array_equal(labels, model.predict(digits[0].astype(np.float32)))
    config = tomllib.loads((out / "config.toml").read_text())
    assert config["source"] == "digits"
    assert config["pac"]["n_clusters"] == 10
    manifest = json.loads((out / "manifest.json").read_text())
    assert set(manifest["sha256"]) >= {
        "assignments.csv", "classes.csv", "config.toml", "env.json", "log.txt", "model.safetensors",
        "overlaps.csv", "profiles.csv", "result.json", "yardstick.safetensors",
    }  # fmt: skip


def test_json_is_all_that_stdout_holds(tmp_path):
    result = cluster("digits", "--out", tmp_path / "run", "--json")
    summary = json.loads(result.stdout)
    assert sum(summary["sizes"]) == 1797
    assert summary["acc"] > 0.7
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == summary


def test_quiet_prints_nothing(tmp_path):
    result = cluster("digits", "--out", tmp_path / "run", "--quiet")
    assert (result.exit_code, result.stdout) == (0, "")


def test_options_reach_pac(tmp_path):
    options = ("--m", "auto", "--metric", "cosine", "--balance", 0.5, "--n-init", 2, "--seed", 3)
    assert cluster("digits", "--out", tmp_path / "run", *options).exit_code == 0
    params = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["pac"]
    assert (params["m"], params["metric"], params["balance"]) == ("auto", "cosine", 0.5)
    assert (params["n_init"], params["random_state"]) == (2, 3)


def test_a_misspelt_source_names_the_nearest(tmp_path):
    result = cluster("digit", "--out", tmp_path / "run")
    assert result.exit_code == 3
    assert "Did you mean 'digits'?" in result.stderr
    assert not (tmp_path / "run").exists()
    (tmp_path / "rows.csv").symlink_to(tmp_path / "gone.csv")
    result = cluster(tmp_path / "rows.csv", "--out", tmp_path / "run")
    assert (result.exit_code, "Did you mean" in result.stderr) == (3, False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-k", 0), "at least 1 is needed"),
        (("-k", "many"), "a number, a range such as 5:40, or auto"),
        (("-k", "9:3"), "must begin at 2 or more"),
        (("--m", "soft"), "--m is 'soft'"),
        (("--m", 0.9), "'m' parameter"),
        (("-k", 5000), "digits has 1,797 rows, which cannot form 5,000 clusters"),
        (("--metric", "euclid"), "metric='euclid'"),
    ],
)
def test_wrong_usage_is_one_message_and_exit_code_2(tmp_path, arguments, words):
    result = cluster("digits", "--out", tmp_path / "run", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_finished_run_is_kept(tmp_path):
    assert cluster("digits", "--out", tmp_path / "run").exit_code == 0
    before = (tmp_path / "run" / "assignments.csv").read_bytes()
    result = cluster("digits", "-k", 3, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "--overwrite" in result.stderr
    assert (tmp_path / "run" / "assignments.csv").read_bytes() == before


def test_a_command_that_fails_destroys_nothing(tmp_path):
    assert cluster("digits", "--out", tmp_path / "run").exit_code == 0
    assert cluster("digits", "--out", tmp_path / "run", "--overwrite", "-k", 5000).exit_code == 2
    assert (tmp_path / "run" / "manifest.json").exists()
    assert cluster("digits", "--out", tmp_path / "new", "--metric", "haversine").exit_code == 2
    assert not (tmp_path / "new").exists()
    assert cluster("digits", "--out", "/dev/null/run").exit_code == 2


def test_warnings_reach_the_user(tmp_path):
    result = cluster("digits", "--out", tmp_path / "run", "--m", 1.5)
    assert result.exit_code == 0
    assert "critical value 1.148" in result.stderr


QUICK = ("--device", "cpu")
for _setting in (
    "network.width=8", "pretrain.epochs=1", "cluster.epochs=1",
    "self_label.epochs=1",
):  # fmt: skip
    QUICK += ("--set", _setting)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of DPAC, not to change, and what its command printed."""
    out = tmp_path_factory.mktemp("dpac") / "run"
    result = run("digits", "-k", 10, "--out", out, *QUICK)
    assert result.exit_code == 0, result.stderr
    return out, result


def test_images_are_clustered_by_dpac(trained):
    out, result = trained
    for words in ("DPAC (digits/fast)", "ACC"):
        assert words in result.stdout
    assert "pretrain   epoch 1/1" in result.stderr
    with (out / "assignments.csv").open() as file:
        labels = np.array([int(row["cluster"]) for row in csv.DictReader(file)])
    model = DPAC.load(out / "model.safetensors", device="cpu")
    images = open_images("digits")
    np.testing.assert_array_equal(labels, model.predict(images))
    np.testing.assert_allclose(np.load(out / "embeddings.npy"), model.transform(images), atol=1e-5)
    config = tomllib.loads((out / "config.toml").read_text())
    assert (config["method"], config["recipe"]["network"]["width"]) == ("dpac", 8)
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 3
    manifest = json.loads((out / "manifest.json").read_text())["sha256"]
    assert {"config.toml", "env.json", "result.json", "model.safetensors"} <= set(manifest)
    assert not (out / "checkpoints").exists()


def test_a_run_out_of_time_goes_on_with_the_same_command(trained, tmp_path):
    out = tmp_path / "run"
    stopped = run("digits", "--out", out, *QUICK, "--max-minutes", 0)
    assert stopped.exit_code == 75
    assert f"Run the same command with --out {out} to go on" in stopped.stderr
    assert (unfinished(out) / "checkpoints").is_dir()
    other = run("digits", "--out", out, *QUICK, "--set", "cluster.m=1.05")
    assert other.exit_code == 2
    assert "cluster.m was 1.02 and is 1.05" in other.stderr
    assert run("digits", "--out", out, *QUICK).exit_code == 0
    files = [folder / "assignments.csv" for folder in (trained[0], out)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_dpac_command_that_fails_destroys_nothing(trained, tmp_path):
    """Neither a finished run nor the settings of an unfinished one."""
    shutil.copytree(trained[0], tmp_path / "done")
    for wrong in (("-k", 1), ("--device", "abacus"), ("--set", "network.backbone=resnet19")):
        result = run("digits", "--out", tmp_path / "done", "--overwrite", *QUICK, *wrong)
        assert result.exit_code == 2, result.stderr
        assert (tmp_path / "done" / "model.safetensors").exists()
    out = tmp_path / "stopped"
    assert run("digits", "--out", out, *QUICK, "--max-minutes", 0).exit_code == 75
    before = (unfinished(out) / "config.toml").read_bytes()
    assert run("digits", "--out", out, *QUICK, "--set", "cluster.m=1.05").exit_code == 2
    assert (unfinished(out) / "config.toml").read_bytes() == before


def test_an_unfinished_run_of_dpac_is_replaced_only_on_request(tmp_path):
    out = tmp_path / "stopped"
    assert run("digits", "--out", out, *QUICK, "--max-minutes", 0).exit_code == 75
    saved = sorted(unfinished(out).rglob("*"))
    for option in ((), ("--dry-run",)):
        result = cluster("digits", "-k", 10, "--out", out, *option)
        assert result.exit_code == 2
        assert "holds an unfinished run of DPAC, which its own command resumes" in result.stderr
        assert sorted(unfinished(out).rglob("*")) == saved
    result = cluster("digits", "-k", 10, "--out", out, "--overwrite")
    assert result.exit_code == 0, result.stderr
    assert tomllib.loads((out / "config.toml").read_text())["method"] == "pac"
    assert not unfinished(out).exists()


def test_a_dry_run_downloads_nothing(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a connection was opened")

    monkeypatch.delenv("PROBAGG_DATA", raising=False)
    monkeypatch.setenv("PROBAGG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    small = (*QUICK, "--set", "network.backbone=convnet")
    result = run("cifar10", "--dry-run", "--out", tmp_path / "run", *small)
    assert result.exit_code == 3, result.output
    assert "cifar10 is not on this computer. Without --dry-run it is downloaded" in result.stderr
    with pytest.raises(NoData, match="a connection was opened"):
        open_images("cifar10")


@pytest.mark.usefixtures("quick_heads")
def test_a_folder_of_photos_is_clustered_by_its_own_recipe(tmp_path):
    from PIL import Image

    (tmp_path / "photos").mkdir()
    for i, image in enumerate(open_images("digits").read(np.arange(30))):
        Image.fromarray(image[..., 0]).resize((40, 30)).save(tmp_path / "photos" / f"{i:02}.png")
    (tmp_path / "photos" / "broken.png").write_text("no picture")
    options = ["--method", "dpac", *QUICK, "--out", tmp_path / "run"]
    options += ["--set", "network.backbone=convnet", "--set", "views.size=32"]
    missing = run(tmp_path / "photos", *options)
    assert (missing.exit_code, "number of clusters is missing" in missing.stderr) == (2, True)
    assert run(tmp_path / "photos", "-k", 3, *options).exit_code == 0
    with (tmp_path / "run" / "assignments.csv").open() as file:
        paths = [row["path"] for row in csv.DictReader(file)]
    assert paths[:2] == ["00.png", "01.png"]
    assert "broken.png" not in paths
    assert "broken.png,it is not an image" in (tmp_path / "run" / "skipped.csv").read_text()


def test_a_matrix_in_a_file_is_clustered_by_pac(tmp_path, blobs):
    np.savetxt(tmp_path / "rows.csv", blobs[0], delimiter=",", header="a,b,c,d,e", comments="")
    missing = run(tmp_path / "rows.csv", "--out", tmp_path / "run")
    assert (missing.exit_code, "number of clusters is missing" in missing.stderr) == (2, True)
    result = run(tmp_path / "rows.csv", "-k", 3, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert "300 rows of 5 columns, PAC into 3 clusters" in result.stdout
    assert "ACC" not in result.stdout
    with (tmp_path / "run" / "assignments.csv").open() as file:
        labels = [int(row["cluster"]) for row in csv.DictReader(file)]
    assert clustering_accuracy(blobs[1], labels) > 0.9


def test_a_file_that_cannot_be_read_is_exit_code_3(tmp_path):
    (tmp_path / "rows.npy").write_text("no numpy")
    result = run(tmp_path / "rows.npy", "-k", 3)
    assert (result.exit_code, "cannot be read as a NumPy file" in result.stderr) == (3, True)


@pytest.mark.parametrize(
    ("source", "arguments", "code", "words"),
    [
        ("cifar", (), 3, "Did you mean 'cifar10'?"),
        ("digits", ("--method", "pac", "--set", "a=1"), 2, "settings: not used by method pac"),
    ],
)
def test_sources_and_methods_that_do_not_meet_are_said(source, arguments, code, words):
    result = run(source, *arguments)
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr


def test_resume_never_starts_over(tmp_path):
    np.savez(tmp_path / "few.npz", X=open_images("digits").read(np.arange(100)))
    options = ("-k", 3, "--method", "dpac", "--recipe", "digits/fast", *QUICK)
    options += ("--out", tmp_path / "run")
    assert run(tmp_path / "few.npz", *options, "--max-minutes", 0).exit_code == 75
    other = ("--set", "cluster.m=1.05", "--resume", "never")
    assert run(tmp_path / "few.npz", *options, *other).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--recipe", "digit"), "Did you mean 'digits/fast'?"),
        (("--set", "cluster.mm=1.05"), "Did you mean 'cluster.m'?"),
        (("--method", "spectral"), "possible are auto, pac, dpac"),
        (("--m", 1.5, "--n-init", 7), "m, n_init: not used by method dpac"),
        (("--resume", "maybe"), "resume is 'maybe'"),
        (("-k", 1000), "1797 images are too few for 1000 clusters"),
        (("--precision", "fp8"), "Got 'fp8' instead"),
        (("--device", "abacus"), "device is 'abacus'"),
    ],
)
def test_wrong_dpac_options_are_one_message_and_exit_code_2(tmp_path, arguments, words):
    result = run("digits", "--out", tmp_path / "run", *QUICK, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_version_and_help():
    assert probagg("--version").stdout.strip() == f"probagg {__version__}"
    for command in ("cluster", "predict", "evaluate", "report", "export", "compare"):
        assert f"Example: probagg {command} " in " ".join(probagg(command, "--help").stdout.split())


def test_a_matrix_needs_the_core_packages_only(tmp_path, blobs):
    """Without torch, Pillow, jinja2 and pyarrow there is a run, and one line about the page."""
    np.save(tmp_path / "rows.npy", blobs[0])
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {("torch", "PIL", "jinja2", "pyarrow", "timm", "onnx")}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from probagg.app.cli import main
main()"""
    command = [sys.executable, "-c", code, "cluster", "rows.npy", "-k", "3", "--out", "run"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "There is no report.html." in result.stderr
    assert "pip install jinja2 pillow" in result.stderr
    assert (tmp_path / "run" / "manifest.json").exists()
