"""Backbones and photos for the tests of exporting, and a runtime to compare with."""

import warnings

import numpy as np
import torch
from torch import nn

from probagg.app.embed.backbone import Preprocessing
from probagg.app.embed.networks import torch_backbone
from probagg.app.export import export_onnx

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
# A cluster's name that formats have to quote.
NAME = 'red & "round" <1>'


def quietly(estimator, X):
    """Return the fitted estimator, without warnings about small data and short fits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X)


def floats(X):
    return torch.tensor(X, dtype=torch.float32)


def names_of(labeller):
    return [f"cluster {k}" for k in range(labeller.review.merge.shape[1])]


def onnx_file(labeller, path, names=None, **options):
    names = names or names_of(labeller)
    data, _ = export_onnx(labeller, names=names, description="a test", **options)
    path.write_bytes(data)
    return path


def run_onnx(path, batch, optimized=None):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)  # what onnxruntime makes of the graph
        options.log_severity_level = 3  # it warns that such a file belongs to this machine
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (takes,) = session.get_inputs()
    return session.run(["probabilities", "labels"], {takes.name: np.asarray(batch)})


class Features(nn.Module):
    """A small network whose features differ between samples."""

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
    """Return a backbone whose input is the central 20 of 24 pixels."""
    view = Preprocessing(20, 24, MEAN, STD)
    facts = {"facts": (), "device": "cpu", **view.numbers()}
    return torch_backbone("tests:network", network, view, **facts)


def features_of(photos, backbone):
    from PIL import Image

    return backbone.network(
        np.stack([backbone.prepare(Image.fromarray(photo)) for photo in photos])
    )


def middle(photos, side):
    """Return the centres of square photos."""
    edge = (photos.shape[1] - side) // 2
    return np.ascontiguousarray(photos[:, edge : edge + side, edge : edge + side])


def tinted(side):
    """Return 60 pictures of three tints, with noise."""
    rng = np.random.default_rng(0)
    tints = np.repeat([[200, 40, 40], [40, 200, 40], [120, 120, 220]], 20, axis=0)
    noise = rng.normal(0, 30, (60, side, side, 3))
    return np.clip(tints[:, None, None] + noise, 0, 255).astype(np.uint8)
