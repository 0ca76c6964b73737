"""CPU time per photo of EfficientNet-Lite0 in one thread: torch beside other runtimes.

python -m benchmarks network_ways     needs PROBAGG_DATA; four minutes

onnxruntime, and ncnn with pnnx, which converts for it, are measured where they are installed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from benchmarks.data import open_lab_images
from benchmarks.record import Cell, record
from benchmarks.speed.photos_speed import unit
from probagg.app.embed import open_backbone

N, REPEATS, BATCHES, SHAPE = 16, 7, (1, 4, 16), (3, 224, 224)
GEMM = 1024  # rows and columns of the matrices whose product shows what a core can do


def with_onnxruntime(network, folder: Path):
    """onnxruntime; all its optimisations are on by default."""
    import onnxruntime
    import torch

    names = {"input_names": ["images"], "dynamic_shapes": {"images": {0: "n"}}}
    path = folder / "network.onnx"
    torch.onnx.export(network, (torch.zeros(2, *SHAPE),), path, verbose=False, **names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    return lambda images: session.run(None, {"images": images})[0]


def with_ncnn(network, folder: Path, half: bool = False):
    """ncnn, which takes one photo at a time."""
    import ncnn
    import pnnx
    import torch

    pnnx.export(network, str(folder / "network.pt"), torch.zeros(1, *SHAPE), fp16=False)
    net = ncnn.Net()
    net.opt.num_threads = 1
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = half
    net.load_param(str(folder / "network.ncnn.param"))
    net.load_model(str(folder / "network.ncnn.bin"))

    def one(image: np.ndarray) -> np.ndarray:
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(image))
        return np.array(extractor.extract("out0")[1]).reshape(-1)

    return lambda images: np.stack([one(image) for image in images])


OTHERS = {
    "onnxruntime": with_onnxruntime,
    "ncnn": with_ncnn,
    "ncnn, float16": partial(with_ncnn, half=True),
}


def cpu_times(ways: dict, inputs: list) -> dict[str, float]:
    """Return the median CPU time of each way; they take turns, as the machine may be busy."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            began = time.process_time()
            for given in inputs:
                way(given)
            seconds[name].append(time.process_time() - began)
    return {name: median(found) for name, found in seconds.items()}


def main() -> None:
    """Measure torch as `embed` runs it, the other ways, and a product of two matrices."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    backbone = open_backbone("efficientnet-lite0", device="cpu")  # first: it tunes torch
    import torch

    from probagg.app.embed.networks import folded

    torch.set_num_threads(1)
    ways = {"torch": backbone.network}
    with tempfile.TemporaryDirectory() as folder:
        for name, way in OTHERS.items():
            try:
                ways[name] = way(folded(backbone.module, SHAPE), Path(folder))
            except ModuleNotFoundError as missing:
                print(f"{name} is left out: {missing.name} is not installed")
    photos = open_lab_images("imagenette").read(np.arange(0, 5000, 5000 // N)[:N])
    images = np.stack([backbone.prepare(Image.fromarray(pixels)) for pixels in photos])
    rows = []
    for name, way in ways.items():
        difference = unit(way(images)) - unit(backbone(images))
        found = {"largest_distance": float(np.linalg.norm(difference, axis=1).max())}
        rows.append(Cell("imagenette", name, "features", None).row(found))
    for size in BATCHES:
        for name, seconds in cpu_times(ways, np.split(images, range(size, N, size))).items():
            found = {"ms": 1e3 * seconds / N, "settings": {"batch": size}}
            rows.append(Cell("imagenette", name, f"batches of {size}", None).row(found))
            print(rows[-1].cell, f"{found['ms']:.1f} ms per photo", flush=True)
    (product,) = cpu_times({"": lambda A: A @ A}, [torch.randn(GEMM, GEMM)]).values()
    found = {"product_gflop_per_second": 2e-9 * GEMM**3 / product}
    rows.append(Cell("random matrices", "product", seed=None).row(found))
    record("network_ways", rows, settings={"photos": N, "repeats": REPEATS})
