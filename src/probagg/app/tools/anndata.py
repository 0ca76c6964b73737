"""A run as an AnnData file: clusters in `obs`, probabilities in `obsm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.tools.labelled import Labelled
from probagg.errors import NoData, import_optional


def write_anndata(
    labelled: Labelled, path: Path, *, X: Any, P: np.ndarray | None, source: Path | None
) -> list[str]:
    """Write an .h5ad file: that of `source`, or the features X, with the clusters added.

    `obs["probagg"]` are the names of the clusters, as a category, `obsm["X_probagg"]` is P (n, K).
    Returns how to load it, with PATH for the file.
    """
    anndata = import_optional("anndata", "Exporting to anndata", "anndata")
    data = _of_features(anndata, labelled, X) if source is None else anndata.read_h5ad(source)
    if list(data.obs_names) != labelled.assigned.names:
        raise NoData(
            f"The observations of {source} are no longer those of the run {labelled.run}. Cluster "
            "it again."
        )
    for name, values in _columns(labelled).items():
        data.obs[name] = values
    if P is not None:
        data.obsm["X_probagg"] = np.asarray(P, np.float32)
    data.uns["probagg"] = {"run": labelled.run, "names": np.array(labelled.names, object)}
    data.write_h5ad(path)
    return [
        'obs["probagg"] has the clusters'
        + (', obsm["X_probagg"] their probabilities' if P is not None else "")
        + '. Load it: anndata.read_h5ad("PATH")'
    ]


def _of_features(anndata: Any, labelled: Labelled, X: Any) -> Any:
    """Return the features of the run as AnnData; without them, nothing but its samples."""
    import pandas  # which anndata needs

    names = pandas.Index(labelled.assigned.names, dtype=object)
    X = np.array(X) if isinstance(X, np.memmap) else X  # which anndata cannot write
    return anndata.AnnData(X=X, obs=pandas.DataFrame(index=names))


def _columns(labelled: Labelled) -> dict[str, Any]:
    """Return what goes into `obs`, by name."""
    import pandas

    table = labelled.assigned

    def categories(clusters: np.ndarray) -> Any:
        return pandas.Categorical.from_codes(clusters, labelled.names).remove_unused_categories()

    return {
        "probagg": categories(table.cluster),
        "probagg_probability": table.probability,
        "probagg_second": categories(table.second_cluster),
        "probagg_second_probability": table.second_probability,
        "probagg_flag": pandas.Categorical(table.flag.tolist()),
    }
