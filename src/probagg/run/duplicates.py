"""Groups of almost identical photos: similar features, confirmed by a coarse look at the pixels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from probagg.data.images import ImageSet, converted
from probagg.data.threads import in_threads
from probagg.progress import Progress
from probagg.report.pictures import read_picture, rows_of

COSINE = 0.8  # of features, from which the pixels of two photos are compared
CORRELATION = 0.9  # of their coarse pictures, from which they are near-duplicates
SIDE = 12  # pixels of a coarse grey picture
BLOCK = 4096  # rows of features compared at a time
MOST = 50  # candidates per photo in a block, on average; beyond, each has its nearest ones


@dataclass(frozen=True)
class Duplicates:
    """The representative of each sample, itself where no other photo is almost identical."""

    representative: np.ndarray  # (n,) rows

    @property
    def kept(self) -> np.ndarray:
        """The rows that represent themselves."""
        return np.flatnonzero(self.representative == np.arange(len(self.representative)))

    @property
    def places(self) -> np.ndarray:
        """(n,) the position of each sample's representative among `kept`."""
        return np.searchsorted(self.kept, self.representative)

    @property
    def groups(self) -> list[list[int]]:
        """The rows of each group of two or more, its representative first."""
        members: dict[int, list[int]] = {}
        for row in np.flatnonzero(np.bincount(self.representative) > 1).tolist():
            members[row] = [row]
        for row, first in enumerate(self.representative.tolist()):
            if row != first:
                members[first].append(row)
        return list(members.values())

    def table(self, names: Sequence[str]) -> list[tuple[int, str, str]]:
        """Return (group, name, name of the representative) of all samples in groups."""
        return [
            (number, names[row], names[rows[0]])
            for number, rows in enumerate(self.groups)
            for row in rows
        ]


def find_duplicates(
    X: np.ndarray, images: ImageSet, names: Sequence[str], progress: Progress | None = None
) -> Duplicates:
    """Find the near-duplicates among the images of these names in the set, with features X.

    Photos of one scene have similar features too, so a pair is taken only if both pictures, shrunk
    to 12 x 12 grey pixels, correlate. Every member of a group matches its representative.
    """
    pairs = np.concatenate([np.empty((0, 2), int), *similar_pairs(X, progress)])
    involved = np.unique(pairs)
    place = np.zeros(len(X), int)
    place[involved] = np.arange(len(involved))
    rows = rows_of(images, [names[row] for row in involved])
    coarse = coarse_pictures(images, rows)
    a, b = place[pairs].T
    same = np.einsum("ij,ij->i", coarse[a], coarse[b]) >= CORRELATION
    return Duplicates(stars(pairs[same], len(X)))


def similar_pairs(X: np.ndarray, progress: Progress | None = None) -> Iterator[np.ndarray]:
    """Yield the pairs of rows (n, 2), the lower one first, whose cosine is high, block by block."""
    U = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)
    for top in range(0, len(U), BLOCK):
        for left in range(top, len(U), BLOCK):
            S = U[top : top + BLOCK] @ U[left : left + BLOCK].T
            if left == top:
                S[np.tril_indices(len(S))] = -1.0
            close = S >= COSINE
            if close.sum() > MOST * len(S):
                close &= np.partition(S, -MOST, axis=1)[:, -MOST, None] <= S
            yield np.argwhere(close) + np.array([top, left])
        if progress and len(U) > BLOCK:
            progress(min(top + BLOCK, len(U)), len(U))


def coarse_pictures(images: ImageSet, rows: Sequence[int | None]) -> np.ndarray:
    """Return images as small grey pictures, (n, pixels), of mean 0 and length 1.

    Where a picture is flat or can no longer be read, all are 0: it is like no other.
    """
    small = converted(images, SIDE, 1)

    def coarse(row: int | None) -> np.ndarray:
        picture = read_picture(small, row)
        return np.zeros(SIDE * SIDE) if picture is None else np.asarray(picture).reshape(-1)

    pictures = np.zeros((len(rows), SIDE * SIDE), np.float32)
    for place, pixels in enumerate(in_threads(coarse, rows)):
        pictures[place] = pixels
    pictures -= pictures.mean(1, keepdims=True)
    return pictures / np.maximum(np.linalg.norm(pictures, axis=1, keepdims=True), 1e-3)


def stars(pairs: np.ndarray, n: int) -> np.ndarray:
    """Return the representative of each of n rows: of what is left, the row with the most pairs.

    Long chains, in which only neighbours are alike, thus become several groups.

    >>> stars(np.array([[0, 1], [1, 2], [2, 3], [5, 6]]), 7).tolist()
    [1, 1, 1, 3, 4, 5, 5]
    """
    others = defaultdict(list)
    for a, b in pairs.tolist():
        others[a].append(b)
        others[b].append(a)
    representative = np.arange(n)
    taken: set[int] = set()
    for row in sorted(others, key=lambda row: (-len(others[row]), row)):
        if row not in taken:
            members = [other for other in others[row] if other not in taken]
            representative[members] = row
            taken.update(members, [row])
    return representative
