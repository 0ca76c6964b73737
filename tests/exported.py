"""Backbones and photos to export with, and a runtime to compare with."""

import warnings

import numpy as np
import torch
from torch import nn

from probagg.embed.networks import torch_backbone
from probagg.embed.preprocessing import Preprocessing
from probagg.export import export_onnx

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
GROUPS = [0, 1, 1]  # the last of three clusters was merged into the second


def quietly(estimator, X):
    """Fitted; these are too small and too short to please the advice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X)


def floats(X):
    return torch.tensor(X, dtype=torch.float32)


def names_of(labeller):
    return [f"cluster {k}" for k in labeller.clusters]


def onnx_file(labeller, path, names=None):
    export_onnx(labeller, path, names=names or names_of(labeller), description="a test")
    return path


def run_onnx(path, batch):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (takes,) = session.get_inputs()
    return session.run(["probabilities", "labels"], {takes.name: np.asarray(batch)})


class Features(nn.Module):
    """A small network of pixels that differs from sample to sample."""

    def __init__(self, n_features=6):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.conv = nn.Conv2d(3, n_features, 5, stride=3)
        self.norm = nn.BatchNorm2d(n_features)
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)

    def forward(self, x):
        return self.norm(self.conv(x)).relu().mean((2, 3))


def backbone_of(network):
    """A backbone of our own: 20 of 24 pixels."""
    view = Preprocessing(20, 24, MEAN, STD)
    facts = {"facts": (), "device": "cpu", **view.numbers()}
    return torch_backbone("tests:network", network, view, **facts)


def features_of(photos, backbone):
    from PIL import Image

    return backbone(np.stack([backbone.prepare(Image.fromarray(photo)) for photo in photos]))


def middle(photos, side):
    """What is left of square photos when their centre is cut."""
    edge = (photos.shape[1] - side) // 2
    return np.ascontiguousarray(photos[:, edge : edge + side, edge : edge + side])


def tinted(side):
    """60 pictures of three tints, with noise."""
    rng = np.random.default_rng(0)
    tints = np.repeat([[200, 40, 40], [40, 200, 40], [120, 120, 220]], 20, axis=0)
    noise = rng.normal(0, 30, (60, side, side, 3))
    return np.clip(tints[:, None, None] + noise, 0, 255).astype(np.uint8)
