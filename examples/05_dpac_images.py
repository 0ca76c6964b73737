"""DPAC on images: train, judge the result without labels, use the model on new images.

A narrow network, few epochs and a start from PAC's clusters, to finish within a minute on a CPU;
the full recipe (`probagg cluster digits`) reaches about 96 %.
"""

import logging
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from probagg import DPAC, PAC, Recipe, clustering_accuracy

logging.getLogger("probagg").setLevel(logging.WARNING)
images, y = load_digits(return_X_y=True)
images = np.round(images * 255 / 16).astype(np.uint8).reshape(-1, 8, 8)
train, new = images[:1500], images[1500:]

recipe = Recipe.of("digits/fast").override(
    [
        "network.width=12",
        "pretrain.epochs=12",
        "cluster.start=pac",
        "cluster.epochs=6",
        "self_label.labels=neighbours",
        "self_label.epochs=4",
    ]
)


def show(progress):
    """Print a line when a stage ends; called after every step and epoch."""
    if progress.metrics and progress.epoch == progress.epochs:
        print(progress.stage, {name: round(v, 2) for name, v in progress.metrics.items()})


dpac = DPAC(10, recipe=recipe, random_state=0, progress=show).fit(train)
reading = dpac.diagnosis_
print(f"{reading.state}; sharpness {reading.sharpness:.2f}, largest cluster {reading.largest:.0%}")

# PAC on the same features for comparison; the labels are used for the scores only.
pac = PAC(10, metric="cosine", random_state=0).fit(dpac.features_)
for name, labels in (("DPAC", dpac.labels_), ("PAC on its features", pac.labels_)):
    print(f"{name}: ACC {100 * clustering_accuracy(y[:1500], labels):.1f}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.safetensors"
    dpac.save(path)
    labels = DPAC.load(path).predict(new)
print(f"297 new images: ACC {100 * clustering_accuracy(y[1500:], labels):.1f}")
