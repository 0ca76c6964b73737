"""AnnData, in memory or as .h5ad files: observations as rows to cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from probagg.data.arrays import Matrix, matrix_of
from probagg.errors import NoData, import_optional, reading

SUFFIX = ".h5ad"
COORDINATES = "X_pca"  # in obsm: what scanpy.pp.pca leaves there


def is_annotated(source: Any) -> bool:
    """Return whether a source is an AnnData object."""
    return all(hasattr(source, name) for name in ("X", "obs_names", "var_names", "obsm"))


def read_annotated(path: Path) -> Matrix:
    """Return the rows of an .h5ad file."""
    anndata = import_optional("anndata", f"Reading {path}", "anndata")
    with reading(path, "Write the file again.", NoData, "an AnnData file"):
        return matrix_of_annotated(anndata.read_h5ad(path), str(path))


def matrix_of_annotated(data: Any, where: str = "The AnnData object") -> Matrix:
    """Return the principal components of the observations if there are any, otherwise X."""
    names = [str(name) for name in data.obs_names]
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise NoData(
            f"{where} has {times} observations named {name!r}. Name each differently: "
            "adata.obs_names_make_unique()."
        )
    if COORDINATES in data.obsm:
        found = matrix_of(data.obsm[COORDINATES])
        columns = [f"PC{j + 1}" for j in range(found.X.shape[1])]
    elif data.X is None:
        raise NoData(f"{where} has neither X nor obsm[{COORDINATES!r}]. Set one of them.")
    else:
        found, columns = matrix_of(data.X), [str(name) for name in data.var_names]
    return replace(found, columns=columns, names=names)
