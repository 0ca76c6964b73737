"""A Hugging Face Dataset: the images of its image column, or its columns as a table.

The package is not imported: a Dataset brings what is needed of it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from probagg.data.photo import BadImage, decode_photo
from probagg.data.photos import EncodedImages
from probagg.data.tables import Table, table_of_arrow
from probagg.data.threads import stack_in_threads
from probagg.errors import NoData


def is_hub(source: Any) -> bool:
    """Return whether a source is a Dataset of Hugging Face; one of several splits is an error."""
    if not hasattr(source, "column_names") or not hasattr(source, "with_format"):
        return False
    if hasattr(source, "keys"):
        raise NoData(
            f"The {type(source).__name__} has the splits {', '.join(source.keys())}. Pass one of "
            "them, or datasets.concatenate_datasets of several."
        )
    if not hasattr(source, "__len__"):
        raise NoData(
            f"The {type(source).__name__} is a stream without a length. Load the dataset without "
            "streaming=True."
        )
    return True


def image_column(dataset: Any) -> str | None:
    """Return the column of images, or None; several are an error."""
    names = _columns(dataset, "Image")
    if len(names) > 1:
        raise NoData(
            f"The Dataset has {len(names)} columns of images: {', '.join(names)}. Keep one: "
            "dataset.remove_columns(...)."
        )
    return names[0] if names else None


def known_classes(dataset: Any) -> tuple[np.ndarray | None, list[str] | None]:
    """Return the classes in the first ClassLabel column, and their names; None where unknown."""
    names = _columns(dataset, "ClassLabel")
    if not names:
        return None, None
    # That column alone, as others may hold gigabytes of images.
    table = dataset.select_columns(names[:1]).with_format("arrow")[:]
    y = np.asarray(table[names[0]].fill_null(-1))
    return (None, None) if (y < 0).any() else (y, list(dataset.features[names[0]].names))


def table_of_hub(dataset: Any) -> Table:
    """Return the columns of a Dataset; known classes are not among them."""
    y, names = known_classes(dataset)
    others = dataset.remove_columns(_columns(dataset, "ClassLabel"))
    table = table_of_arrow(others.with_format("arrow")[:], "The Dataset")
    return replace(table, y=y, class_names=names)


def _columns(dataset: Any, kind: str) -> list[str]:
    features = dataset.features or {}
    return [name for name, feature in features.items() if type(feature).__name__ == kind]


class HubImages(EncodedImages):
    """The images of a Dataset, decoded to centred squares of `size` pixels as they are read."""

    paths = None

    def __init__(self, dataset: Any, size: int, channels: int = 3) -> None:
        if not len(dataset):
            raise NoData("The Dataset is empty. Pass one with images.")
        column = image_column(dataset)
        assert column is not None
        undecoded = type(dataset.features[column])(decode=False)
        self._column, self.name = column, type(dataset).__name__
        self._dataset = dataset.cast_column(column, undecoded).with_format(None)
        self.y, self.class_names = known_classes(dataset)
        self._set_format(size, channels)

    def __len__(self) -> int:
        return len(self._dataset)

    def __repr__(self) -> str:
        return f"HubImages {self._column!r}: {len(self)} images"

    def files(self, rows: np.ndarray) -> list[bytes | Path]:
        """Return the encoded images of rows: their bytes, or where they lie."""
        cells = self._dataset[np.arange(len(self))[rows].tolist()][self._column]
        return [_file(cell) for cell in cells]

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return the images of the given rows, in that order: uint8 (n, H, W, C)."""
        side, channels = self.size[0], self.channels

        def pixels(item: tuple[int, bytes | Path]) -> np.ndarray:
            row, file = item
            try:
                return decode_photo(as_source(file), side, channels)
            except BadImage as bad:
                raise NoData(f"Image {row} of the Dataset cannot be read: {bad}. Drop it.") from bad

        items = list(zip(np.arange(len(self))[rows].tolist(), self.files(rows), strict=True))
        return stack_in_threads(pixels, items, (*self.size, channels))

    def _facts(self) -> Iterator[bytes]:
        """Yield all encoded images, each read once."""
        for row in range(len(self)):
            (file,) = self.files(np.array([row]))
            yield file.read_bytes() if isinstance(file, Path) else file


def as_source(file: bytes | Path) -> io.BytesIO | Path:
    """Return an encoded image as what `decode_photo` takes."""
    return io.BytesIO(file) if isinstance(file, bytes) else file


def _file(cell: dict[str, Any] | None) -> bytes | Path:
    """Return the content of a cell, or the path it names; a missing image has no bytes."""
    if cell is None:
        return b""
    if cell["bytes"] is not None:
        return cell["bytes"]
    return Path(cell["path"])
