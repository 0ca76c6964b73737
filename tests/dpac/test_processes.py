"""Two gloo processes train like one process with the joined batch."""

import json

import numpy as np
import pytest
from processes import run_two
from sklearn.datasets import load_digits

from probagg import DPAC, Recipe

SETTINGS = [
    "network.backbone=convnet", "network.width=8", "network.norm=group", "views.size=8",
    "network.classifier=[16]", "pretext.head=[16, 8]", "cluster.m=1.1",
    "pretrain.epochs=4", "pretrain.batch_size=24", "pretrain.learning_rate=0.001",
    "pretrain.warmup_epochs=1", "cluster.epochs=4", "cluster.batch_size=24",
    "self_label.epochs=3", "self_label.batch_size=24", "self_label.confidence=0.12",
    "pretrain.weight_decay=0.01", "cluster.stratify=true",
]  # fmt: skip


def fit(out, settings):
    images = (load_digits().images[:60] * 15.9).astype(np.uint8)
    recipe = Recipe.of("digits").override([*SETTINGS, *settings])
    known = np.where(np.arange(60) < 6, np.arange(60) % 3, -1)
    dpac = DPAC(3, recipe=recipe, out_dir=out, random_state=0, device="cpu")
    return dpac.fit(images, known_labels=known)


def worker(rank, out, settings):
    fitted = fit(out, settings)
    np.save(out / f"probabilities-{rank}.npy", fitted.probabilities_)


def records(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").open()]


@pytest.mark.parametrize(
    ("settings", "within", "at_the_end"),
    [
        (["cluster.start=random"], 1e-4, 1e-3),
        pytest.param(
            ["pretext.task=byol", "pretext.prototypes=0.5"], 1e-4, 1e-3, marks=pytest.mark.slow
        ),
        pytest.param(["self_label.labels=neighbours"], 1e-4, 1e-3, marks=pytest.mark.slow),
        pytest.param(
            ["cluster.start=pac", "cluster.epochs=1", "self_label.epochs=0"],
            0.1,
            None,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["classifier", "byol", "neighbours", "pac"],
)
def test_two_processes_have_the_losses_of_one(tmp_path, settings, within, at_the_end):
    """Views depend on the sample, losses on the global batch, gradients are averaged.

    Fitting the classifier to PAC's clusters amplifies the rounding of the features, so only the
    losses of its first epoch are compared.
    """
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    alone = fit(one, settings)
    run_two(worker, two, settings)
    for a, b in zip(records(one), records(two), strict=True):
        assert (a["stage"], a["epoch"]) == (b["stage"], b["epoch"])
        for name in set(a) - {"stage", "epoch", "step", "seconds", "images_per_second"}:
            bound = 1e-4 if a["stage"] == "pretrain" else within
            assert abs(a[name] - b[name]) < bound, (name, a, b)
    both = [np.load(two / f"probabilities-{rank}.npy") for rank in (0, 1)]
    np.testing.assert_array_equal(*both)
    if at_the_end is not None:
        np.testing.assert_allclose(both[0], alone.probabilities_, atol=at_the_end)
