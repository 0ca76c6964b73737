"""DPAC on images: train, judge the result without labels, use the model on new images.

A narrow network, few epochs and a start from PAC's clusters, to finish within a minute on a CPU;
the full recipe (`probagg cluster digits`) reaches about 96 %. Draws 05_dpac_images.png (needs
matplotlib).
"""

import logging
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
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

sure, rows = dpac.probabilities_.max(axis=1), []
for k in range(10):
    members = np.flatnonzero(dpac.labels_ == k)
    members = members[np.argsort(-sure[members])]
    shown = [*train[members[:8]], *train[members[-4:]]]
    shown += [np.zeros((8, 8), np.uint8)] * (12 - len(shown))  # where a cluster has few images
    rows.append(np.hstack([np.pad(image, 1) for image in shown]))
figure, axis = plt.subplots(figsize=(5, 4.3))
axis.imshow(np.vstack(rows), cmap="gray_r")
axis.axvline(8 * 10 - 0.5, color="tab:red", linewidth=1)
axis.set(title="one cluster per row: most and least certain", xticks=[], yticks=[])
figure.tight_layout()
figure.savefig("05_dpac_images.png", dpi=72)
