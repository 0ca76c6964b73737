"""DPAC as users call it: arrays, folders and datasets in, labels and a model out."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError
from small_training import weights_hash

from probagg import DPAC, PAC, Recipe, clustering_accuracy
from probagg.data.images import ArrayImages
from probagg.data.opening import open_images
from probagg.dpac import dpac as module
from probagg.dpac import start
from probagg.dpac.checkpoint import CannotResume
from probagg.dpac.dpac import open_for
from probagg.dpac.model import FORMAT
from probagg.errors import ClusteringWarning, Interrupted
from probagg.estimators import draw_seed
from probagg.storage import read_safetensors, write_safetensors

QUICK = [
    "network.width=8", "pretrain.epochs=3", "pretrain.batch_size=128",
    "cluster.epochs=4", "cluster.batch_size=128", "self_label.epochs=2",
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
        return DPAC(10, recipe=quick(), random_state=0, device="cpu").fit(images[:300])


def test_a_fitted_dpac_has_its_documented_attributes(fitted, images):
    assert fitted.labels_.shape == (300,)
    assert fitted.labels_.dtype == fitted.predict(images[:3]).dtype == np.int64
    assert fitted.probabilities_.shape == (300, 10)
    np.testing.assert_allclose(fitted.probabilities_.sum(1), 1.0, atol=1e-5)
    assert len(fitted.features_) == 300
    np.testing.assert_array_equal(fitted.labels_, fitted.probabilities_.argmax(1))
    assert fitted.diagnosis_.state


def test_predict_on_the_training_images_gives_their_labels(fitted, images):
    np.testing.assert_array_equal(fitted.predict(images[:300]), fitted.labels_)
    np.testing.assert_allclose(fitted.transform(images[:300]), fitted.features_, atol=1e-5)


def test_the_result_of_an_image_does_not_depend_on_the_others(fitted, images):
    alone = np.concatenate([fitted.predict_proba(images[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, fitted.probabilities_[:20], atol=1e-5)


@pytest.mark.parametrize("source", ["fitted", "loaded"])
def test_threads_may_predict_at_the_same_time(fitted, images, tmp_path, source):
    """Predictions leave the mode and the batch norm statistics of the network as they are."""
    if source == "loaded":
        fitted.save(tmp_path / "model.safetensors")
        fitted = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    with ThreadPoolExecutor(4) as pool:
        for P in pool.map(fitted.predict_proba, [images[:50]] * 40):
            np.testing.assert_allclose(P, fitted.predict_proba(images[:50]), atol=1e-6)
    assert not fitted.model_.training


def test_a_saved_model_predicts_the_same(fitted, images, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    loaded = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(images[:50]), fitted.probabilities_[:50])
    assert loaded.recipe_ == fitted.recipe_


@pytest.mark.usefixtures("quick_heads")
def test_the_network_holds_only_weights(images, tmp_path):
    """Pseudo-labels belong to their stage, so models of any recipe load."""
    recipe = quick("self_label.labels=neighbours", "cluster.epochs=1", "pretrain.epochs=1")
    fitted = DPAC(5, recipe=recipe, random_state=0, device="cpu").fit(images[:200])
    assert not any(200 in tensor.shape for tensor in fitted.model_.state_dict().values())
    fitted.save(tmp_path / "model.safetensors")
    loaded = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict(images[:200]), fitted.labels_)


def test_a_channels_last_model_is_saved_correctly(fitted, images, tmp_path):
    """On a GPU weights are channels-last, and safetensors stores memory as it lies."""
    fitted.model_.to(memory_format=torch.channels_last)
    fitted.save(tmp_path / "model.safetensors")
    fitted.model_.to(memory_format=torch.contiguous_format)
    loaded = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_allclose(loaded.predict_proba(images[:50]), fitted.probabilities_[:50])


def test_a_time_limit_without_a_folder_is_an_error_before_training(images):
    """What was trained until then would be lost."""
    with pytest.raises(ValueError, match=r"max_minutes=5 .* Pass out_dir"):
        DPAC(4, recipe=quick(), device="cpu", max_minutes=5).fit(images[:200])


def test_the_seed_is_drawn_as_by_the_other_estimators(images):
    """Also the largest one, which two ways of drawing disagreed on."""

    def generator():
        kind, words, *_ = np.random.RandomState(0).get_state()
        words[0] = 0x92CDB9B7  # the word from which 2^31 - 1 is drawn
        state = np.random.RandomState(0)
        state.set_state((kind, words, 0))
        return state

    assert draw_seed(generator()) == 2**31 - 1
    dpac = DPAC(4, recipe=quick(), device="cpu", random_state=generator())
    assert dpac._plan(images[:200]).seed == 2**31 - 1


@pytest.mark.parametrize("state", [None, np.random.RandomState(3)])
def test_a_run_that_was_not_seeded_by_an_int_resumes_with_its_own_seed(tmp_path, images, state):
    """A RandomState draws another seed at each call, which must not be a reason to refuse."""
    recipe = quick("pretrain.epochs=2", "cluster.epochs=1", "self_label.epochs=0")
    options = {"recipe": recipe, "device": "cpu", "out_dir": tmp_path, "random_state": state}
    with pytest.raises(Interrupted):
        DPAC(4, max_minutes=0.0, **options).fit(images[:200])
    dpac = DPAC(4, **options)
    dpac.check(images[:200])
    first = dpac.fit(images[:200]).probabilities_
    np.testing.assert_array_equal(dpac.fit(images[:200]).probabilities_, first)
    with pytest.raises(CannotResume, match="seed was"):
        DPAC(4, **options | {"random_state": 0}).fit(images[:200])


@pytest.mark.usefixtures("quick_heads")
@pytest.mark.parametrize("labels", ["classifier", "neighbours"])
def test_fitting_again_on_a_finished_out_dir_loads_its_result(tmp_path, images, labels):
    """Self-labelling changes the head after its last epoch; that is saved too."""
    recipe = quick(f"self_label.labels={labels}", "cluster.epochs=2", "pretrain.epochs=2")
    options = {"recipe": recipe, "random_state": 0, "device": "cpu", "out_dir": tmp_path}
    first = DPAC(np.int64(4), **options).fit(images[:200])

    def fail(progress):
        raise AssertionError(f"{progress} was trained again")

    again = DPAC(4, progress=fail, **options).fit(images[:200])
    np.testing.assert_array_equal(again.probabilities_, first.probabilities_)
    assert weights_hash(again.model_) == weights_hash(first.model_)


def test_checking_estimating_and_fitting_open_and_build_once(images, tmp_path, monkeypatch):
    calls = []

    def counted(name, function):
        return lambda *args, **kwargs: calls.append(name) or function(*args, **kwargs)

    monkeypatch.setattr(module, "build_model", counted("build", module.build_model))
    monkeypatch.setattr(module, "open_images", counted("open", module.open_images))
    monkeypatch.setattr(ArrayImages, "fingerprint", counted("fingerprint", ArrayImages.fingerprint))
    recipe = quick("pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=0")
    dpac, few = DPAC(4, recipe=recipe, device="cpu", out_dir=tmp_path), images[:100]
    dpac.check(few)
    dpac.fit(few)
    assert sorted(calls) == ["build", "fingerprint", "open"]


def test_a_saved_model_whose_recipe_has_unknown_keys_is_refused(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    arrays, description = read_safetensors(path, FORMAT)
    description["recipe"] += "keep_losses = true\n"  # in [self_label]
    write_safetensors(path, FORMAT, arrays, description)
    with pytest.raises(ValueError, match="keep_losses"):
        DPAC.load(path, device="cpu")


def test_parameters_set_after_fit_do_not_change_a_saved_model(fitted, images, tmp_path):
    fitted.set_params(n_clusters=3).save(tmp_path / "model.safetensors")
    fitted.set_params(n_clusters=10)
    loaded = DPAC.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict(images[:50]), fitted.labels_[:50])


def test_labels_are_never_used(images, digits):
    recipe = quick("pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=1")
    a, b = (
        DPAC(10, recipe=recipe, random_state=0, device="cpu").fit(images[:200], y)
        for y in (None, digits[1][:200])
    )
    np.testing.assert_array_equal(a.probabilities_, b.probabilities_)


def test_clone_and_parameters():
    dpac = DPAC(7, recipe="digits", random_state=3)
    assert clone(dpac).get_params() == dpac.get_params()


def test_a_dpac_that_has_checked_images_is_pickled_without_them(images):
    dpac = DPAC(10, recipe=quick(), random_state=0, device="cpu")
    before = len(pickle.dumps(dpac))
    dpac.check(list(images[:100]))  # as a Dataset, which is read under a lock
    assert len(pickle.dumps(dpac)) <= before + 100


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "batch"), [(1, 1000), (3, 64)])
def test_300_images_are_clustered(channels, batch):
    """Small sets, greyscale images, and batches larger than the set work."""
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


def test_a_folder_and_a_dataset_are_clustered_like_an_array(tmp_path, images):
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


@pytest.mark.parametrize("labels", ["memory", "classifier", "neighbours"])
def test_known_images_keep_their_cluster_and_others_follow(
    images, digits, labels, tmp_path, monkeypatch
):
    """Cluster k is class k; a stopped run goes on to the same bits, and only with these labels."""
    monkeypatch.setattr(start, "LINEAR_STEPS", 500)
    y = digits[1][:200]
    known = np.where(np.arange(200) < 60, y, -1)
    epochs = "pretrain.epochs=2", "cluster.epochs=2", "self_label.epochs=2"
    recipe = quick("cluster.start=pac", f"self_label.labels={labels}", *epochs)
    options = {"recipe": recipe, "random_state": 0, "device": "cpu"}
    whole = DPAC(10, **options).fit(images[:200], known_labels=known)
    np.testing.assert_array_equal(whole.labels_[:60], y[:60])
    without = DPAC(10, **options).fit(images[:200]).labels_[60:]
    assert (whole.labels_[60:] == y[60:]).mean() > clustering_accuracy(y[60:], without) + 0.05
    options["out_dir"] = tmp_path
    with pytest.raises(Interrupted):
        DPAC(10, max_minutes=0.0, **options).fit(images[:200], known_labels=known)
    with pytest.raises(CannotResume, match="known_labels was"):
        DPAC(10, **options).fit(images[:200])
    again = DPAC(10, **options).fit(images[:200], known_labels=known)
    np.testing.assert_array_equal(again.probabilities_, whole.probabilities_)


def test_wrong_known_labels_are_an_error_before_training(images):
    with pytest.raises(ValueError, match="one whole number for each of the 40 rows"):
        DPAC(4, recipe=quick(), device="cpu").check(images[:40], known_labels=np.zeros(3, int))


def test_a_run_that_was_stopped_resumes(tmp_path, images):
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
        (10, 8, "10 images are too few for 8 clusters"),
        (10, 1, r"'n_clusters' parameter of DPAC must be an int in the range \[2, inf\). Got 1"),
        (10, 3.0, r"'n_clusters' parameter of DPAC must be an int in the range \[2, inf\)"),
    ],
)
def test_impossible_numbers_are_errors(images, n, k, words):
    with pytest.raises(ValueError, match=words):
        DPAC(k, recipe=quick(), device="cpu").fit(images[:n])


@pytest.mark.parametrize(
    ("name", "value"),
    [("recipe", 3), ("device", 3), ("precision", "fp8"), ("compile", "yes"), ("out_dir", 3),
     ("max_minutes", -1), ("random_state", "zero"), ("progress", "loud")],
)  # fmt: skip
def test_parameters_are_validated_as_in_scikit_learn(images, name, value):
    with pytest.raises(InvalidParameterError, match=f"The {name!r} parameter of DPAC must be"):
        DPAC(4, **{"recipe": quick(), "device": "cpu", name: value}).fit(images[:20])


def test_photos_are_read_at_the_size_of_the_recipe(tmp_path):
    """From a folder or a file; what is open already stays."""
    from PIL import Image

    recipe = Recipe.of("imagenet10")
    Image.new("RGB", (150, 120), "red").save(tmp_path / "a.jpeg")
    for source in (tmp_path, str(tmp_path), tmp_path / "a.jpeg"):
        data = open_for(source, recipe)
        assert data.size == (recipe.decode_size, recipe.decode_size) == (109, 109)
        assert data.read(np.arange(1)).shape == (1, 109, 109, 3)
    assert open_for(tmp_path, recipe.override(["channels=1"])).channels == 1
    assert open_for(open_images(tmp_path, size=64), recipe).size == (64, 64)
    assert open_for("digits", recipe).size == (8, 8)


def test_the_wrong_channels_are_an_error(fitted):
    with pytest.raises(ValueError, match=r"with 1 channel\(s\), but these have 3"):
        fitted.predict(np.zeros((2, 8, 8, 3), np.uint8))


def test_m_above_the_critical_value_warns_before_training(images):
    recipe = quick("cluster.m=3.0", "pretrain.epochs=0", "cluster.epochs=1", "self_label.epochs=0")
    with pytest.warns(ClusteringWarning, match=r"m=3 is at or above the critical value"):
        DPAC(4, recipe=recipe, random_state=0, device="cpu").fit(images[:100])


def test_pac_takes_dpacs_features(images):
    """The command line prints it beside DPAC's own result."""
    recipe = quick("pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=0")
    features = DPAC(4, recipe=recipe, random_state=0, device="cpu").fit(images[:100]).features_
    assert len(np.unique(PAC(4, metric="cosine", random_state=0).fit(features).labels_)) > 1


@pytest.mark.usefixtures("quick_heads")
@pytest.mark.parametrize("n", [20, 60])
def test_a_few_images_train_with_the_recipe_for_own_photos(images, n):
    """It starts from PAC and uses stratified batches; only epochs and network are smaller here."""
    short = [f"{stage}.epochs=2" for stage in ("pretrain", "cluster", "self_label")]
    recipe = Recipe.of("own/fast").override([*short, "network.backbone=convnet", "network.width=8"])
    dpac = DPAC(3, recipe=recipe, random_state=0, device="cpu").fit(images[:n])
    assert dpac.probabilities_.shape == (n, 3)
    assert np.isfinite(dpac.probabilities_).all()
    assert dpac.diagnosis_.state != "uniform"
