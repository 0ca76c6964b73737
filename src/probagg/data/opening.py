"""Open whatever a user has, once: images, the rows of a matrix, or a table."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from probagg.data import named
from probagg.data.arrays import (
    Matrix,
    checked_rows,
    is_annotated,
    matrix_of,
    matrix_of_annotated,
    read_annotated,
    read_numpy,
)
from probagg.data.images import ArrayImages, DatasetImages, FolderImages, ImageSet, converted
from probagg.data.photo import check_format, is_image, needs_package, why_not
from probagg.data.tables import SUFFIXES, Table, pandas, read_table, table_of_frame
from probagg.errors import NoData, closest, did_you_mean

FILE_SIZE = 96  # pixels that image files are decoded to by default, as in STL-10
FILES = f".npz, .npy, .h5ad, {', '.join(SUFFIXES)} or image file"


def open_source(source: Any, *, prefer: str = "images") -> ImageSet | Matrix | Table:
    """Return the images, the matrix or the table of a source; its `kind` says which it is.

    Images are a folder, an image file or a list of them, an array or a .npz (X, and y if
    known) or .npy file of one, a map-style Dataset, or an image set. A matrix is an array of two
    dimensions, dense or sparse, or a file of one, or AnnData. A table is a .csv, .tsv, .txt or
    .parquet file, a DataFrame, or an Arrow table. Of a named set that is both images and a matrix,
    `prefer` is returned.

    Nothing is decoded yet, and image files are for squares of 96 pixels.

    >>> open_source("digits").kind, open_source(np.zeros((5, 3))).kind
    ('images', 'matrix')
    """
    if _is_path(source):
        return _open_path(source, prefer)
    if isinstance(source, ImageSet):
        return source
    if hasattr(source, "collect"):
        raise NoData(f"The {type(source).__name__} is not computed yet. Pass source.collect().")
    if isinstance(source, Mapping):
        raise NoData("A dictionary is not a table. Pass pandas.DataFrame(source).")
    if is_annotated(source):
        return matrix_of_annotated(source)
    if hasattr(source, "columns"):
        # The frames of polars and the tables of pyarrow have `to_pandas`, which needs it.
        pandas()
        return table_of_frame(source.to_pandas() if hasattr(source, "to_pandas") else source)
    if getattr(source, "ndim", 3) not in (3, 4):
        return matrix_of(source)
    if isinstance(source, np.ndarray):
        return ArrayImages(source)
    if isinstance(source, list | tuple) and source and all(map(_is_path, source)):
        return _open_list(source)
    return DatasetImages(source)


def open_images(source: Any, *, size: int | None = None, channels: int | None = None) -> ImageSet:
    """Return the images of a source (see `open_source`); a matrix or a table is an error.

    They are squares of `size` pixels with `channels` where these are given.

    >>> open_images("digits")
    ArrayImages 'digits': 1797 x 8 x 8 x 1
    """
    check_format(size, channels)  # before anything is read
    if isinstance(source, np.ndarray):
        return converted(ArrayImages(source), size, channels)
    found = open_source(source)
    if isinstance(found, Matrix | Table):
        where = str(source) if _is_path(source) else f"The {type(source).__name__}"
        raise NoData(
            f"{where} is neither a folder of images nor a .npz, .npy or image file with images: it "
            f"holds a {found.kind}. Pass one of these, an array, or a Dataset."
        )
    return converted(found, size, channels)


def is_named(source: Any) -> TypeGuard[str]:
    """Return whether a source is the name of a set, and no path has it."""
    is_name = isinstance(source, str) and source in named.ALL_NAMES
    return is_name and not Path(source).exists()


def suggest(path: str, names: Sequence[str] = ()) -> str:
    """Return a sentence that suggests a file or folder beside a path, or a name; or nothing."""
    place = Path(path).expanduser()
    try:
        names_there = set(os.listdir(place.parent)) - {place.name}
        beside = [name for name in names_there if not name.startswith(".")]
    except OSError:
        beside = []
    found = closest(place.name, sorted(beside))
    if found is None:
        return did_you_mean(path, names)
    return f" Did you mean {str(place.with_name(found))!r}?"


def _is_path(item: Any) -> bool:
    return isinstance(item, str | PathLike)


def _open_path(source: str | PathLike[str], prefer: str) -> ImageSet | Matrix | Table:
    if is_named(source):
        if source in named.NAMES and (prefer != "images" or source not in named.IMAGE_NAMES):
            return named.load_rows(source)
        return named.load_images(source)
    path = Path(source).expanduser()
    suffix = path.suffix.lower()
    if path.is_dir():
        return FolderImages(path, FILE_SIZE)
    if not path.exists():
        raise NoData(
            f"{str(source)!r} is not a file, a folder or a known data set: matrices "
            f"{', '.join(named.NAMES)}; images {', '.join(named.IMAGE_NAMES)}."
            f"{suggest(str(source), named.ALL_NAMES)}"
        )
    if is_image(path) and path.is_file():
        return FolderImages(path.parent, FILE_SIZE, name=path.stem, paths=[path.name])
    if suffix in (".npz", ".npy"):
        X, y = read_numpy(path)
        if X.ndim == 2:
            return Matrix(path.stem, checked_rows(X, str(path)), y)
        return ArrayImages(X, y, name=path.stem)
    if suffix in SUFFIXES:
        return read_table(path)
    if suffix == ".h5ad":
        return read_annotated(path)
    if needs_package(path):
        raise NoData(f"{path} cannot be read: {why_not(path)}")
    raise NoData(f"{path} is neither a folder of images nor a {FILES}. Pass one of these.")


def _open_list(source: Sequence[str | PathLike[str]]) -> FolderImages:
    """Return the listed files, named as given; paths are relative to the current folder."""
    paths = [os.fspath(path) for path in source]
    path, times = Counter(paths).most_common(1)[0]
    if times > 1:
        raise NoData(f"{path!r} is in the list {times} times. List every image file once.")
    return FolderImages(Path.cwd(), FILE_SIZE, name="images", paths=paths)
