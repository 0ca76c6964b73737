"""A small network and pictures for the stages of training, on the CPU."""

import hashlib

import numpy as np
import torch

from probagg.dpac.engine import Engine, Machine
from probagg.dpac.feed import Feed, infer
from probagg.dpac.model import build_model
from probagg.dpac.recipe import Recipe
from probagg.dpac.stages import Setup, make_views
from probagg.dpac.step import Batch
from probagg.dpac.views import Views

K = 3
SMALL = [
    "network.backbone=convnet", "network.width=8", "network.classifier=[16]",
    "pretext.head=[16, 8]", "views.size=8", "pretrain.epochs=2", "pretrain.batch_size=20",
    "pretrain.warmup_epochs=0",
    "cluster.start=random", "cluster.space=features", "cluster.stratify=false",
    "cluster.balance=1.0", "cluster.backbone_gradient=1.0", "self_label.labels=classifier",
    "cluster.epochs=2", "cluster.batch_size=20", "self_label.epochs=2", "self_label.batch_size=20",
]  # fmt: skip


class Pictures:
    """Bright, dark and striped squares with noise."""

    def __init__(self, n=60, channels=3, seed=0):
        rng = np.random.default_rng(seed)
        self.y = np.arange(n) % K
        base = np.stack([np.full((8, 8), 200), np.full((8, 8), 40), np.tile([[40, 200]], (8, 4))])
        noise = rng.normal(0, 20, (n, 8, 8, channels))
        self.array = np.clip(base[self.y][..., None] + noise, 0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.array)

    def read(self, rows):
        return self.array[rows]


def weights_hash(module):
    """Return a digest of every weight and buffer, which is equal only if all bits are."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def setup_of(*settings, n=60):
    """What a stage works with, and one batch."""
    recipe = Recipe.of("cifar10").override([*SMALL, *settings])
    model = build_model(recipe, K).train()
    images = Pictures(n)
    rows = np.arange(20)
    batch = Batch(torch.from_numpy(images.array[rows]), torch.from_numpy(rows), torch.tensor(7))
    return Setup(model, Views(recipe.views), Feed(images, torch.device("cpu")), recipe), batch


def terms_of(stage, *settings):
    """The loss of a stage on one batch, and the same network's outputs for the transcription."""
    setup, batch = setup_of(*settings)
    model = setup.model
    stage = stage(setup)
    found = stage.loss(batch, stage.prepare(batch))
    clean, weak, strong = make_views(setup.views, ("clean", "weak", "strong"), batch)
    x = model.backbone(clean).detach()
    x1, x2 = model.backbone(torch.cat([weak, strong])).chunk(2)
    return setup.recipe, model, found, x, x1, x2


def infer_all(setup):
    return infer(setup.model, setup.views, setup.feed)


def train_with_a_stop(out, settings, make, stop_at=None):
    """Train one stage, go on from the checkpoint in `out` if there is one; return setup and stage.

    `stop_at` is an epoch and a step of it, after which the run is interrupted.
    """
    setup, _ = setup_of(*settings)

    def progress(where):
        if (where.epoch, where.step) == stop_at and where.metrics is None:
            engine.stop = "the test"

    engine = Engine(setup.model, seed=0, machine=Machine("cpu"), out=out, progress=progress)
    engine.resume()
    stage = make(setup)
    engine.train(stage)
    return setup, stage
