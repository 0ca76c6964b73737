"""A trained network, exported, labels new images as its run does."""

import csv
import json

import numpy as np
import onnxruntime
from commands import cluster, probagg
from PIL import Image

from probagg.app.review import Review
from probagg.app.run.contents import write_review
from probagg.data.opening import open_images

QUICK = ("--method", "dpac", "--recipe", "digits/fast", "--device", "cpu")
for _setting in (
    "network.width=8", "pretrain.epochs=5", "cluster.epochs=25", "self_label.epochs=1",
    "pretrain.batch_size=125", "cluster.batch_size=125",
):  # fmt: skip
    QUICK += ("--set", _setting)


def photos(folder, rows):
    folder.mkdir()
    for row, image in zip(rows, open_images("digits").read(np.array(rows)), strict=True):
        Image.fromarray(image[..., 0]).save(folder / f"{row:04}.png")
    return folder


def predict(run, source):
    result = probagg("predict", run, source, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    return list(csv.DictReader(result.stdout.splitlines()))


def test_onnx_and_the_run_number_clusters_alike(tmp_path):
    """Also after a merge into a cluster of a higher number."""
    run, new = tmp_path / "run", photos(tmp_path / "new", range(1000, 1200))
    result = cluster(photos(tmp_path / "photos", range(500)), "-k", 10, *QUICK, "--out", run)
    assert result.exit_code == 0, result.stderr
    a, b = sorted({int(row["cluster"]) for row in predict(run, tmp_path / "photos")})[:2]
    write_review(run, Review(names={b: "both"}, merged={a: b}))
    assert probagg("export", run).exit_code == 0
    session = onnxruntime.InferenceSession(run / "model.onnx")
    P, labels = session.run(None, {"images": open_images("digits").read(np.arange(1000, 1200))})
    found, sure = predict(run, new), np.sort(P)[:, -1] > 0.6
    assert sure.sum() > 20
    np.testing.assert_array_equal(labels[sure], [int(r["cluster"]) for r in np.array(found)[sure]])
    assert {found[i]["name"] for i in np.flatnonzero(labels == b) if sure[i]} == {"both"}
    names = json.loads(session.get_modelmeta().custom_metadata_map["probagg.names"])
    assert (names[b], a in labels) == ("both", False)
