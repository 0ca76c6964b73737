"""On a GPU the recorded step trains like the eager one, and a run can be resumed."""

import sys

import numpy as np
import pytest
import torch
from faults import soak
from sklearn.datasets import load_digits

from probagg import DPAC, PAC, Recipe
from probagg.arrays import to_numpy
from probagg.dpac.self_labelling import SmoothedLabels
from probagg.dpac.stages import ClusterStage, PretrainStage
from probagg.errors import Interrupted
from probagg.metrics import clustering_accuracy

pytestmark = pytest.mark.gpu

SETTINGS = [
    "network.width=16", "pretrain.epochs=6", "cluster.epochs=6",
    "self_label.epochs=3", "pretrain.batch_size=200", "cluster.batch_size=200",
    "self_label.batch_size=200",
]  # fmt: skip


@pytest.fixture(scope="module")
def images():
    return np.round(load_digits().images * 255 / 16).astype(np.uint8)


def fit(images, settings=(), **options):
    losses = []

    def watch(progress):
        if progress.metrics:
            losses.append(progress.metrics["loss"])

    recipe = Recipe.of("digits").override([*SETTINGS, *settings])
    dpac = DPAC(10, recipe=recipe, random_state=0, progress=watch, **options).fit(images)
    return losses, dpac


def test_the_recorded_step_trains_like_the_cpu(images):
    """They differ by rounding only, so early losses agree closely."""
    gpu, _ = fit(images, device="cuda", precision="fp32")
    cpu, _ = fit(images, device="cpu")
    np.testing.assert_allclose(gpu[:4], cpu[:4], rtol=2e-3)
    np.testing.assert_allclose(gpu, cpu, rtol=0.1)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precisions_train_too(images, precision):
    losses, dpac = fit(images, device="cuda", precision=precision)
    full, _ = fit(images, device="cuda", precision="fp32")
    np.testing.assert_allclose(losses[5], full[5], rtol=0.05)
    assert np.isfinite(dpac.probabilities_).all()


def test_accumulated_parts_are_recorded_too(images):
    losses, _ = fit(images, ["pretrain.accumulate=2", "cluster.accumulate=2"], device="cuda")
    assert losses[5] < losses[0]


@pytest.mark.parametrize("task", ["moco", "byol", "autoencoder"])
def test_other_pretexts_are_recorded_too(images, task):
    settings = [f"pretext.task={task}", "pretext.queue_size=512"]
    if task == "byol":
        settings.append("pretext.prototypes=0.5")
    losses, _ = fit(images, settings, device="cuda")
    assert np.isfinite(losses).all()
    assert losses[5] < losses[0]


def test_a_stopped_run_resumes(images, tmp_path):
    whole, _ = fit(images, device="cuda", precision="fp32")
    with pytest.raises(Interrupted):
        fit(images, device="cuda", precision="fp32", out_dir=tmp_path, max_minutes=0.0)
    rest, _ = fit(images, device="cuda", precision="fp32", out_dir=tmp_path)
    np.testing.assert_allclose(rest[:4], whole[:4], rtol=2e-3)


@pytest.mark.parametrize("task", ["wcl", "byol"])
def test_a_compiled_step_trains_like_the_eager_one(images, task):
    settings = [f"pretext.task={task}", "cluster.epochs=0", "self_label.epochs=0"]
    eager, _ = fit(images, settings, device="cuda", compile=False)
    compiled, _ = fit(images, settings, device="cuda", compile=True)
    np.testing.assert_allclose(compiled[:3], eager[:3], rtol=1e-2)


def test_images_that_do_not_fit_are_streamed(images, monkeypatch):
    resident, _ = fit(images, device="cuda", precision="fp32")
    monkeypatch.setattr("probagg.dpac.feed.device_memory", lambda device: 0.0)
    streamed, _ = fit(images, device="cuda", precision="fp32")
    np.testing.assert_allclose(streamed[:4], resident[:4], rtol=2e-3)
    assert torch.cuda.is_available()


def reporting(kind):
    """Return a stage that prints the sizes of its clusters, epoch by epoch."""

    class Reporting(kind):
        def before_epoch(self, epoch):
            strata = super().before_epoch(epoch)
            self.report(f"before epoch {epoch}")
            return strata

        def finish(self):
            super().finish()
            X, _ = self.report("ends")
            for rows in (X.to(self.feed.device), X.numpy()):
                pac = PAC(5, metric="cosine", m=1.02, random_state=0).fit(rows)
                sizes = np.bincount(to_numpy(pac.labels_), minlength=5)
                sys.stdout.write(f"  PAC on a {type(rows).__name__}: {np.sort(sizes)}\n")

        def report(self, when):
            X, P = self.infer()
            sizes = np.sort(np.bincount(P.argmax(1), minlength=5))
            spread, confidence = X.std(0).mean(), P.amax(1).mean()
            line = f"{self.name} {when}: {sizes}, {confidence:.3f}, spread {spread:.4f}\n"
            sys.stdout.write(line)
            return X, P

    return Reporting


@pytest.mark.parametrize("way", ["as it is", "fp32", "plain", "cpu"])
def test_five_shapes_are_found(way, monkeypatch):
    """Of a failure it is printed where sizes first differ from those of other ways.

    "plain" records no step as a graph, and PAC uses no kernels of its own.
    """
    if way == "plain":
        monkeypatch.setattr("probagg.dpac.step.WARM_UP", -1)
        monkeypatch.setattr("probagg.pac.tensors.kernels", lambda: None)
    images = np.stack([soak.picture(number) for number in range(10_000)])[..., None].repeat(3, 3)
    epochs = ["pretrain.epochs=4", "cluster.epochs=4", "self_label.epochs=2"]
    dpac = DPAC(
        5,
        recipe=Recipe.of("own/fast").override([*soak.SETTINGS, *epochs]),
        stages=[reporting(kind) for kind in (PretrainStage, ClusterStage, SmoothedLabels)],
        device="cpu" if way == "cpu" else "cuda",
        precision="fp32" if way == "fp32" else "auto",
        random_state=0,
    ).fit(images)
    assert clustering_accuracy(np.arange(len(images)) % 5, dpac.labels_) > soak.AGREEMENT
