"""BYOL beside the contrast of cluster means, against a transcription."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_training import K, Pictures, infer_all, setup_of, train_with_a_stop, weights_hash

from probagg import DPAC
from probagg.dpac import prototypes
from probagg.dpac.prototypes import PrototypeStage, contrast_means
from probagg.dpac.recipe import RecipeError
from probagg.errors import Interrupted
from probagg.metrics import clustering_accuracy

SETTINGS = ("pretext.task=byol", "pretext.prototypes=0.5", "cluster.metric=cosine")


def means_by_loop(z, target, labels, there):
    """ProPos, Eq. 6: the mean by the target network among those by the online network."""
    mean = {k: F.normalize(z[labels == k].sum(0), dim=0) for k in there}
    other = {k: F.normalize(target[labels == k].sum(0), dim=0) for k in there}
    found = []
    for k in there:
        near = (mean[k] @ other[k] / 0.5).exp()
        far = sum((mean[k] @ mean[j] / 0.5).exp() for j in there if j != k)
        found.append(-(near / (near + far)).log())
    return torch.stack(found).mean()


def test_the_contrast_of_means_leaves_out_clusters_absent_from_a_batch(generator):
    z, target = (torch.randn(6, 5, generator=generator) for _ in range(2))
    labels = torch.tensor([0, 0, 1, 1, 3, 3])  # nothing of cluster 2
    expected = means_by_loop(F.normalize(z, dim=1), F.normalize(target, dim=1), labels, (0, 1, 3))
    torch.testing.assert_close(contrast_means(z, target, torch.eye(4)[labels]), expected)


def test_the_term_counts_once_there_are_clusters():
    """BYOL trains alone for a fifth of the epochs; known images keep their clusters."""
    setup, batch = setup_of(*SETTINGS, "pretrain.epochs=10")
    known = np.full(60, -1)
    known[:3] = [2, 2, 0]
    stage = PrototypeStage(type(setup)(**vars(setup) | {"known": known}))
    for epoch, weight in ((0, 0.0), (1, 0.0), (2, 0.5)):
        stage.before_epoch(epoch)
        found = stage.loss(batch, stage.prepare(batch))
        expected = found["byol"] + weight * found["prototypes"]
        torch.testing.assert_close(found["loss"], expected)
        assert found["prototypes"] > 0
    assert stage.P[:3].argmax(1).tolist() == [2, 2, 0]
    before = stage.P.clone()
    stage.before_epoch(3)
    assert torch.equal(stage.P, before)
    stage.before_epoch(5)
    assert not torch.equal(stage.P, before)
    assert (stage.P.argmax(1) == before.argmax(1)).float().mean() > 0.8  # PAC went on from them


def test_a_refresh_draws_from_the_seed_alone(generator, monkeypatch):
    """PAC sweeps the rows in random order, which moves rows between clusters that overlap."""
    Z = F.normalize(torch.randn(60, 6, generator=generator), dim=1)
    monkeypatch.setattr(prototypes, "infer", lambda *_: (Z, Z))
    found = []
    for state in (1, 2):
        stage = PrototypeStage(setup_of(*SETTINGS)[0])
        stage.before_epoch(1)
        np.random.seed(state)  # noqa: NPY002
        stage.before_epoch(4)
        found.append(stage.P)
    assert torch.equal(*found)


def test_clusters_are_those_of_the_images():
    setup, _ = setup_of(*SETTINGS)
    stage = PrototypeStage(setup)
    stage.before_epoch(1)
    assert clustering_accuracy(Pictures().y, stage.P.argmax(1).numpy()) > 0.9


def test_it_survives_an_interruption(tmp_path):
    """Clusters and their weight are part of a checkpoint."""

    def train(folder, stop_at=None):
        settings = (*SETTINGS, "pretrain.epochs=5")
        setup, stage = train_with_a_stop(tmp_path / folder, settings, PrototypeStage, stop_at)
        assert stage.weight == 0.5
        return weights_hash(setup.model)

    with pytest.raises(Interrupted):
        train("stopped", (3, 1))
    assert train("stopped") == train("whole")


def test_dpac_pre_trains_with_it():
    setup, _ = setup_of(*SETTINGS)
    dpac = DPAC(K, recipe=setup.recipe, device="cpu", random_state=0).fit(Pictures().array)
    assert dpac.features_.shape == infer_all(setup)[0].shape
    plain = setup.recipe.override(["pretext.prototypes=0"])
    other = DPAC(K, recipe=plain, device="cpu", random_state=0).fit(Pictures().array)
    assert not np.array_equal(dpac.features_, other.features_)


def test_it_needs_byol():
    with pytest.raises(RecipeError, match="the task 'wcl' has no target network"):
        setup_of("pretext.prototypes=0.5")

    class Own(torch.nn.Module):
        def forward(self, backbone, views, features, P):
            return features.pow(2).mean()

    recipe = setup_of(*SETTINGS)[0].recipe
    dpac = DPAC(K, recipe=recipe, pretext=lambda *_: Own(), device="cpu")
    with pytest.raises(RecipeError, match="a pretext task of your own has no target network"):
        dpac.fit(Pictures().array)
