"""Near-duplicates that are made, and different photos that are taken for them.

    python -m benchmarks near_duplicates [NAME ...]      needs PROBAGG_DATA

Photos of each class are changed in several ways; the recall is the share of the copies that are
found to be one of their photo (`probagg.app.embed.duplicates`). What is found among the originals
is wrong, or a near-duplicate in the set: look at the groups. The rule was chosen on Imagenette, and
ImageNet-Dogs was not in view.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable

import numpy as np
from PIL import Image

from benchmarks.data import open_lab_images
from benchmarks.record import Cell, Row, record
from probagg.app.embed.duplicates import EQUAL_HASHES, PER_BIT, find_duplicates, similar_pairs
from probagg.app.embed.features import extract_features
from probagg.app.embed.opening import open_backbone
from probagg.data.images import ArrayImages

SETS = {"imagenette": 200, "imagenet-dogs": 100}  # photos that are changed


def encoded(image: Image.Image, quality: int) -> Image.Image:
    """Return the image as a JPEG of this quality has it."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def resized(image: Image.Image, side: int) -> Image.Image:
    """Return the image at another size."""
    return image.resize((side, side), Image.Resampling.BICUBIC)


def cropped(image: Image.Image, share: float) -> Image.Image:
    """Return the image without a margin on all sides, at its size."""
    n, margin = image.width, round(share * image.width)
    return resized(image.crop((margin, margin, n - margin, n - margin)), n)


def brighter(image: Image.Image, factor: float) -> Image.Image:
    """Return the image with all pixels scaled."""
    return image.point(lambda value: min(255, int(factor * value)))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG quality 40": lambda image: encoded(image, 40),
    "half the size": lambda image: resized(
        encoded(resized(image, image.width // 2), 88), image.width
    ),
    "5 % cropped on all sides": lambda image: encoded(cropped(image, 0.05), 88),
    "10 % cropped on all sides": lambda image: encoded(cropped(image, 0.1), 88),
    "brightness 1.25": lambda image: encoded(brighter(image, 1.25), 88),
    "brightness 0.75": lambda image: encoded(brighter(image, 0.75), 88),
}


def measure(name: str, n_photos: int) -> Row:
    """Return the recall of every change, and what is found among the originals of one set."""
    images = open_lab_images(name)
    photos, y = images.read(np.arange(len(images))), images.y
    generator, K = np.random.default_rng(0), int(y.max()) + 1
    each = -(-n_photos // K)
    places = [generator.permutation(np.flatnonzero(y == k))[:each] for k in range(K)]
    rows = np.sort(np.concatenate(places))[:n_photos]
    backbone = open_backbone("efficientnet-lite0")
    X = extract_features(ArrayImages(photos), backbone).X
    recall = {}
    for change, make in CHANGES.items():
        copies = np.stack([np.asarray(make(Image.fromarray(photos[row]))) for row in rows])
        both = ArrayImages(np.concatenate([photos[rows], copies]))
        Xc = np.concatenate([X[rows], extract_features(ArrayImages(copies), backbone).X])
        found = find_duplicates(Xc, both, [str(row) for row in range(len(both))])
        group_of = {row: number for number, group in enumerate(found) for row in group}
        n = len(rows)
        same = [row in group_of and group_of[row] == group_of.get(row + n) for row in range(n)]
        recall[change] = float(np.mean(same))
    found = find_duplicates(X, ArrayImages(photos), [str(row) for row in range(len(X))])
    candidates = np.concatenate([pairs for pairs, _ in similar_pairs(X)])
    values = {
        "recall": recall,
        "found_among_originals": sum(len(group) - 1 for group in found),
        "groups": found,
        "candidate_pairs": len(candidates),
        "candidate_photos": len(np.unique(candidates)),
    }
    rule = {"equal_hashes": EQUAL_HASHES, "per_bit": PER_BIT}
    settings = {"photos": len(X), "changed": len(rows), "rule": rule}
    return Cell(name, "find_duplicates").row(values | {"settings": settings})


def main() -> None:
    """Measure and record both sets."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    results = []
    for name in parser.parse_args().names or SETS:
        results.append(measure(name, SETS[name]))
        print(results[-1], flush=True)
    record("near_duplicates", results)
