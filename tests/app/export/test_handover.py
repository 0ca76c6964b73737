"""Clusters for other tools: what every format has in common, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from commands import probagg as command
from exported import NAME, run_onnx

import probagg
from probagg.app.assignments import Assignments
from probagg.app.review import Review
from probagg.app.run.contents import write_review
from probagg.app.run.folder import RunFolderError, add_to_run
from probagg.app.run.splitting import split_cluster
from probagg.errors import InputError, NoData


def test_a_folder_is_written_and_never_replaced(run, tmp_path):
    out = tmp_path / "out"
    assert run.export("label-studio", out) == out
    assert sorted(p.name for p in out.iterdir()) == ["config.xml", "tasks.json"]
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for overwrite in (False, True):
        with pytest.raises(RunFolderError, match=r"out is not empty\. Name a new folder"):
            run.export("label-studio", out, overwrite=overwrite)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_model_in_the_run_replaces_the_one_before(run, tmp_path):
    """At its own place it is a file of ours, also where the user names that place."""
    before = add_to_run(run.path, "model.onnx", b"old")
    result = command("export", run.path, "--out", before)
    assert result.exit_code == 0, result.output
    assert before.read_bytes() != b"old"
    (tmp_path / "mine.onnx").touch()
    with pytest.raises(InputError, match="exists"):
        run.export("onnx", out=tmp_path / "mine.onnx")


def test_half_a_model_says_its_size_and_labels_as_the_whole_one(run, clustered, tmp_path):
    facts = {}
    for options in ((), ("--half",)):
        out = tmp_path / f"model{len(options)}.onnx"
        result = command("export", run.path, "--out", out, *options, "--json")
        assert result.exit_code == 0, result.output
        facts[options] = json.loads(result.stdout)
        assert facts[options]["bytes"] == out.stat().st_size
        assert f"{out.stat().st_size / 1e6:.1f} MB" in result.stderr
    full, half = facts.values()
    assert half["bytes"] < 0.6 * full["bytes"]
    assert full["difference"] < 1e-4
    assert half["difference"] < 1e-2
    pixels = run.onnx_inputs(clustered.path.parent / "my photos")
    (P, labels), (found, same) = (run_onnx(model["file"], pixels) for model in (full, half))
    np.testing.assert_allclose(found, P, atol=1e-2)
    np.testing.assert_array_equal(same, labels)
    assert run.export(half=True).stat().st_size == pytest.approx(half["bytes"], rel=1e-3)


def test_names_of_clusters_are_by_number_and_all_different(run):
    assert run.cluster_names == ["cluster 0", "cluster 1", "cluster 2", NAME]
    write_review(run.path, Review(names={1: "cats", 3: "cats"}))
    assert run.cluster_names == ["cluster 0", "cats (1)", "cluster 2", "cats (3)"]


def test_label_studio_serves_the_files_of_the_run(run, clustered, tmp_path):
    """What follows ?d= is the path below the document root, the folder above the photos."""
    tasks = json.loads((run.export("label-studio", tmp_path / "ls") / "tasks.json").read_text())
    table, root = run.assignments, clustered.path.parent
    for row, task in enumerate(tasks):
        before, _, place = task["data"]["image"].partition("?d=")
        assert before == "/data/local-files/"
        assert root / unquote(place) == root / "my photos" / table.names[row]
        assert "#" not in place
        assert " " not in place


def test_the_command_says_how_label_studio_must_be_started(run, clustered, tmp_path):
    result = command("export", run.path, "--format", "label-studio", "--out", tmp_path / "ls")
    assert result.exit_code == 0, result.stderr
    assert "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true" in result.stdout
    assert f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={clustered.path.parent}" in result.stdout


def test_splits_and_discarded_photos_reach_every_tool(run, tmp_path):
    """A part is a cluster; a discarded photo is listed, flagged, and in no cluster."""
    first, last = run.assignments.names[0], run.assignments.names[-1]
    review = replace(run.review, moved={}, discarded=frozenset([first]))
    split = split_cluster(
        run.embeddings, Assignments.read(run.path / "assignments.csv", 4), 4, review, 3, 2
    )
    write_review(run.path, replace(review, splits=(split,), names={split.members[last]: "half"}))
    run = probagg.open_run(run.path)
    table = run.assignments
    assert set(table.cluster) <= {-1, 1, 2, 4, 5}
    tasks = json.loads((run.export("label-studio", tmp_path / "ls") / "tasks.json").read_text())
    assert tasks[0]["predictions"] == []
    assert tasks[0]["data"]["flag"] == "discarded"
    choices = [task["predictions"][0]["result"][0]["value"]["choices"] for task in tasks[1:]]
    assert choices == [[run.review.name_of(k)] for k in table.cluster[1:]]
    assert ["half"] in choices


def test_a_list_of_photos_has_its_common_folder(clustered, tmp_path):
    folder = clustered.path.parent / "my photos"
    paths = sorted(str(path) for path in folder.rglob("*.png"))
    options = {"backbone": "efficientnet-lite0", "report": False}
    run = probagg.cluster(paths, 2, out=tmp_path / "run", **options)
    for opened in (run, probagg.open_run(run.path)):
        assert opened.photos(run.assignments.names) == (folder, [Path(path) for path in paths])


def test_a_tool_that_shows_files_refuses_rows(blobs, tmp_path):
    run = probagg.cluster(blobs[0], 3, out=tmp_path / "run", report=False)
    with pytest.raises(NoData, match="shows image files, but the run run was made from rows"):
        run.export("label-studio", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_photo_that_is_gone_is_named(clustered, tmp_path):
    home = shutil.copytree(clustered.path.parent, tmp_path / "home")
    config = home / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(clustered.path.parent), str(home)))
    (home / "my photos" / "00.png").unlink()
    with pytest.warns(UserWarning, match="was changed after"):
        run = probagg.open_run(home / "run")
    with pytest.raises(NoData, match=r"00\.png of the run run is gone"):
        run.export("label-studio", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "label-studio"), "has no place in a run. Name one: --out NAME/ "),
        (("--format", "label-studio", "--half"), "label-studio has no weights. Leave it out, or "),
        (("--format", "coco"), "possible are onnx, label-studio"),
    ],
    ids=str,
)
def test_wrong_usage_is_one_line(run, options, message):
    result = command("export", run.path, *options)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
