"""DPAC as users call it: arrays, folders and datasets in, labels and a model out."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone

from probagg import DPAC, PAC, Recipe, clustering_accuracy
from probagg.dpac.engine import CannotResume
from probagg.errors import ClusteringWarning, Interrupted

QUICK = [
    "network.width=16", "pretrain.epochs=8", "pretrain.batch_size=128",
    "cluster.epochs=10", "cluster.batch_size=128", "self_label.epochs=4",
    "self_label.batch_size=128",
]  # fmt: skip


def quick(*settings):
    return Recipe.of("digits").override([*QUICK, *settings])


@pytest.fixture(scope="module")
def images(digits):
    return np.round(digits[0] * 255 / 16).astype(np.uint8).reshape(-1, 8, 8)


@pytest.fixture(scope="module")
def fitted(images):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusteringWarning)
        return DPAC(10, recipe=quick(), random_state=0, device="cpu").fit(images[:600])


def test_a_fitted_dpac_has_what_it_promises(fitted):
    assert fitted.labels_.shape == (600,)
    assert fitted.probabilities_.shape == (600, 10)
    np.testing.assert_allclose(fitted.probabilities_.sum(1), 1.0, atol=1e-5)
    assert len(fitted.features_) == 600
    np.testing.assert_array_equal(fitted.labels_, fitted.probabilities_.argmax(1))
    assert fitted.diagnosis_.state


def test_predict_on_the_training_images_gives_their_labels(fitted, images):
    np.testing.assert_array_equal(fitted.predict(images[:600]), fitted.labels_)
    np.testing.assert_allclose(fitted.transform(images[:600]), fitted.features_, atol=1e-5)


def test_an_images_result_does_not_depend_on_its_neighbours(fitted, images):
    alone = np.concatenate([fitted.predict_proba(images[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, fitted.probabilities_[:20], atol=1e-5)


def test_a_saved_model_predicts_the_same(fitted, images, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    loaded = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(images[:50]), fitted.probabilities_[:50])
    assert loaded.recipe_ == fitted.recipe_


@pytest.mark.parametrize("setting", ["cluster.targets=kmeans", "self_label.labels=neighbours"])
def test_rows_of_training_images_are_not_saved_with_the_model(setting, images, tmp_path):
    recipe = quick(setting, "cluster.epochs=1", "pretrain.epochs=1")
    fitted = DPAC(5, recipe=recipe, random_state=0, device="cpu").fit(images[:200])
    fitted.save(tmp_path / "model.safetensors")
    loaded = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict(images[:200]), fitted.labels_)


def test_a_channels_last_model_is_saved_as_it_is(fitted, images, tmp_path):
    """On a GPU weights lie channels-last, and safetensors stores memory as it lies."""
    fitted.model_.to(memory_format=torch.channels_last)
    fitted.save(tmp_path / "model.safetensors")
    fitted.model_.to(memory_format=torch.contiguous_format)
    loaded = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_allclose(loaded.predict_proba(images[:50]), fitted.probabilities_[:50])


def test_a_compact_model_is_a_folder_and_predicts_nearly_the_same(fitted, images, tmp_path):
    fitted.save(tmp_path / "model", compact=True)
    loaded = DPAC.load(tmp_path / "model", device="cpu")
    found = loaded.predict_proba(images[:100])
    np.testing.assert_allclose(found, fitted.probabilities_[:100], atol=0.1)


def test_an_unfinished_run_without_a_seed_goes_on_with_its_own(tmp_path, images):
    recipe = quick("pretrain.epochs=2", "cluster.epochs=1", "self_label.epochs=0")
    with pytest.raises(Interrupted):
        DPAC(4, recipe=recipe, device="cpu", out_dir=tmp_path, max_minutes=0.0).fit(images[:200])
    DPAC(4, recipe=recipe, device="cpu", out_dir=tmp_path).fit(images[:200])


def test_parameters_set_later_do_not_change_a_saved_model(fitted, images, tmp_path):
    fitted.set_params(n_clusters=3).save(tmp_path / "model.safetensors")
    fitted.set_params(n_clusters=10)
    loaded = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict(images[:50]), fitted.labels_[:50])


def test_labels_are_never_looked_at(images, digits):
    recipe = quick("pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=1")
    a, b = (
        DPAC(10, recipe=recipe, random_state=0, device="cpu").fit(images[:200], y)
        for y in (None, digits[1][:200])
    )
    np.testing.assert_array_equal(a.probabilities_, b.probabilities_)


def test_clone_and_parameters():
    dpac = DPAC(7, recipe="digits", random_state=3)
    assert clone(dpac).get_params() == dpac.get_params()


@pytest.mark.parametrize(("channels", "batch"), [(1, 1000), (3, 64)])
def test_300_images_leave_uniform(channels, batch):
    """Small sets, greyscale, and batches larger than the set just work."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    shapes = np.zeros((3, 16, 16), np.uint8)
    shapes[0, 4:12, 4:12], shapes[1, 7:9], shapes[2, :, ::2] = 220, 220, 220
    images = shapes[y][..., None] + rng.integers(0, 30, (300, 16, 16, channels), dtype=np.uint8)
    recipe = Recipe.of("own").override(
        ["network.backbone=convnet", "network.width=16", "network.classifier=[64]",
         "pretext.head=[64, 32]", "pretrain.epochs=30", "cluster.epochs=60",
         "self_label.epochs=20", "pretrain.warmup_epochs=2",
         *(f"{stage}.batch_size={batch}" for stage in ("pretrain", "cluster", "self_label"))]
    )  # fmt: skip
    losses = {}

    def watch(progress):
        if progress.metrics:
            losses.setdefault(progress.stage, []).append(progress.metrics["loss"])

    dpac = DPAC(3, recipe=recipe, random_state=0, device="cpu", progress=watch).fit(images)
    assert losses["pretrain"][-1] < losses["pretrain"][0]
    assert losses["cluster"][-1] < losses["cluster"][0]
    assert dpac.diagnosis_.state == "clustering"
    assert dpac.diagnosis_.sharpness > 0.7
    assert clustering_accuracy(y, dpac.labels_) > 0.9


def test_a_folder_and_a_dataset_are_sets_of_images(tmp_path, images):
    from PIL import Image

    for i, image in enumerate(images[:40]):
        Image.fromarray(np.kron(image, np.ones((2, 2), np.uint8))).save(tmp_path / f"{i:02}.png")
    recipe = quick("pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=0")
    folder = DPAC(4, recipe=recipe, random_state=0, device="cpu").fit(tmp_path)
    assert folder.labels_.shape == (40,)

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, i):
            return torch.from_numpy(images[i]), i % 2

    dataset = DPAC(4, recipe=recipe, random_state=0, device="cpu").fit(Pairs())
    array = DPAC(4, recipe=recipe, random_state=0, device="cpu").fit(images[:40])
    np.testing.assert_array_equal(dataset.probabilities_, array.probabilities_)


def test_a_run_that_was_stopped_goes_on(tmp_path, images):
    recipe = quick("pretrain.epochs=2", "cluster.epochs=2", "self_label.epochs=1")
    whole = DPAC(4, recipe=recipe, random_state=0, device="cpu").fit(images[:200])
    with pytest.raises(Interrupted):
        DPAC(4, recipe=recipe, random_state=0, device="cpu", out_dir=tmp_path, max_minutes=0.0).fit(
            images[:200]
        )
    rest = DPAC(4, recipe=recipe, random_state=0, device="cpu", out_dir=tmp_path)
    np.testing.assert_array_equal(rest.fit(images[:200]).probabilities_, whole.probabilities_)
    with pytest.raises(CannotResume, match="data was"):
        rest.fit(images[:201])


@pytest.mark.parametrize(
    ("n", "k", "words"),
    [
        (10, 8, "10 images and 8 clusters"),
        (10, 1, "at least 2 clusters"),
        (10, 3.0, "n_clusters is 3.0, but an integer"),
    ],
)
def test_impossible_numbers_are_said(images, n, k, words):
    with pytest.raises(ValueError, match=words):
        DPAC(k, recipe=quick(), device="cpu").fit(images[:n])


def test_the_wrong_channels_are_said(fitted):
    with pytest.raises(ValueError, match="trained on images of 1 channels, but these have 3"):
        fitted.predict(np.zeros((2, 8, 8, 3), np.uint8))


def test_m_above_the_critical_value_warns_before_training(images):
    recipe = quick("cluster.m=3.0", "pretrain.epochs=0", "cluster.epochs=1", "self_label.epochs=0")
    with pytest.warns(ClusteringWarning, match=r"m=3 is at or above the critical value"):
        DPAC(4, recipe=recipe, random_state=0, device="cpu").fit(images[:100])


def test_pac_takes_dpacs_features(images):
    """The second opinion that the command line prints."""
    recipe = quick("pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=0")
    features = DPAC(4, recipe=recipe, random_state=0, device="cpu").fit(images[:100]).features_
    assert len(np.unique(PAC(4, metric="cosine", random_state=0).fit(features).labels_)) > 1


def test_an_estimate_grows_with_the_epochs(images):
    """The same network is timed, so a hundred times the epochs are far more seconds."""
    short = DPAC(10, recipe=quick(), device="cpu").estimate(images)
    epochs = [f"{stage}.epochs=1000" for stage in ("pretrain", "cluster", "self_label")]
    assert 0 < 10 * short < DPAC(10, recipe=quick(*epochs), device="cpu").estimate(images)


@pytest.mark.parametrize("n", [20, 60])
def test_a_users_own_few_images_train_with_the_recipe_for_them(images, n):
    """As it is but for length and network: from PAC, in stratified batches."""
    short = [f"{stage}.epochs=2" for stage in ("pretrain", "cluster", "self_label")]
    recipe = Recipe.of("own/fast").override([*short, "network.backbone=convnet", "network.width=8"])
    dpac = DPAC(3, recipe=recipe, random_state=0, device="cpu").fit(images[:n])
    assert dpac.probabilities_.shape == (n, 3)
    assert np.isfinite(dpac.probabilities_).all()
    assert dpac.diagnosis_.state != "uniform"
