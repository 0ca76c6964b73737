"""DPAC with a backbone, a pretext task and stages of the user's own."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from probagg import DPAC, Recipe
from probagg.dpac.checkpoint import CannotResume
from probagg.dpac.stages import ClusterStage, PretrainStage
from probagg.errors import ClusteringWarning, InputError, Interrupted
from probagg.storage import read_safetensors

EPOCHS = ["pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=0"]
RECIPE = Recipe.of("digits").override(EPOCHS)
pytestmark = pytest.mark.filterwarnings(f"ignore::{ClusteringWarning.__module__}.ClusteringWarning")


class Scale(nn.Module):
    """A pretext task that reports what it was given."""

    def __init__(self, backbone, n_features, shape):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(n_features))
        self.shape = shape

    def forward(self, backbone, views, features, P):
        assert features.shape == (len(views) * len(views[0]), len(self.factor))
        assert P is None or P.shape == (len(views[0]), 3)
        return (features.float() * self.factor).var()


class Logged(ClusterStage):
    """A stage that notes when it has finished."""

    finished = 0

    def finish(self):
        type(self).finished += 1


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)


@pytest.fixture
def backbone():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def dpac(**parameters):
    return DPAC(3, recipe=RECIPE, device="cpu", random_state=0, **parameters)


def test_all_parts_of_ones_own_train_together_and_a_saved_model_predicts(
    images, backbone, tmp_path
):
    before = backbone[0].weight.clone()
    own = dpac(backbone=backbone, pretext=Scale, stages=[PretrainStage, Logged])
    finished, fitted = Logged.finished, clone(own).fit(images)
    assert Logged.finished == finished + 1
    assert fitted.features_.shape == (60, 16)
    assert fitted.model_.pretext.shape == (1, 8, 8)
    assert not torch.equal(fitted.model_.pretext.factor, torch.ones(16))
    assert torch.equal(backbone[0].weight, before)  # it was copied
    fitted.save(tmp_path / "own.safetensors")
    tensors, _ = read_safetensors(tmp_path / "own.safetensors", "probagg.dpac/1")
    assert not any(name.startswith("pretext") for name in tensors)
    with pytest.raises(InputError, match=r"backbone of its own, Sequential.*backbone=module"):
        DPAC.load(tmp_path / "own.safetensors")
    loaded = DPAC.load(tmp_path / "own.safetensors", backbone=backbone, device="cpu")
    np.testing.assert_array_equal(loaded.predict(images), fitted.labels_)
    loaded.save(tmp_path / "again.safetensors")
    with pytest.raises(InputError, match="backbone of its own"):
        DPAC.load(tmp_path / "again.safetensors")


def test_training_starts_from_the_weights_of_the_backbone(images, backbone):
    still = RECIPE.override(["cluster.epochs=0"])
    given = DPAC(3, recipe=still, backbone=backbone, stages=[ClusterStage], device="cpu")
    fitted = given.fit(images)
    assert torch.equal(fitted.model_.backbone[0].weight, backbone[0].weight)


def test_a_run_with_other_parts_is_not_resumed(images, backbone, tmp_path):
    stopped = dpac(pretext=Scale, out_dir=tmp_path, max_minutes=0)
    with pytest.raises(Interrupted):
        stopped.fit(images)
    with pytest.raises(CannotResume, match="pretext"):
        dpac(out_dir=tmp_path).fit(images)
    dpac(pretext=Scale, out_dir=tmp_path).fit(images)


@pytest.mark.parametrize("stages", [[ClusterStage, Logged], [nn.Module]])
def test_stages_have_the_names_of_the_tables_of_the_recipe(images, stages):
    with pytest.raises(InputError, match="different ones of pretrain, cluster and self_label"):
        dpac(stages=stages).fit(images)
