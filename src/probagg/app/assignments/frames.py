"""The table of a run for data frames: its columns as valid text, and as a Parquet file."""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from probagg.app.assignments.table import Assignments


def valid_columns(table: Assignments) -> dict[str, Any]:
    """Return the columns with names that are valid text, as file names need not be."""
    columns: dict[str, Any] = dict(table)
    if table.heading != "row":
        columns[table.heading] = [name.encode("utf-8", "replace").decode() for name in table.names]
    return columns


def parquet_bytes(table: Assignments) -> bytes:
    """Return the content of a Parquet file; a missing second cluster is null."""
    arrow, none = import_package("pyarrow"), table.second_cluster < 0
    columns = {
        **valid_columns(table),
        "cluster": table.cluster.astype(np.int32),
        "probability": table.probability.astype(float),
        "second_cluster": arrow.array(table.second_cluster.astype(np.int32), mask=none),
        "second_probability": arrow.array(table.second_probability.astype(float), mask=none),
    }
    if table.heading == "row":
        columns["row"] = table.names
    sink = io.BytesIO()
    import_package("pyarrow.parquet").write_table(arrow.table(columns), sink)
    return sink.getvalue()


def import_package(name: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{package} is not installed: pip install {package}") from error
