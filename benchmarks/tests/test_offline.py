"""The stages of Tables 5c and 7: offline targets, and the entropy of the mean assignment."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from benchmarks.paper.offline import (
    OfflineStage,
    RegularizedStage,
    cluster_all,
    fuzzy_c_means,
    refresh_targets,
)
from probagg import Recipe, clustering_accuracy
from probagg.data.images import ArrayImages
from probagg.dpac.feed import Feed
from probagg.dpac.model import build_model
from probagg.dpac.recipe import ClusterSettings
from probagg.dpac.stages import Setup, make_views
from probagg.dpac.step import Batch
from probagg.dpac.views import Views


@pytest.fixture(scope="module")
def blobs():
    """Three clusters that overlap a little."""
    return make_blobs(300, 5, centers=3, cluster_std=2.0, random_state=0)


@pytest.fixture
def setup():
    """Sixty random images and a small network for three clusters."""
    recipe = Recipe.of("digits").override(["network.backbone=mlp", "network.layers=[16]"])
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), dtype=np.uint8)
    feed = Feed(ArrayImages(images, None, "noise"), torch.device("cpu"))
    return Setup(build_model(recipe, 3).train(), Views(recipe.views), feed, recipe)


@pytest.fixture
def batch(setup):
    rows = np.arange(20)
    images = torch.from_numpy(setup.feed.images.read(rows))
    return Batch(images, torch.from_numpy(rows), torch.tensor(7))


def test_the_regularisation_is_the_entropy_of_the_mean_assignment(setup, batch):
    stage = RegularizedStage(setup, weight=0.5)
    found = stage.loss(batch, stage.prepare(batch))
    pair = make_views(setup.views, setup.recipe.pretext.views, batch)
    x1, _ = setup.model.backbone(torch.cat(pair)).chunk(2)
    q = setup.model.classifier(x1).softmax(1).mean(0)
    torch.testing.assert_close(
        found["regularization"], 0.5 * (q * q.log()).sum(), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("method", ["kmeans", "fcm", "pac"])
def test_offline_targets_cover_all_images_and_stay_between_refreshes(method, setup, batch):
    stage = OfflineStage(setup, method=method, refresh_epochs=10)
    stage.before_epoch(0)
    Q = stage.state["targets"].clone()
    torch.testing.assert_close(Q.sum(1), torch.ones(60), atol=1e-4, rtol=1e-4)
    stage.before_epoch(1)
    found = stage.loss(batch, stage.prepare(batch))
    assert found["kl"] > 0
    assert torch.equal(stage.targets, Q)


@pytest.mark.parametrize("method", ["kmeans", "fcm", "pac"])
def test_every_offline_method_finds_three_blobs(method, blobs):
    X, y = blobs
    Q = cluster_all(method, torch.from_numpy(X).float(), 3, ClusterSettings(), seed=0)
    assert clustering_accuracy(y, Q.argmax(1)) > 0.95


def test_fuzzy_c_means_is_a_fixed_point_of_bezdeks_equations(blobs):
    X, m = blobs[0], 1.5
    P = fuzzy_c_means(X, 3, m=m, max_iter=500)
    centres = (P**m).T @ X / (P**m).sum(0)[:, None]
    d = ((X[:, None] - centres) ** 2).sum(2)
    expected = np.stack([1 / ((d[:, [k]] / d) ** (1 / (m - 1))).sum(1) for k in range(3)], 1)
    np.testing.assert_allclose(P, expected, atol=5e-3)


def test_refreshed_targets_keep_their_numbers():
    """k-means numbers its clusters at random; targets keep the numbers that they overlap most."""
    features, targets = torch.eye(3).repeat(20, 1) + 0.01, torch.full((60, 3), 1 / 3)
    settings = ClusterSettings(metric="cosine")
    refresh_targets(targets, features, "kmeans", settings, seed=0)
    first = targets.argmax(1)
    for seed in range(1, 5):
        refresh_targets(targets, features, "kmeans", settings, seed=seed)
        assert torch.equal(targets.argmax(1), first)
