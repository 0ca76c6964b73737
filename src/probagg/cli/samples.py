"""What a user names, opened: images or a matrix, with their names and known classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.cli.terminal import CountLine
from probagg.data import benchmarks
from probagg.data.arrays import is_matrix, read_matrix
from probagg.data.folders import FolderImages
from probagg.data.labels import Classes, read_labels
from probagg.data.opening import open_images
from probagg.errors import Interrupted, NoData, did_you_mean

if TYPE_CHECKING:
    from probagg.data.images import ImageSet
    from probagg.dpac.recipe import Recipe

SETS = f"matrices {', '.join(benchmarks.NAMES)}; images {', '.join(benchmarks.IMAGE_NAMES)}"


@dataclass(frozen=True)
class Samples:
    """Rows to cluster or to assign, and what is known of them."""

    source: str  # a set's name, or an absolute path
    names: list[str]  # paths in the folder, or row numbers
    heading: str  # of the names: path or row
    X: np.ndarray | None = None  # features; images have none before they are embedded
    images: ImageSet | None = None
    columns: list[str] | None = None
    classes: Classes | None = None
    skipped: tuple[tuple[str, str], ...] = ()  # files that could not be read, and why

    def __len__(self) -> int:
        return len(self.names)

    @property
    def noun(self) -> str:
        """What they are called."""
        one = "image" if self.images is not None else "row"
        return one if len(self) == 1 else f"{one}s"

    @property
    def features(self) -> np.ndarray:
        """X, which must be there."""
        assert self.X is not None
        return self.X

    @property
    def pictures(self) -> ImageSet:
        """The images, which must be there."""
        assert self.images is not None
        return self.images

    def only(self, rows: np.ndarray, skipped: Sequence[tuple[object, str]]) -> Samples:
        """Those rows, with the others noted."""
        return replace(
            self,
            names=[self.names[row] for row in rows],
            classes=self.classes and self.classes.of(rows),
            skipped=tuple((str(name), reason) for name, reason in skipped),
        )

    def take(self, columns: list[str] | None) -> Samples:
        """A matrix with the columns a model knows, in its order, where both have names."""
        if columns is None or self.columns is None or self.columns == columns:
            return self
        missing = [name for name in columns if name not in self.columns]
        if missing:
            raise NoData(
                f"{self.source} has no column {missing[0]!r}, but the run was made with "
                f"{', '.join(columns)}. Give the same columns; their order is free."
            )
        places = [self.columns.index(name) for name in columns]
        return replace(self, X=self.features[:, places], columns=columns)

    def names_in(self, source: str) -> list[str] | None:
        """What these samples are called in another source; None where they are not of it."""
        if self.source == source:
            return self.names
        inside = Path(self.source)
        if self.heading != "path" or not inside.is_relative_to(source):
            return None
        folder = inside if inside.is_dir() else inside.parent
        return [str((folder / name).relative_to(source)) for name in self.names]

    def label(self, path: Path | None) -> Samples:
        """With the classes of a file in place of those the source has."""
        if path is None:
            return self
        return replace(self, classes=read_labels(path, self.names))


def is_image_source(source: str) -> bool:
    """Whether a source holds images; a source that is nothing is an error."""
    if source in benchmarks.NAMES:
        return source in benchmarks.IMAGE_NAMES
    if source in benchmarks.IMAGE_NAMES:
        return True
    path = Path(source).expanduser()
    if not path.exists():
        hint = did_you_mean(source, benchmarks.ALL_NAMES)
        raise NoData(f"{source!r} is no file or folder and no known data set: {SETS}.{hint}")
    return not is_matrix(path)


def open_matrix(source: str) -> Samples:
    """The rows of a named set or of a file."""
    named = source in benchmarks.NAMES
    data = benchmarks.load(source) if named else read_matrix(Path(source).expanduser())
    names = [str(row) for row in range(len(data.X))]
    where = source if named else str(Path(source).expanduser().resolve())
    columns = getattr(data, "columns", None)
    return Samples(where, names, "row", data.X, columns=columns, classes=_classes(data.y, None))


def open_image_samples(source: str, *, loud: bool) -> Samples:
    """The images of a named set, a folder or a file; nothing is decoded yet."""
    progress = CountLine("downloading", "MB", loud, 1e6)
    return of_images(source, open_images(source, progress=progress))


def open_for_recipe(source: str, recipe: Recipe, *, loud: bool) -> Samples:
    """Images at the size a recipe asks for; nothing of a folder is decoded yet."""
    from probagg.dpac.estimator import open_for

    if source in benchmarks.IMAGE_NAMES:
        progress = CountLine("downloading", "MB", loud, 1e6)
        size = recipe.decode_size if source in ("imagenet10", "imagenet-dogs") else None
        return of_images(source, benchmarks.load_images(source, size=size, progress=progress))
    return of_images(source, open_for(source, recipe))


def readable(samples: Samples, *, loud: bool) -> Samples:
    """Without the photos of a folder that cannot be decoded, which are noted."""
    if not isinstance(samples.images, FolderImages):
        return samples
    images, bad = samples.images.check(CountLine("checking", "images", loud))
    good = set(images.paths)
    rows = np.array([row for row, name in enumerate(samples.names) if name in good])
    return replace(samples.only(rows, bad), images=images)


def of_images(source: str, images: ImageSet) -> Samples:
    """An image set as samples."""
    named = source in benchmarks.IMAGE_NAMES
    where = source if named else str(Path(source).expanduser().resolve())
    names = images.paths or [str(row) for row in range(len(images))]
    heading = "row" if images.paths is None else "path"
    classes = _classes(images.y, images.class_names)
    return Samples(where, names, heading, images=images, classes=classes)


def embed_images(samples: Samples, backbone: Any, *, loud: bool) -> Samples:
    """With features of a frozen network; files that cannot be read are left out and noted."""
    from probagg.embed import embed

    progress = CountLine("features", "images", loud)
    try:
        found = embed(samples.pictures, backbone, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted("Interrupted; the features so far are kept.") from None
    kept = samples.only(found.rows, found.bad)
    return replace(kept, X=found.X)


def _classes(y: np.ndarray | None, names: list[str] | None) -> Classes | None:
    if y is None:
        return None
    codes, y = np.unique(y, return_inverse=True)
    return Classes(y, [names[k] if names else str(k) for k in codes])
