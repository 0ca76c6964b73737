"""A source, opened: images or the rows of a matrix, with their names and known classes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.app.assignments import COLUMNS
from probagg.app.run.tables import Preparation, Prepared
from probagg.data.arrays import Matrix
from probagg.data.images import FolderImages, ImageSet
from probagg.data.labels import Classes, read_labels
from probagg.data.opening import is_named, open_source
from probagg.data.photo import count_by_kind, needs_package, why_not
from probagg.data.tables import Table
from probagg.errors import InputError, Interrupted, NoData, did_you_mean
from probagg.progress import Monitor

if TYPE_CHECKING:
    from probagg.dpac.recipe import Recipe

# So many skipped samples with the same reason, and blank images, are named one by one.
FEW = 5


@dataclass(frozen=True)
class Samples:
    """Images or rows to cluster or to assign, and what is known of them."""

    source: str | None  # the name of a set, or an absolute path; None for data in memory
    names: list[str]  # paths in the folder, row numbers, or ids of a table
    heading: str  # what the names are: path, row, or the name of the id column
    X: Any = None  # features; images have none at first
    images: ImageSet | None = None
    columns: list[str] | None = None
    classes: Classes | None = None
    skipped: tuple[tuple[str, str], ...] = ()  # photos or rows that could not be used, and why
    others: tuple[tuple[str, str], ...] = ()  # files in the folder that are not images
    table: Table | None = None  # a table has no features before it is prepared
    units: np.ndarray | None = None  # the columns of X in the user's units
    preparation: Preparation | None = None
    blank: tuple[str, ...] = ()  # names of images of hardly more than one colour

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kind(self) -> str:
        """What was opened: "images", "matrix" or "table"."""
        if self.images is not None:
            return "images"
        return "matrix" if self.table is None else "table"

    @property
    def noun(self) -> str:
        """The word for these samples in a message."""
        one = "image" if self.images is not None else "row"
        return one if len(self) == 1 else f"{one}s"

    @property
    def pictures(self) -> ImageSet:
        """The images, which must be there."""
        assert self.images is not None
        return self.images

    def only(
        self, rows: np.ndarray | Sequence[int], skipped: Sequence[tuple[object, str]] = ()
    ) -> Samples:
        """Return the given rows, in their order, with others noted as skipped."""
        rows = np.asarray(rows)
        return replace(
            self,
            names=[self.names[row] for row in rows],
            X=None if self.X is None else self.X[rows],
            units=None if self.units is None else self.units[rows],
            classes=self.classes and self.classes.of(rows),
            table=self.table and self.table.only(rows),
            skipped=(*self.skipped, *((str(name), reason) for name, reason in skipped)),
        )

    def left_out(self) -> list[str]:
        """Return a line for each skipped sample; many with one reason share a line."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.skipped:
            by_reason.setdefault(reason, []).append(name)
        lines = []
        for reason, names in by_reason.items():
            if len(names) <= FEW:
                lines += [f"{name} is left out: {reason}" for name in names]
            else:
                rest = f"{names[0]} and {len(names) - 1:,} others"
                lines.append(f"{rest} are left out: {reason}")
        return lines

    def prepared(self, preparation: Preparation, found: Prepared, labels: Any = None) -> Samples:
        """Return a table as numbers, with classes if given; rows without a value are skipped."""
        names, heading = self.names, self.heading
        if found.names is not None:
            taken = ("", "row", "path", "name", *COLUMNS)
            names, heading = found.names, preparation.id or "id"
            heading = "id" if heading in taken else heading
        kept = set(found.rows.tolist())
        skipped = [(name, "no value") for row, name in enumerate(names) if row not in kept]
        named = replace(self, names=names, heading=heading).label(labels)
        return replace(
            named.only(found.rows, skipped),
            X=found.X,
            units=found.units,
            columns=preparation.outputs,
            preparation=preparation,
        )

    def for_recipe(self, source: Any, recipe: Recipe) -> Samples:
        """Return photos as a recipe reads them; an image set as the source stays as it is."""
        from probagg.dpac.dpac import decoded_for  # torch is slow to import

        if isinstance(source, ImageSet):
            return self
        return replace(self, images=decoded_for(self.pictures, recipe))

    def select(self, columns: list[str] | None) -> Samples:
        """Return a matrix with the columns of a model, in its order, where both have names."""
        if columns is None or self.columns is None or self.columns == columns:
            return self
        missing = [name for name in columns if name not in self.columns]
        if missing:
            raise NoData(
                f"{self.source or 'The matrix'} has no column {missing[0]!r}, but the run was made "
                f"with {', '.join(columns)}. Give the same columns; their order is free."
            )
        places = [self.columns.index(name) for name in columns]
        return replace(self, X=self.X[:, places], columns=columns)

    def names_in(self, source: str | None) -> list[str] | None:
        """Return the names of these samples in another source, "" for others; None for no files."""
        if source is None or self.source == source:
            return self.names if source else None
        if self.heading != "path" or not isinstance(self.images, FolderImages):
            return None
        folder = self.images.folder.resolve()
        paths = (Path(os.path.normpath(folder / name)) for name in self.names)
        inside = (path.is_relative_to(source) and path.relative_to(source) for path in paths)
        return [path.as_posix() if path else "" for path in inside]

    def label(self, labels: Any) -> Samples:
        """Return the samples with these classes (see `classes_of`) in place of the source's own."""
        if labels is None:
            return self
        if self.table is not None and (name := self.column_named(labels)) is not None:
            labels = self.table[name].texts()
        return replace(self, classes=classes_of(labels, self.names, self.source))

    def column_named(self, labels: Any) -> str | None:
        """Return the column of the table that labels name; None where they are something else."""
        is_path = isinstance(labels, str | PathLike)
        if self.table is None or not is_path or Path(labels).is_file():
            return None
        name, columns = str(labels), self.table.names
        if name not in columns:
            raise NoData(
                f"labels is {name!r}, which is neither a file nor a column of the table "
                f"({', '.join(columns)}).{did_you_mean(name, columns)}"
            )
        return name


def classes_of(labels: Any, names: list[str], folder: str | None = None) -> Classes:
    """Return the classes of samples from a CSV file, a mapping by name, or one value per sample.

    `folder` is where the samples are: the CSV file may have absolute paths.
    """
    if isinstance(labels, str | PathLike):
        return read_labels(Path(labels), names, folder)
    if isinstance(labels, Mapping):
        found = [labels.get(name) for name in names]
    else:
        found = list(labels)
        if len(found) != len(names):
            raise InputError(
                f"labels has {len(found)} entries for {len(names)} samples. Pass one per sample, "
                "in their order, or a mapping from names to classes."
            )
    # NaN differs from itself.
    known = (c is not None and c == c and c != "" for c in found)
    return Classes.of_text([str(c) if k else None for c, k in zip(found, known, strict=True)])


def open_samples(source: Any, monitor: Monitor, *, prefer: str = "images") -> Samples:
    """Open a source once (see `open_source`), and say which files of a folder are not read.

    No image is decoded yet, and a table has no features until it is prepared.
    """
    found = open_source(source, prefer=prefer)
    place = place_of(source)
    if isinstance(found, Table):
        return Samples(place, _numbered(len(found)), "row", table=found)
    classes = None
    if found.y is not None:
        codes, y = np.unique(found.y, return_inverse=True)
        named = found.class_names
        classes = Classes(y, [named[k] if named else str(k) for k in codes])
    if isinstance(found, Matrix):
        names = found.names or _numbered(found.X.shape[0])
        heading = "row" if found.names is None else "id"
        return Samples(place, names, heading, found.X, columns=found.columns, classes=classes)
    if classes is not None and place is not None and Path(place).is_dir():
        classes = replace(classes, origin="the sub-folders")
    names, heading = (found.paths, "path") if found.paths else (_numbered(len(found)), "row")
    samples = Samples(place, names, heading, images=found, classes=classes)
    if not isinstance(found, FolderImages):
        return samples
    if n := len(found.passed):
        what = "files are not images" if n != 1 else "file is not an image"
        monitor.say(f"{n:,} {what} that can be read: {count_by_kind(found.passed)}")
    photos = [(path, why_not(path)) for path in found.passed if needs_package(path)]
    others = [(path, why_not(path)) for path in found.passed if not needs_package(path)]
    return replace(samples, skipped=(*found.outside, *photos), others=tuple(others))


def _numbered(n_rows: int) -> list[str]:
    return [str(row) for row in range(n_rows)]


def place_of(source: Any) -> str | None:
    """Return the name of a set or the absolute path of a source; None for data in memory."""
    if not isinstance(source, str | PathLike):
        return None
    if is_named(source):
        return source
    return str(Path(source).expanduser().resolve())


def readable(samples: Samples, monitor: Monitor) -> Samples:
    """Return the samples without photos that cannot be decoded, which are noted as skipped."""
    if not isinstance(samples.images, FolderImages):
        return samples
    images, bad = samples.images.check(monitor.count("checking", "images"))
    good = set(images.paths)
    rows = np.array([row for row, name in enumerate(samples.names) if name in good])
    return replace(samples.only(rows, bad), images=images)


def embed_images(samples: Samples, backbone: Any, monitor: Monitor) -> Samples:
    """Return the samples with features of a frozen network; unreadable files are skipped."""
    from probagg.app.embed.features import extract_features

    try:
        progress = monitor.count("features", "images")
        found = extract_features(samples.pictures, backbone, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted("Interrupted; the features so far are kept.") from None
    if n_computed := len(found.X) - found.cached:
        monitor.say(f"features: {n_computed / max(found.seconds, 1e-9):.3g} images/s")
    if n := len(found.blank):
        shown = ", ".join(map(str, found.blank[:FEW])) + ", ..." * (n > FEW)
        monitor.say(f"blank or nearly so: {n:,} image{'s' * (n != 1)}: {shown}")
    blank = tuple(map(str, found.blank))
    return replace(samples.only(found.rows, found.bad), X=found.X, blank=blank)
