"""Several backbones as one."""

import sys

import numpy as np
import pytest

from probagg.app.embed import BackboneError, JointBackbone, embed, estimate, open_backbone
from probagg.app.embed import reopen_backbone as reopen
from probagg.app.embed.preprocessing import Preprocessing
from probagg.app.run.pipeline import cluster
from probagg.app.run.run import open_run
from probagg.data.opening import open_images
from probagg.errors import InputError

MODULE = """
import torch

class Grid(torch.nn.Module):
    def __init__(self, side):
        super().__init__()
        self.side = side

    def forward(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images, self.side).flatten(1)

def coarse():
    return Grid(1)

def fine():
    return Grid(4)
"""
BOTH = "own_grids:coarse,own_grids:fine"


@pytest.fixture
def grids(tmp_path, monkeypatch):
    """The current folder has a module with two networks."""
    (tmp_path / "own_grids.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_grids", raising=False)


def test_squared_distances_of_joined_features_are_sums_of_those_of_the_parts(
    photos, network, backbone_of
):
    parts = [backbone_of(network, Preprocessing(size, size + 4)) for size in (16, 32)]
    X = embed(photos, JointBackbone(tuple(parts))).X
    alone = [embed(photos, part).X for part in parts]
    units = [found / np.linalg.norm(found, axis=1, keepdims=True) for found in alone]

    def squared(X):
        return ((X[:, None] - X) ** 2).sum(2)

    np.testing.assert_allclose(squared(X), sum(map(squared, units)), atol=1e-5)


def test_a_photo_that_one_transform_refuses_is_left_out(photos, network, backbone_of):
    class Picky(Preprocessing):
        def __call__(self, image):
            if image.width == 45:
                raise ValueError("an odd width")
            return super().__call__(image)

    both = JointBackbone((backbone_of(network), backbone_of(network, Picky(16, 20))))
    found = embed(photos, both)
    assert found.rows.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert found.bad == [("5.png", "the backbone's transform fails on it (an odd width)")]
    assert len(found.X) == 9


def test_both_parts_use_the_cache_of_a_single_one(photos, network, backbone_of):
    first, second = backbone_of(network), backbone_of(network, Preprocessing(16, 20))
    embed(photos, first)
    both = JointBackbone((first, second))
    assert estimate(open_images(photos), both) > 0.0
    network.batches = []
    embed(photos, both)
    assert network.seen < 10
    assert embed(photos, both).cached == 10
    assert estimate(open_images(photos), both) == 0.0


@pytest.mark.usefixtures("grids")
def test_two_names_are_opened_and_opened_again_as_one():
    both = open_backbone(BOTH, device="cpu")
    assert (both.name, both.n_features) == (BOTH, 3 + 48)
    again = reopen(both.spec(), "cpu", trust_code=True)
    assert again.identity == both.identity
    with pytest.raises(BackboneError, match="has changed"):
        reopen(both.spec() | {"identity": "0"}, "cpu", trust_code=True)
    assert (
        open_backbone("own_grids:fine , own_grids:coarse", device="cpu").identity != both.identity
    )


@pytest.mark.usefixtures("grids")
@pytest.mark.parametrize("name", [BOTH, "efficientnet-lite0,own_grids:fine"])
def test_code_among_several_backbones_needs_trust_as_well(name):
    """A run folder from somebody else may name code in either place."""
    with pytest.raises(BackboneError, match="trust_code=True"):
        reopen({"backbone": name, "identity": ""}, "cpu")
    assert "own_grids" not in sys.modules


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("a,b", "file.pth", "are 2 backbones, and --weights file.pth is a file for one"),
        ("a,,b", None, "has an empty name"),
        ("a, a", None, "the same backbone twice"),
    ],
)
def test_names_that_make_no_sense_are_refused(name, weights, message):
    with pytest.raises(BackboneError, match=message):
        open_backbone(name, weights)


def test_a_file_with_a_comma_in_its_name_is_one_backbone(tmp_path):
    path = tmp_path / "a,b.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(BackboneError, match=r"a,b\.onnx is not an ONNX model"):
        open_backbone(str(path), device="cpu")


@pytest.mark.usefixtures("grids")
def test_a_run_of_two_backbones_predicts_and_exports_its_clusters_alone(photos, tmp_path):
    run = cluster(photos, 2, out=tmp_path / "run", backbone=BOTH, report=False)
    assert run.embeddings.shape == (10, 51)
    assert run.config["embed"]["backbone"] == BOTH
    again = open_run(run.path, trust_code=True).predict(photos)
    assert again["cluster"].tolist() == run.assignments["cluster"].tolist()
    with pytest.raises(InputError, match=r"has 2 backbones .*--features"):
        run.export("safetensors")
    assert run.export("safetensors", features=True).is_file()
