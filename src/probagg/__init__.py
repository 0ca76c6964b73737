"""probagg: clustering by probability aggregation (PAC, OPA, DPAC).

>>> from probagg import PAC
>>> PAC(n_clusters=3)
PAC(n_clusters=3)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probagg.aggregation import Moments, aggregate, critical_m
    from probagg.app.run.pipeline import cluster
    from probagg.app.run.run import Run, open_run
    from probagg.dpac.dpac import DPAC
    from probagg.dpac.recipe import Recipe
    from probagg.errors import ClusteringWarning, Interrupted
    from probagg.metrics import clustering_accuracy, evaluate
    from probagg.neighbours.calibration import calibrate
    from probagg.neighbours.spaces import GraphCoordinates, SmoothedRows
    from probagg.opa.diagnose import Diagnosis, diagnose
    from probagg.opa.head import OPAHead
    from probagg.opa.losses import OPALoss, PACLoss, WeightedContrastiveLoss
    from probagg.opa.targets import opa_targets
    from probagg.pac.graph_pac import GraphPAC
    from probagg.pac.n_clusters import select_n_clusters
    from probagg.pac.pac import PAC

__version__ = "0.1.0"

_HOMES = {
    "PAC": "probagg.pac.pac",
    "GraphPAC": "probagg.pac.graph_pac",
    "select_n_clusters": "probagg.pac.n_clusters",
    "calibrate": "probagg.neighbours.calibration",
    "SmoothedRows": "probagg.neighbours.spaces",
    "GraphCoordinates": "probagg.neighbours.spaces",
    "Moments": "probagg.aggregation",
    "aggregate": "probagg.aggregation",
    "critical_m": "probagg.aggregation",
    "clustering_accuracy": "probagg.metrics",
    "evaluate": "probagg.metrics",
    "opa_targets": "probagg.opa.targets",
    "OPALoss": "probagg.opa.losses",
    "PACLoss": "probagg.opa.losses",
    "WeightedContrastiveLoss": "probagg.opa.losses",
    "OPAHead": "probagg.opa.head",
    "diagnose": "probagg.opa.diagnose",
    "Diagnosis": "probagg.opa.diagnose",
    "DPAC": "probagg.dpac.dpac",
    "Recipe": "probagg.dpac.recipe",
    "cluster": "probagg.app.run.pipeline",
    "open_run": "probagg.app.run.run",
    "Run": "probagg.app.run.run",
    "ClusteringWarning": "probagg.errors",
    "Interrupted": "probagg.errors",
}

__all__ = [
    "DPAC",
    "PAC",
    "ClusteringWarning",
    "Diagnosis",
    "GraphCoordinates",
    "GraphPAC",
    "Interrupted",
    "Moments",
    "OPAHead",
    "OPALoss",
    "PACLoss",
    "Recipe",
    "Run",
    "SmoothedRows",
    "WeightedContrastiveLoss",
    "aggregate",
    "calibrate",
    "cluster",
    "clustering_accuracy",
    "critical_m",
    "diagnose",
    "evaluate",
    "opa_targets",
    "open_run",
    "select_n_clusters",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562), so that unused parts cost nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'probagg' has no attribute {name!r}")
    try:
        module = importlib.import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        from probagg.errors import missing

        raise missing(name, "torch", "deep") from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
