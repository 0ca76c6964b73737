"""Features of Table 3: one row per image, from networks that are trained already.

    cifar10         $PROBAGG_DATA/cifar10_simclr.npz, or cifar10.npz in $PROBAGG_FEATURES
    cifar10-byol    cifar10-byol.npz in $PROBAGG_FEATURES (X and y, as `python -m
                    benchmarks training --features` writes them)
    cifar100-20     cifar100-20.npz in $PROBAGG_FEATURES
    imagenette      EfficientNet-Lite0 on photos of 96 pixels, kept in runs/features/
    imagenet-dogs   the same

The paper's features are of SimCLR on each set. EfficientNet-Lite0 was trained with ImageNet's
labels, so its rows compare methods with each other, not with the paper.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks import ROOT
from benchmarks.data import open_lab_images
from probagg.errors import NoData

KEPT = ROOT / "runs" / "features"
PHOTOS = ("imagenette", "imagenet-dogs")
BACKBONE = "efficientnet-lite0"


def load_features(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return features and classes of a set, and where the features are from."""
    if (given := _folder("PROBAGG_FEATURES") / f"{name}.npz").is_file():
        return *_read(given), given.name
    packed = _folder("PROBAGG_DATA") / f"{name}_simclr.npz"
    if packed.is_file():
        return *_read(packed), packed.name
    if name not in PHOTOS:
        raise NoData(
            f"{name!r} needs {name}.npz with X and y in the folder that PROBAGG_FEATURES names. "
            "python -m benchmarks training --stages pretrain --features writes such a file."
        )
    path = KEPT / f"{name}.npz"
    if not path.is_file():
        _embed_photos(name, path)
    return *_read(path), BACKBONE


def _folder(variable: str) -> Path:
    return Path(os.environ.get(variable) or "missing").expanduser()


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as arrays:
        return arrays["X"].astype(np.float32), arrays["y"]


def _embed_photos(name: str, path: Path) -> None:
    """Write the features of a set of photos."""
    from probagg.app.embed import extract_features, open_backbone

    images = open_lab_images(name)
    features = extract_features(images, open_backbone(BACKBONE))
    assert images.y is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, X=features.X, y=np.asarray(images.y)[features.rows])
