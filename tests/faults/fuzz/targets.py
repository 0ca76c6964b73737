"""Every kind of file that probagg reads for a user: good ones, made by its own writers, and how."""

import functools
import io
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

ROWS = np.random.default_rng(0).normal(size=(12, 3)).round(3) + 4 * (np.arange(12) % 2)[:, None]
LABELS = "row,class\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(12))
CSV = "id;amount;when;kind\n" + "".join(
    f"r{i};{1000 + i},{i};2024-01-{i + 1:02d};{'red' if i % 3 else 'blue'}\n" for i in range(12)
)


@dataclass(frozen=True)
class Target:
    """A kind of file: `make` fills a folder with good ones, `read` reads one of them."""

    make: Callable[[Path], None]
    read: Callable[[Path], object]
    quick: int = 200  # inputs in the quick part


def images(folder):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 4), np.uint8)
    colour, alpha = Image.fromarray(pixels[..., :3]), Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6
    for ending in ("jpg", "bmp", "gif", "tif", "webp", "avif"):
        try:
            colour.save(folder / f"a.{ending}", exif=exif.tobytes())
        except (KeyError, OSError):  # Pillow was built without this format
            (folder / f"a.{ending}").unlink(missing_ok=True)
    alpha.save(folder / "b.png")
    alpha.convert("P").save(folder / "c.png")
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 256).save(folder / "d.png")
    colour.save(folder / "e.tif", compression="tiff_lzw")


def read_image(path):
    from probagg.data.images import FolderImages

    FolderImages(path.parent, 8, paths=[path.name]).read(np.array([0]))


def numpy_files(folder):
    np.save(folder / "a.npy", ROWS)
    np.save(folder / "b.npy", (ROWS * 9).astype(np.int16))
    np.save(folder / "c.npy", np.zeros((2, 4, 4, 3), np.uint8))


def archives(folder):
    np.savez(folder / "a.npz", X=ROWS, y=np.arange(12) % 2)
    np.savez_compressed(folder / "b.npz", X=ROWS.astype(np.float32))
    np.savez_compressed(folder / "c.npz", X=np.zeros((2, 4, 4), np.uint8), y=np.arange(2))
    sp.save_npz(folder / "d.npz", sp.csr_array(np.maximum(ROWS, 0)))
    sp.save_npz(folder / "e.npz", sp.coo_array(np.maximum(ROWS, 0)), compressed=False)


def read_source(path):
    from probagg.data.opening import open_source

    found = open_source(path)
    return found.read(np.array([0])) if found.kind == "images" else found.y


def tables(folder):
    (folder / "a.csv").write_text(CSV)
    (folder / "b.csv").write_text("\n".join(",".join(map(str, row)) for row in ROWS.tolist()))
    (folder / "c.tsv").write_text(CSV.replace(";", "\t").replace("red", '"red\nor green"'))
    (folder / "d.txt").write_text(CSV.replace(";", "|"))


def parquet(folder):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"x": ROWS[:, 0], "n": np.arange(12), "kind": ["red", "blue"] * 6}
    dates = np.datetime64("2024-01-01") + np.arange(12)
    parquet.write_table(pa.table(columns | {"when": pa.array(dates)}), folder / "a.parquet")
    plain = pa.table({"x": ROWS[:, 0].astype(np.float32), "flag": [True, False, None] * 4})
    parquet.write_table(plain, folder / "b.parquet", compression="none", use_dictionary=False)


def read_table(path):
    from probagg.app.run.tables import Preparation
    from probagg.data.opening import open_source

    return Preparation.fit(open_source(path))


def labels(folder):
    (folder / "a.csv").write_text(LABELS)
    (folder / "b.csv").write_text("\n".join("ab"[i % 2] for i in range(12)))
    (folder / "c.csv").write_text(LABELS.replace(",", ";"))


def read_labels(path):
    from probagg.data.labels import read_labels

    return read_labels(path, [str(i) for i in range(12)])


def settings(folder):
    from probagg import Recipe

    (folder / "recipe.toml").write_text(Recipe.of("digits/fast").to_toml())
    (folder / "short.toml").write_text('base = "digits/fast"\n[cluster]\nm = 1.05\n')
    a_run(folder)
    _keep(folder, "recipe.toml", "short.toml", "config.toml")


def read_settings(path):
    from probagg import Recipe
    from probagg.app.run.contents import read_config

    return read_config(path.parent) if path.name == "config.toml" else Recipe.of(path)


@functools.cache
def run_files():
    """Cluster a small table and return the files of the run."""
    from probagg import cluster

    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, run = Path(place, "rows.csv"), Path(place, "run")
        rows.write_text(CSV)
        cluster(rows, 2, out=run, labels=[i % 2 for i in range(12)], report=False)
        return {path.name: path.read_bytes() for path in run.iterdir()}


def a_run(folder):
    """Write a run of a small table with every kind of file that a page reads."""
    for name, data in run_files().items():
        (folder / name).write_bytes(data)
    (folder / "k_selection.csv").write_text("n_clusters,score,chosen\n2,0.5,1\n3,0.4,0\n")
    (folder / "skipped.csv").write_text("path,reason\na.jpg,broken\n")
    review = {
        "format": "probagg.review/2",
        "names": {"0": "cats"},
        "merged": {},
        "moved": {"r1": 0},
        "created": [2],
        "splits": [
            {"cluster": 1, "parts": [3, 4], "members": {"r2": 3}, "mean": 43 * "A" + "=",
             "weight": [0.5, 0.5], "spread": [0.0, 0.1]},
        ],
        "discarded": ["r3"],
    }  # fmt: skip
    (folder / "review.json").write_text(json.dumps(review))


def a_page(folder):
    """Write a run without its manifest, so that its files are parsed and not only compared."""
    a_run(folder)
    (folder / "manifest.json").unlink()


def _keep(folder, *names):
    for path in folder.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def assignments(folder):
    a_run(folder)
    _keep(folder, "assignments.csv")


def read_assignments(path):
    from probagg.app.assignments import Assignments

    return Assignments.read(path, 2).to_csv()


def reviews(folder):
    a_run(folder)
    _keep(folder, "review.json", "result.json")


def read_review(path):
    from probagg.app.run.contents import read_review

    return read_review(path.parent).groups(2)


def manifests(folder):
    a_run(folder)
    _keep(folder, "manifest.json", "config.toml", "model.safetensors", "result.json")


def read_manifest(path):
    from probagg import open_run

    return open_run(path.parent).model()


def read_page(path):
    from probagg.app.report.rendering import render_page
    from probagg.app.run.contents import read_contents

    return render_page(read_contents(path.parent), None, "none")


def read_prediction(path):
    from commands import reseal

    from probagg import open_run

    rows = io.StringIO(CSV.split("r9;")[0])
    import pandas as pd

    if path.name != "manifest.json":
        reseal(path.parent)
    return open_run(path.parent).predict(pd.read_csv(rows, sep=";", decimal=","))


def checkpoints(folder):
    import torch

    from probagg.dpac.checkpoint import TrainingState, save_checkpoint

    tensors = {"module.w": torch.arange(6.0).reshape(2, 3), "step.n": torch.tensor(3)}
    description = {
        "identity": {"recipe": {"self_label": {"labels": "classifier"}}, "seed": 3},
        "position": {"stage": "cluster", "epoch": 2, "step": 1, "total": 9, "done": ["pretrain"]},
        "versions": {"probagg": "1", "torch": "2"},
    }
    save_checkpoint(folder, 9, TrainingState(tensors, description))


def read_checkpoint(path):
    import torch

    from probagg.dpac.engine import Engine

    place = path.parent / "run" / "checkpoints"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, place / path.name)
    module = torch.nn.Module()
    module.register_buffer("w", torch.zeros(2, 3))
    identity = {"recipe": {"self_label": {"labels": "classifier"}}, "seed": 3}
    engine = Engine(module, identity=identity)
    engine.out = path.parent / "run"
    return engine.resume()


def network(folder):
    from probagg import Recipe
    from probagg.dpac.model import build_model, save_network

    small = ["network.width=2", "network.classifier=[4]", "pretext.head=[4, 4]", "views.size=8"]
    recipe = Recipe.of("digits/fast").override(small)
    save_network(build_model(recipe, 2), recipe, folder / "model.safetensors")


def read_network(path):
    from probagg import DPAC

    return DPAC.load(path, device="cpu").predict(np.zeros((2, 8, 8), np.uint8))


def models(folder):
    from probagg import PAC, GraphPAC, OPAHead
    from probagg.pac.out_of_core import FitCheckpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PAC(2, random_state=0).fit(ROWS).save(folder / "pac.safetensors")
        pac = PAC(2, metric="manhattan", random_state=0).fit(ROWS)
        pac.save(folder / "pairwise.safetensors")
        head = OPAHead(2, max_epochs=1, hidden=(4,), random_state=0, device="cpu").fit(ROWS)
        head.save(folder / "opa.safetensors")
        GraphPAC(2, random_state=0).fit(np.tile(ROWS, (20, 1))).save(folder / "graph.safetensors")
    fit = FitCheckpoint(folder / "fit.safetensors", 3)
    fit.identity = {"n_clusters": 2}
    fit.write(ROWS, 4, [3.0, 2.0])


def read_model(path):
    from probagg import PAC, GraphPAC, OPAHead
    from probagg.pac.out_of_core import FitCheckpoint

    if path.name.startswith("fit"):
        return FitCheckpoint(path, 3)
    kind = {"opa": OPAHead, "graph": GraphPAC}.get(path.name.partition(".")[0], PAC)
    return kind.load(path).predict_proba(ROWS[:2])


TARGETS = {
    "images": Target(images, read_image),
    "npy": Target(numpy_files, read_source),
    "npz": Target(archives, read_source),
    "csv": Target(tables, read_table),
    "parquet": Target(parquet, read_table),
    "labels": Target(labels, read_labels),
    "toml": Target(settings, read_settings, quick=100),
    "assignments": Target(assignments, read_assignments),
    "review": Target(reviews, read_review),
    "manifest": Target(manifests, read_manifest),
    "checkpoint": Target(checkpoints, read_checkpoint, quick=100),
    "network": Target(network, read_network, quick=40),
    "model": Target(models, read_model),
    "page": Target(a_page, read_page, quick=12),
    "predict": Target(a_run, read_prediction, quick=40),
}
