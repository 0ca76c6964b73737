"""Open whatever a user has: images, or rows of numbers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.data import benchmarks, tables
from probagg.data.arrays import (
    Matrix,
    is_annotated,
    is_matrix,
    matrix_of,
    matrix_of_annotated,
    read_annotated,
    read_matrix,
    read_numpy,
    read_table,
)
from probagg.data.hub import HubImages, image_column, is_hub, table_of_hub
from probagg.data.images import ArrayImages, DatasetImages, ImageSet, converted
from probagg.data.photo import check_format, is_image, needed_extra, why_not
from probagg.data.photos import FolderImages
from probagg.data.tables import Table, is_arrow, table_of_arrow, table_of_frame
from probagg.errors import NoData, closest, did_you_mean
from probagg.progress import Progress

FILE_SIZE = 96  # pixels that image files are decoded to by default, as in STL-10


def is_image_source(source: Any) -> bool:
    """Return whether a source is for `open_images` rather than for `open_matrix`.

    A path is judged by its content, and one that does not exist is an error. DataFrames, Arrow
    tables, AnnData and arrays of two dimensions are matrices, and so is a Hugging Face Dataset
    without a column of images; other arrays, lists and Datasets are images.

    >>> is_image_source("digits"), is_image_source(np.zeros((5, 3)))
    (True, False)
    """
    if _is_path(source):
        return _is_image_path(source)
    if is_hub(source):
        return image_column(source) is not None
    if hasattr(source, "collect"):
        raise NoData(f"The {type(source).__name__} is not computed yet. Pass source.collect().")
    if isinstance(source, Mapping):
        raise NoData("A dictionary is not a table. Pass pandas.DataFrame(source).")
    if is_annotated(source):
        return False
    return not hasattr(source, "columns") and getattr(source, "ndim", 3) in (3, 4)


def _is_image_path(source: str | PathLike[str]) -> bool:
    if source in benchmarks.ALL_NAMES:
        return source in benchmarks.IMAGE_NAMES
    path = Path(source).expanduser()
    if not path.exists():
        hint = suggest(str(source), benchmarks.ALL_NAMES)
        raise NoData(
            f"{str(source)!r} is not a file, a folder or a known data set: matrices "
            f"{', '.join(benchmarks.NAMES)}; images {', '.join(benchmarks.IMAGE_NAMES)}.{hint}"
        )
    return not is_matrix(path)


def suggest(path: str, names: Sequence[str] = ()) -> str:
    """Return a sentence that suggests a file or folder beside a path, or a name; or nothing."""
    place = Path(path).expanduser()
    try:
        beside = [name for name in os.listdir(place.parent) if not name.startswith(".")]
    except OSError:
        beside = []
    found = closest(place.name, sorted(beside))
    if found is None:
        return did_you_mean(path, names)
    return f" Did you mean {str(place.with_name(found))!r}?"


def open_matrix(source: Any) -> Matrix:
    """Return the rows of a named set, a file, an array, a sparse array, a DataFrame or AnnData.

    >>> open_matrix("digits").X.shape
    (1797, 64)
    """
    if is_annotated(source):
        return matrix_of_annotated(source)
    if not _is_path(source):
        return matrix_of(source)
    if source in benchmarks.NAMES:
        return benchmarks.load(str(source))
    path = Path(source).expanduser()
    return read_annotated(path) if path.suffix.lower() == ".h5ad" else read_matrix(path)


def open_table(source: Any) -> Table | None:
    """Return the table in a .csv, .tsv, .txt or .parquet file or in memory; None for others.

    In memory it is a DataFrame, an Arrow table or a Hugging Face Dataset.
    """
    if is_hub(source):
        return table_of_hub(source)
    if is_arrow(source):
        return table_of_arrow(source)
    if not _is_path(source):
        return table_of_frame(source) if hasattr(source, "columns") else None
    path = Path(source).expanduser()
    if source in benchmarks.ALL_NAMES or path.suffix.lower() not in tables.SUFFIXES:
        return None
    return read_table(path)


def open_images(
    source: Any,
    *,
    size: int | None = None,
    channels: int | None = None,
    progress: Progress | None = None,
) -> ImageSet:
    """Return the image set of a source, as squares of `size` pixels and with `channels` if given.

    A source is a folder, an image file, a .npz (X, and y if known) or .npy file, a list of image
    files, a uint8 array, a map-style Dataset, a Dataset of Hugging Face, an image set, or one of
    `benchmarks.IMAGE_NAMES`, which is downloaded if needed; `progress` is called with the bytes so
    far and the total. Image files are decoded to 96 pixels where no `size` is given.

    >>> open_images("digits")
    ArrayImages 'digits': 1797 x 8 x 8 x 1
    """
    check_format(size, channels)  # before anything is read
    return converted(_open(source, progress), size, channels)


def _open(source: Any, progress: Progress | None) -> ImageSet:
    if isinstance(source, ImageSet):
        return source
    if isinstance(source, np.ndarray):
        return ArrayImages(source)
    if is_hub(source) and image_column(source) is not None:
        return HubImages(source, FILE_SIZE)
    if _is_path(source):
        return _open_path(source, progress)
    if isinstance(source, list | tuple) and source and all(map(_is_path, source)):
        return _open_list(source)
    return DatasetImages(source)


def _is_path(item: Any) -> bool:
    return isinstance(item, str | PathLike)


def _open_path(source: str | PathLike[str], progress: Progress | None) -> ImageSet:
    path = Path(source).expanduser()
    if path.is_dir():
        return FolderImages(path, FILE_SIZE)
    if path.is_file() and is_image(path):
        return FolderImages(path.parent, FILE_SIZE, name=path.stem, paths=[path.name])
    if path.is_file() and path.suffix.lower() in (".npz", ".npy"):
        return ArrayImages(*read_numpy(path), name=path.stem)
    if path.is_file() and needed_extra(path):
        raise NoData(f"{path} cannot be read: {why_not(path)}")
    if path.is_file():
        raise NoData(
            f"{path} is neither a folder of images nor a .npz, .npy or image file. Pass one of "
            "these."
        )
    if source in benchmarks.IMAGE_NAMES:
        return benchmarks.load_images(str(source), progress=progress)
    raise NoData(
        f"{str(source)!r} is not a folder, a file or a named image set: there are "
        f"{', '.join(benchmarks.IMAGE_NAMES)}.{suggest(str(source), benchmarks.IMAGE_NAMES)}"
    )


def _open_list(source: Sequence[str | PathLike[str]]) -> FolderImages:
    """Return the listed files, named as given; paths are relative to the current folder."""
    paths = [os.fspath(path) for path in source]
    path, times = Counter(paths).most_common(1)[0]
    if times > 1:
        raise NoData(f"{path!r} is in the list {times} times. List every image file once.")
    return FolderImages(Path.cwd(), FILE_SIZE, name="images", paths=paths)
