"""Groups of almost identical photos: similar features, confirmed by a hash of the pixels."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from probagg.app.embed.backbone import Backbone
from probagg.app.embed.features import extract_features, pictures_of
from probagg.arrays import chunks, unit_rows
from probagg.data.images import ArrayImages, FolderImages, ImageSet
from probagg.data.photo import BadImage, open_photo, pillow
from probagg.errors import NoData
from probagg.progress import Progress

if TYPE_CHECKING:
    from PIL.Image import Image

# Two photos are near-duplicates if the cosine of their features is at least 0.6 and 0.01 for each
# of the 128 bits in which their hashes differ: benchmarks/results/near_duplicates/full.json.
COSINE = 0.7  # hashes are compared from here on
EQUAL_HASHES, PER_BIT = 0.6, 0.01
PIECE = 2**17  # pairs whose hashes are compared at a time
BLOCK = 4096  # rows of features compared at a time
SIDE = 8  # the hash compares places of an 8 x 8 grid
BITS = 2 * SIDE * SIDE
VIEW = 256  # pixels of the longer side at which sharpness is compared
SHARP = 0.9  # the share of the highest sharpness from which on photos are sharp
MOST = 10  # candidates per photo in a block; with more on average, each keeps its nearest


def find_duplicates(
    X: np.ndarray,
    images: ImageSet,
    names: Sequence[str],
    progress: Progress | None = None,
    blank: Collection[str] = (),
) -> list[list[int]]:
    """Return groups of near-duplicates among the images of these names in the set, by their rows.

    X are their features. Photos of one scene have similar features too, so their pixels decide.
    Every member of a group matches its representative, which is the first. Pixels of one colour
    say nothing: `blank` images match only exact copies.
    """
    found = list(similar_pairs(X, progress))
    pairs = np.concatenate([pairs for pairs, _ in found])
    cosine = np.concatenate([cosine for _, cosine in found])
    involved, ends = np.unique(pairs, return_inverse=True)
    bits = hashes(images, [names[row] for row in involved])
    differ = differing(bits, ends.reshape(-1, 2))
    alike = pairs[cosine >= EQUAL_HASHES + PER_BIT * differ]
    if blank:
        alike = alike[_are_exact_where_blank(alike, images, names, blank)]
    representative = stars(alike, [len(name) for name in names])
    groups = {row: [row] for row in np.flatnonzero(np.bincount(representative) > 1).tolist()}
    for row, first in enumerate(representative.tolist()):
        if row != first:
            groups[first].append(row)
    return list(groups.values())


def similar_pairs(
    X: np.ndarray, progress: Progress | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of rows (n, 2), the lower one first, and their cosines, where these are high."""
    U = unit_rows(X)
    for top in range(0, len(U), BLOCK):
        for left in range(top, len(U), BLOCK):
            S = U[top : top + BLOCK] @ U[left : left + BLOCK].T
            if left == top:
                S[np.tril_indices(len(S))] = -1.0
            close = S >= COSINE
            if close.sum() > MOST * len(S):
                close &= np.partition(S, -MOST, axis=1)[:, -MOST, None] <= S
            yield np.argwhere(close) + np.array([top, left]), S[close]
        if progress and len(U) > BLOCK:
            progress(min(top + BLOCK, len(U)), len(U))


def difference_hash(image: Image) -> np.ndarray:
    """Return 128 bits as 0 and 1: in an 8 x 8 grid, is the next place right, and below, brighter?

    They hardly depend on size, compression, brightness and contrast.
    """
    box, grey = pillow().Resampling.BOX, image.convert("L")
    wide = np.asarray(grey.resize((SIDE + 1, SIDE), box), int)
    high = np.asarray(grey.resize((SIDE, SIDE + 1), box), int)
    bits = [wide[:, 1:] > wide[:, :-1], high[1:] > high[:-1]]
    return np.concatenate(bits, axis=None).astype(np.float32)


# As a backbone, so that `extract_features` reads ahead and caches the hashes by content.
HASHES = Backbone(
    name="difference hash",
    identity="difference-hash/1",
    transform=difference_hash,
    network=lambda bits: bits,
    n_features=BITS,
    size=SIDE,
    resize=2 * SIDE,
    mean=(0.0, 0.0, 0.0),
    std=(1.0, 1.0, 1.0),
)


def hashes(images: ImageSet, names: Sequence[str]) -> np.ndarray:
    """Return the difference hash of each image, (n, bits); NaN where it can no longer be read."""
    bits = np.full((len(names), HASHES.n_features), np.nan, np.float32)
    if not names:
        return bits
    with contextlib.suppress(NoData):
        found = extract_features(_images_of(images, names), HASHES)
        bits[found.rows] = found.X
    return bits


def _images_of(images: ImageSet, names: Sequence[str]) -> ImageSet:
    if isinstance(images, FolderImages):
        return FolderImages(images.folder, images.size[0], paths=list(names))
    return ArrayImages(images.read(np.array(names, int)))


def _are_exact_where_blank(
    pairs: np.ndarray, images: ImageSet, names: Sequence[str], blank: Collection[str]
) -> np.ndarray:
    """Return of each pair whether its images are not blank, or have the same content."""
    is_blank = np.array([name in blank for name in names], bool)
    good = ~is_blank[pairs].any(1)
    rows, ends = np.unique(pairs[~good], return_inverse=True)
    if len(rows):
        these = pictures_of(_images_of(images, [names[row] for row in rows]), None)
        digests = [item.digest for item in these.items(np.arange(len(rows)))]
        good[~good] = [digests[a] == digests[b] for a, b in ends.reshape(-1, 2).tolist()]
    return good


def differing(bits: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return in how many bits the two rows of each pair differ; NaN where one is unknown."""
    some = (pairs[rows] for rows in chunks(len(pairs), PIECE))
    counts = [np.abs(bits[ends[:, 0]] - bits[ends[:, 1]]).sum(1) for ends in some]
    return np.concatenate(counts) if counts else np.empty(0)


def stars(pairs: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Return the representative of each row: of what is left, the row with the most pairs.

    Of several, it is the one with the shortest name: copies tend to have longer ones. Long chains,
    in which only neighbours are alike, become several groups.

    >>> stars(np.array([[0, 1], [1, 2], [2, 3], [5, 6]]), [9, 9, 9, 9, 9, 9, 5]).tolist()
    [1, 1, 1, 3, 4, 6, 6]
    """
    others = defaultdict(list)
    for a, b in pairs.tolist():
        others[a].append(b)
        others[b].append(a)
    representative = np.arange(len(lengths))
    taken: set[int] = set()
    for row in sorted(others, key=lambda row: (-len(others[row]), lengths[row], row)):
        if row not in taken:
            members = [other for other in others[row] if other not in taken]
            representative[members] = row
            taken.update(members, [row])
    return representative


def best_photos(photos: Sequence[Path], groups: Sequence[int]) -> list[int]:
    """Return which photos are the best of their groups, in order: of the sharp ones, the largest.

    Sharpness is compared at one size, so that a copy that was enlarged is not better.
    """
    members = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    best = []
    for rows in members.values():
        found = [_sharpness_and_size(photos[row]) for row in rows] if len(rows) > 1 else [(0.0, 0)]
        least = SHARP * max(sharpness for sharpness, _ in found)
        sizes = [size if sharpness >= least else -1 for sharpness, size in found]
        best.append(rows[sizes.index(max(sizes))])
    return sorted(best)


def _sharpness_and_size(photo: Path) -> tuple[float, int]:
    """Return the variance of the Laplacian of a photo, and its number of pixels; 0 if broken."""
    try:
        image = open_photo(photo, None, 1)
    except BadImage:
        return 0.0, 0
    n_pixels = image.width * image.height
    image.thumbnail((VIEW, VIEW))
    grey = np.pad(np.asarray(image.convert("L"), float), 1, mode="edge")
    beside = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]
    return float((4.0 * grey[1:-1, 1:-1] - beside).var()), n_pixels
