"""A run as one Parquet file that Hugging Face datasets reads with its features.

The features are in the schema's metadata, as datasets itself writes them, so pyarrow is enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.tools.labelled import Labelled
from probagg.arrays import chunks
from probagg.errors import import_optional

ROWS = 256  # in a row group: photos are read this many at a time
VALUES = {"probability": "float32", "second_probability": "float32", "distance": "float32",
          "flag": "string"}  # fmt: skip


def write_datasets(labelled: Labelled, path: Path) -> list[str]:
    """Write the table, with photos and their features if there are any.

    Returns how to load it, with PATH for the file.
    """
    import_optional("pyarrow", "Exporting to datasets", "table")
    parquet = import_optional("pyarrow.parquet", "Exporting to datasets", "table")
    if labelled.files is not None:
        labelled.photos("datasets")
    schema = _schema(labelled)
    with parquet.ParquetWriter(path, schema) as file:
        for batch in _batches(labelled, schema):
            file.write_batch(batch)
    return ['Load it: datasets.Dataset.from_parquet("PATH")']


def _schema(labelled: Labelled) -> Any:
    """Return the columns, with the features of datasets as metadata."""
    arrow = import_optional("pyarrow", "Exporting to datasets", "table")
    label = {"names": labelled.names, "_type": "ClassLabel"}
    columns: dict[str, tuple[Any, dict[str, Any]]] = {}
    if labelled.files is not None:
        image = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        columns["image"] = (image, {"_type": "Image"})
    columns[labelled.assigned.heading] = (arrow.string(), _value("string"))
    columns["cluster"] = columns["second_cluster"] = (arrow.int64(), label)
    columns |= {name: (_type(arrow, kind), _value(kind)) for name, kind in VALUES.items()}
    if labelled.files is not None and labelled.features is not None:
        width = labelled.features.shape[1]
        vector = {"feature": _value("float32"), "length": width, "_type": "Sequence"}
        columns["embedding"] = (arrow.list_(arrow.float32(), width), vector)
    info = {"info": {"features": {name: feature for name, (_, feature) in columns.items()}}}
    fields = [(name, kind) for name, (kind, _) in columns.items()]
    return arrow.schema(fields, metadata={"huggingface": json.dumps(info)})


def _value(kind: str) -> dict[str, Any]:
    return {"dtype": kind, "_type": "Value"}


def _type(arrow: Any, kind: str) -> Any:
    return {"float32": arrow.float32(), "string": arrow.string()}[kind]


def _batches(labelled: Labelled, schema: Any) -> Iterator[Any]:
    """Yield record batches of the table; photos are read as their turn comes."""
    arrow = import_optional("pyarrow", "Exporting to datasets", "table")
    for rows in chunks(len(labelled.assigned), ROWS):
        cells = _columns(labelled, rows)
        arrays = [arrow.array(cells[field.name], field.type) for field in schema]
        yield arrow.record_batch(arrays, schema=schema)


def _columns(labelled: Labelled, rows: slice) -> dict[str, list[Any]]:
    """Return the cells of some rows; None where there is no cluster or distance."""
    table = labelled.assigned
    names = [name.encode("utf-8", "replace").decode() for name in table.names[rows]]
    cells: dict[str, list[Any]] = {name: getattr(table, name)[rows].tolist() for name in VALUES}
    cells[table.heading] = names
    for name in ("cluster", "second_cluster"):
        cells[name] = [k if k >= 0 else None for k in getattr(table, name)[rows].tolist()]
    cells["distance"] = [None if d != d else d for d in cells["distance"]]
    if labelled.files is not None:
        files = zip(labelled.files[rows], names, strict=True)
        cells["image"] = [{"bytes": file.read_bytes(), "path": name} for file, name in files]
        if labelled.features is not None:
            cells["embedding"] = list(np.asarray(labelled.features[rows], np.float32))
    return cells
