"""Photos per second from JPEG files to features on a CPU: the plain path beside `extract_features`.

python -m benchmarks photos_speed     needs PROBAGG_DATA; about ten minutes on two cores

The plain path decodes ahead in threads and runs the network as it is on batches of 16 with all
threads of torch and its default allocator. Both run in turn, each time in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.data import open_lab_images
from benchmarks.record import Cell, record
from probagg.app.embed import extract_features, open_backbone
from probagg.data.photo import open_photo
from probagg.data.threads import in_threads, read_ahead

SIZES = ((1600, 1200), (320, 240))
WAYS = ("plain", "embed")
BATCH, NOISE, QUALITY = 16, 8, 90


def write_photos(folder: Path, size: tuple[int, int], n: int, noise: int) -> None:
    """Write photos of Imagenette, enlarged and with pixel noise, as JPEG files."""
    images, rng = open_lab_images("imagenette"), np.random.default_rng(0)
    folder.mkdir()
    for place, row in enumerate(np.linspace(0, len(images) - 1, n).astype(int)):
        (pixels,) = images.read(np.array([row]))
        picture = Image.fromarray(pixels[12:84]).resize(size, Image.Resampling.BICUBIC)
        noisy = np.asarray(picture, np.int16) + rng.integers(-noise, noise + 1, (*size[::-1], 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(
            folder / f"{place:04}.jpg", quality=QUALITY
        )


def plain(folder: Path, backbone) -> np.ndarray:
    """Features by the network as it is, a batch after the other."""
    import torch

    paths = sorted(folder.iterdir())
    batches = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]

    def prepare(path: Path) -> np.ndarray:
        path.read_bytes()  # as for the digest
        return backbone.prepare(open_photo(path, backbone.near))

    def load(batch: list[Path]) -> np.ndarray:
        return np.stack(list(in_threads(prepare, batch)))

    features = []
    for images in read_ahead(load, batches):
        batch = torch.from_numpy(images).to(memory_format=torch.channels_last)
        with torch.inference_mode():
            features.append(backbone.module(batch).numpy())
    return np.concatenate(features)


def measure(way: str, folder: Path, name: str, out: Path) -> None:
    """Print the speed of one way as JSON; its features go to a file."""
    backbone = open_backbone(name, device="cpu")
    began, cpu = time.perf_counter(), time.process_time()
    if way == "plain":
        X = plain(folder, backbone)
    else:
        X = extract_features(folder, backbone, cache=False).X
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    np.save(out, X)
    print(json.dumps({"per_second": len(X) / seconds, "per_cpu_second": len(X) / cpu}))


def start(way: str, folder: Path, name: str, out: Path) -> dict:
    """Measure in a process of its own; plain torch returns memory to the system after 10 ms."""
    env = os.environ | ({"MIMALLOC_PURGE_DELAY": "10"} if way == "plain" else {})
    arguments = ["--way", way, "--folder", folder, "--backbone", name, "--out", out]
    command = [sys.executable, "-m", "benchmarks", "photos_speed", *map(str, arguments)]
    return json.loads(subprocess.check_output(command, env=env, text=True))


def unit(X: np.ndarray) -> np.ndarray:
    """Rows at unit length."""
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def compare(folder: Path, name: str, repeats: int, temporary: Path) -> tuple[dict, dict]:
    """Return the runs of both ways, in turn so that a busy machine hurts both, and their medians.

    The medians come with the largest distance between features of the same photo.
    """
    runs: dict[str, list[dict]] = {way: [] for way in WAYS}
    files = {way: temporary / f"{way}.npy" for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            runs[way].append(start(way, folder, name, files[way]))
            print(f"  {way}: {runs[way][-1]}", flush=True)
    result: dict = {}
    for key in ("per_second", "per_cpu_second"):
        medians = {way: statistics.median(run[key] for run in runs[way]) for way in WAYS}
        result[key] = medians | {"ratio": medians["embed"] / medians["plain"]}
    X, Y = (unit(np.load(files[way])) for way in WAYS)
    return runs, result | {"largest_distance": float(np.linalg.norm(X - Y, axis=1).max())}


def reduced(folder: Path, name: str, n: int = 12) -> dict:
    """How far features of JPEGs decoded at reduced size are from those of all pixels."""
    backbone = open_backbone(name, device="cpu")
    paths = sorted(folder.iterdir())[:n]
    whole, small = (
        unit(backbone(np.stack([backbone.prepare(open_photo(path, near)) for path in paths])))
        for near in (None, backbone.near)
    )
    distance = np.linalg.norm(whole - small, axis=1)
    between = np.linalg.norm(whole[:, None] - whole[None], axis=2)[np.triu_indices(len(whole), 1)]
    return {
        "n": len(paths),
        "largest_distance": float(distance.max()),
        "median_distance": float(np.median(distance)),
        "largest_difference_of_a_coordinate": float(np.abs(whole - small).max()),
        "median_distance_between_photos": float(np.median(between)),
    }


def main() -> None:
    """Measure all sizes, or one way in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--way", choices=WAYS, help="measure this one only, in this process")
    parser.add_argument("--folder", type=Path, help="with --way: the photos")
    parser.add_argument("--out", type=Path, help="with --way: a .npy file for the features")
    given = parser.parse_args()
    if given.way:
        measure(given.way, given.folder, given.backbone, given.out)
        return
    settings = {"backbone": given.backbone, "photos": given.photos, "repeats": given.repeats}
    settings["load"] = os.getloadavg()[0]
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for size in SIZES:
            folder, label = Path(temporary, str(size[0])), "x".join(map(str, size))
            write_photos(folder, size, given.photos, NOISE)
            print(label, flush=True)
            runs, found = compare(folder, given.backbone, given.repeats, Path(temporary))
            bytes_each = sum(path.stat().st_size for path in folder.iterdir()) / given.photos
            rows += [
                Cell(label, way, f"run {place}", None).row(run)
                for way, several in runs.items()
                for place, run in enumerate(several)
            ]
            medians = found | {"bytes_each": round(bytes_each)}
            rows.append(Cell(label, "medians", seed=None).row(medians))
        for noise in (0, NOISE):
            folder = Path(temporary, f"noise{noise}")
            write_photos(folder, SIZES[0], 12, noise)
            found = reduced(folder, given.backbone)
            rows.append(Cell("1600x1200", "reduced size", f"noise {noise}", None).row(found))
            print(rows[-1].cell, found)
    record("photos_speed", rows, settings=settings)
