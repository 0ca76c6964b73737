"""Extract features of all images of a set, skipping those already in the cache."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.app.embed.backbone import Backbone, BackboneError
from probagg.app.embed.cache import FeatureCache, Stamp, cache_path
from probagg.arrays import chunks
from probagg.data.images import FolderImages
from probagg.data.opening import open_images
from probagg.data.photo import (
    MAX_BYTES,
    BadImage,
    open_photo,
    pillow,
    to_channels,
    to_picture,
)
from probagg.errors import NoData, first_line
from probagg.progress import Progress
from probagg.storage import fingerprint, open_regular
from probagg.threads import cores, in_threads, read_ahead

if TYPE_CHECKING:
    from PIL.Image import Image

    from probagg.data.images import ImageSet

AT_ONCE = 128  # images in the network at once, on a GPU or on all cores together
MIN_BATCH, MAX_BATCH = 4, 16  # images per core
# An image is blank if the standard deviation of each channel is smaller, of 255. A grid of so many
# pixels on a side is looked at.
BLANK, SIDE = 4.0, 64
_NO_MEMORY = re.compile(
    r"out of memory|not enough memory|allocate memory|failed to allocate|bad.?alloc", re.IGNORECASE
)


@dataclass(frozen=True)
class Features:
    """Features X (n, D), float32, of the images that can be read; `rows` are theirs in the set.

    `bad` has the path or row of each other image and the reason, `cached` is the number of images
    whose features came from the cache, and `seconds` is how long the others took. `blank` has the
    path or row of images of hardly more than one colour, whose features mean little.
    """

    X: np.ndarray
    rows: np.ndarray
    bad: list[tuple[str | int, str]]
    cached: int
    seconds: float
    blank: list[str | int]


def extract_features(
    images: Any,
    backbone: Backbone,
    *,
    cache: bool = True,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Features:
    """Return the features of all images (whatever `open_images` takes) that can be read.

    Image files are decoded whole, whatever the size of the set. Features are cached by content, so
    a second or resumed run computes only what is new; `cache=False` neither reads nor writes the
    cache. `progress(done, total)` is called for each batch.
    """
    images = open_images(images)
    work = _Extraction(images, backbone, cache, batch_size)
    X, have = np.zeros((len(images), backbone.n_features), np.float32), np.zeros(len(images), bool)
    contrasts = np.full(len(images), np.inf)
    bad: list[tuple[str | int, str]] = []

    def take(row: int, features: np.ndarray) -> None:
        X[row], contrasts[row], have[row] = features[:-1], features[-1], True

    with work.cache:
        for row, features in work.unchanged():
            take(row, features)
        done = cached = int(have.sum())
        began = time.perf_counter()
        if progress:
            progress(done, len(images))
        # Closed before the cache, which the threads use.
        with contextlib.closing(work.extract(np.flatnonzero(~have))) as pieces:
            for items in pieces:
                for item in items:
                    if item.features is None:
                        bad.append((work.pictures.name(item.row), item.bad))
                    else:
                        take(item.row, item.features)
                        cached += item.is_cached
                done += len(items)
                if progress:
                    progress(done, len(images))
        seconds = time.perf_counter() - began
    if not have.any():
        raise NoData(
            f"None of the {len(images)} images of {images.name} can be read; {bad[0][0]}: "
            f"{bad[0][1]}. Pass images that other programs can open."
        )
    blank = [work.pictures.name(row) for row in np.flatnonzero(contrasts < BLANK).tolist()]
    X = X if have.all() else X[have]
    return Features(X, np.flatnonzero(have), bad, cached, seconds, blank)


class _Extraction:
    """A set, a backbone and a cache.

    The batch size is halved for good when the backbone runs out of memory.
    """

    def __init__(
        self, images: ImageSet, backbone: Backbone, cache: bool, batch_size: int | None
    ) -> None:
        self.backbone, self.on_cpu = backbone, backbone.device == "cpu"
        share = min(max(AT_ONCE // cores(), MIN_BATCH), MAX_BATCH)
        self.batch_size = batch_size or (share if self.on_cpu else AT_ONCE)
        self.pictures = pictures_of(images, backbone.near)
        path = cache_path() if cache else None
        self.cache = FeatureCache(path, backbone.identity, backbone.n_features + 1)

    def unchanged(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the cached features of files that have not changed, without reading them."""
        self.pictures.digests = self.cache.digests(self.pictures.stamps())
        for rows in chunks(len(self.pictures.digests), 1024):
            digests = self.pictures.digests[rows]
            found = self.cache.find(digests)
            for row, digest in enumerate(digests, rows.start):
                if digest in found:
                    yield row, found[digest]

    def extract(self, rows: np.ndarray) -> Generator[list[Item], None, None]:
        """Compute and cache the features of rows, piece by piece.

        On a CPU every core takes its own piece from the file to the features, and few rows are
        shared out among the cores; for a GPU one thread loads the next piece.
        """
        size = self.batch_size
        if self.on_cpu:
            size = max(1, min(size, -(-len(rows) // cores())))
        pieces = [rows[piece] for piece in chunks(len(rows), size)]

        def work(piece: np.ndarray) -> list[Item]:
            loaded = self.load(piece)
            return self.compute(loaded) if self.on_cpu else loaded

        # Networks run faster side by side than one after the other on all cores: no core waits.
        alone: Any = contextlib.nullcontext()
        if self.on_cpu and self.backbone.module is not None:
            from probagg.devices import one_torch_thread

            alone = one_torch_thread()
        with (
            alone as begin,
            contextlib.closing(
                read_ahead(work, pieces, cores() if self.on_cpu else 1, begin)
            ) as loading,
        ):
            for loaded in loading:
                yield loaded if self.on_cpu else self.compute(loaded)

    def load(self, rows: np.ndarray) -> list[Item]:
        """Read images; those whose content is in the cache are not decoded."""
        items = self.pictures.items(rows)
        found = self.cache.find(item.digest for item in items)
        for item in items:
            if item.digest in found:
                item.features, item.is_cached = found[item.digest], True
        for _ in in_threads(self._prepare, [item for item in items if not item.is_cached]):
            pass
        return items

    def _prepare(self, item: Item) -> None:
        """Set the picture of an image as the network's input and its contrast, or why it is bad."""
        try:
            picture = item.picture()
        except BadImage as bad:
            item.bad = str(bad)
            return
        try:
            item.prepared = self.backbone.prepare(picture), contrast(picture)
        except Exception as error:  # a user's own transform, which worked on a blank picture
            item.bad = f"the backbone's transform fails on it ({first_line(error)})"

    def compute(self, items: list[Item]) -> list[Item]:
        """Compute the features of what was prepared, and cache those of all."""
        if todo := [item for item in items if item.prepared is not None]:
            inputs, contrasts = zip(*(item.prepared for item in todo if item.prepared), strict=True)
            computed = np.column_stack([self.infer(np.stack(inputs)), np.float32(contrasts)])
            for item, features in zip(todo, computed, strict=True):
                item.features, item.prepared = features, None
        good = [(i, i.digest, i.features) for i in items if i.digest and i.features is not None]
        self.cache.store(
            [(item.stamp, digest) for item, digest, _ in good if item.stamp],
            [(digest, features) for _, digest, features in good],
        )
        return items

    def infer(self, batch: np.ndarray) -> np.ndarray:
        """Return the network's output for a batch, which is divided where memory is short."""
        features: list[np.ndarray] = []
        while len(batch):
            size = min(self.batch_size, len(batch))
            try:
                features.append(self.backbone.network(batch[:size]))
            except Exception as error:
                if not (isinstance(error, MemoryError) or _NO_MEMORY.search(str(error))):
                    raise
                if size == 1:
                    raise BackboneError(
                        f"There is not enough memory for one image in {self.backbone.name}. Choose "
                        "a smaller --backbone, or --device cpu."
                    ) from error
                # The next attempt begins when the failed batch is freed. Another thread may have
                # halved the size meanwhile.
                self.batch_size = min(self.batch_size, size // 2)
            else:
                batch = batch[len(features[-1]) :]
        return np.concatenate(features)


def contrast(picture: Image) -> float:
    """Return the largest standard deviation of a channel, of some pixels."""
    some = np.asarray(picture.resize((SIDE, SIDE), pillow().Resampling.NEAREST), np.float32)
    return float(some.std(axis=(0, 1)).max())


@dataclass
class Item:
    """One image of a set, not yet decoded, and what becomes of it.

    `digest` is of its content, None where it cannot be read; `picture` returns an RGB picture or
    raises BadImage. It is `prepared` as the network's input and its contrast, or `bad` says why
    not. The contrast is also the last of the `features`.
    """

    row: int
    digest: bytes | None
    picture: Callable[[], Image]
    stamp: Stamp | None = None
    features: np.ndarray | None = None
    is_cached: bool = False
    prepared: tuple[np.ndarray, float] | None = None
    bad: str = ""


class Pictures:
    """A set of images as pictures with a digest of their content; here of images as arrays."""

    def __init__(self, images: ImageSet) -> None:
        self._images = images
        # The content of files by their stamps, where the cache has it.
        self.digests: list[bytes | None] = [None] * len(images)

    def name(self, row: int) -> str | int:
        """Return the path of an image, or its row."""
        return row

    def stamps(self) -> list[Stamp | None]:
        """Return the stamp of each image, without reading it."""
        return [None] * len(self._images)

    def items(self, rows: np.ndarray) -> list[Item]:
        """Return the images of these rows."""
        return [
            Item(row, _pixel_digest(pixels), functools.partial(to_channels, to_picture(pixels), 3))
            for row, pixels in zip(rows.tolist(), self._images.read(rows), strict=True)
        ]


def pictures_of(images: ImageSet, near: int | None) -> Pictures:
    """Return the pictures of a set; JPEG files are decoded to at least twice `near`."""
    return Files(images, near) if isinstance(images, FolderImages) else Pictures(images)


class Files(Pictures):
    """Image files, not cropped to the size of the set."""

    def __init__(self, images: FolderImages, near: int | None) -> None:
        super().__init__(images)
        self._place, self._paths = images.place, images.paths
        self._folder = images.folder.resolve()
        self._near = near
        self._stamps: list[Stamp | None] = [None] * len(images)

    def name(self, row: int) -> str | int:
        return self._paths[row]

    def stamps(self) -> list[Stamp | None]:
        self._stamps = [_stamp(self._folder / path) for path in self._paths]
        return self._stamps

    def items(self, rows: np.ndarray) -> list[Item]:
        def item(row: int) -> Item:
            path = self._folder / self._paths[row]
            # The file may have changed since `stamps`.
            stamp = _stamp(path)
            digest = self.digests[row] if stamp == self._stamps[row] else None
            digest = digest or (stamp and _file_digest(path))
            return Item(row, digest, lambda: open_photo(self._place(row), self._near), stamp)

        return list(in_threads(item, rows.tolist()))


def _pixel_digest(pixels: np.ndarray) -> bytes:
    parts = (repr(pixels.shape), np.ascontiguousarray(pixels).data)
    return bytes.fromhex(fingerprint(parts, 16))


def _stamp(path: Path) -> Stamp | None:
    try:
        facts = path.stat()
    except OSError:  # missing, or a broken link: decoding it reports that
        return None
    if not stat.S_ISREG(facts.st_mode) or not 0 < facts.st_size <= MAX_BYTES:
        return None  # reading a pipe would block, and a sparse file take hours
    return Stamp(os.fsencode(path), facts.st_size, facts.st_mtime_ns)


def _file_digest(path: Path) -> bytes | None:
    try:
        with open_regular(path) as file:
            return bytes.fromhex(fingerprint(iter(lambda: file.read(1 << 20), b""), 16))
    except OSError:
        return None
