"""Features on a CPU: the quick path gives the features of the plain one, and says its pace."""

import os
import re

import numpy as np
import torch
from PIL import Image

from probagg.app.embed.features import extract_features
from probagg.app.embed.opening import open_backbone
from probagg.app.run.samples import embed_images, open_samples
from probagg.data.photo import open_photo
from probagg.environment import keep_memory
from probagg.progress import Monitor


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_embed_has_the_features_of_the_plain_network(tmp_path):
    """One photo after the other through the network as it is, on all threads of torch."""
    rng = np.random.default_rng(0)
    for k in range(5):
        patches = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        patches.resize((400 * (1 + k), 300 * (1 + k))).save(tmp_path / f"{k}.jpg")
    backbone = open_backbone("efficientnet-lite0", device="cpu")
    photos = [open_photo(path, backbone.near) for path in sorted(tmp_path.iterdir())]
    inputs = [torch.from_numpy(backbone.prepare(photo))[None] for photo in photos]
    with torch.inference_mode():
        plain = torch.cat([backbone.module(image) for image in inputs]).numpy()
    X = extract_features(tmp_path, backbone, cache=False).X
    assert np.linalg.norm(unit(X) - unit(plain), axis=1).max() < 1e-3


def test_every_core_has_a_network_of_one_thread(photos, network, backbone_of):
    threads, plain = [], network.forward

    def forward(images):
        threads.append(torch.get_num_threads())
        return plain(images)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        backbone = backbone_of(network)
        network.forward = forward
        extract_features(photos, backbone)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {1}


def test_a_run_says_the_pace_of_features_that_were_computed(photos, backbone):
    monitor = Monitor()
    samples = open_samples(photos, monitor)
    embed_images(samples, backbone, monitor)
    (line,) = [line for line in monitor.lines if line.startswith("features: ")]
    assert re.fullmatch(r"features: \S+ images/s", line)
    embed_images(samples, backbone, monitor)  # from the cache
    assert len([line for line in monitor.lines if line.startswith("features: ")]) == 1


def test_torch_keeps_memory_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("MIMALLOC_PURGE_DELAY", raising=False)
    keep_memory()
    assert os.environ["MIMALLOC_PURGE_DELAY"] == "-1"
    monkeypatch.setenv("MIMALLOC_PURGE_DELAY", "100")
    keep_memory()
    assert os.environ["MIMALLOC_PURGE_DELAY"] == "100"
