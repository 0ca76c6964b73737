"""probagg: clustering by probability aggregation (PAC, OPA, DPAC).

>>> from probagg import PAC
>>> PAC(n_clusters=3)
PAC(n_clusters=3)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probagg.aggregation import Moments as Moments
    from probagg.aggregation import aggregate as aggregate
    from probagg.aggregation import critical_m as critical_m
    from probagg.app.run.pipeline import cluster as cluster
    from probagg.app.run.run import Run as Run
    from probagg.app.run.run import open_run as open_run
    from probagg.dpac.dpac import DPAC as DPAC
    from probagg.dpac.recipe import Recipe as Recipe
    from probagg.errors import ClusteringWarning as ClusteringWarning
    from probagg.errors import Interrupted as Interrupted
    from probagg.metrics import clustering_accuracy as clustering_accuracy
    from probagg.metrics import evaluate as evaluate
    from probagg.neighbours.spaces import GraphCoordinates as GraphCoordinates
    from probagg.neighbours.spaces import SmoothedRows as SmoothedRows
    from probagg.opa.diagnose import Diagnosis as Diagnosis
    from probagg.opa.diagnose import diagnose as diagnose
    from probagg.opa.head import OPAHead as OPAHead
    from probagg.opa.losses import OPALoss as OPALoss
    from probagg.opa.losses import PACLoss as PACLoss
    from probagg.opa.losses import WeightedContrastiveLoss as WeightedContrastiveLoss
    from probagg.opa.targets import opa_targets as opa_targets
    from probagg.pac.graph_pac import GraphPAC as GraphPAC
    from probagg.pac.n_clusters import select_n_clusters as select_n_clusters
    from probagg.pac.pac import PAC as PAC

__version__ = "0.1.0"

# The public names of each module.
_PUBLIC = {
    "aggregation": "Moments aggregate critical_m",
    "app.run.pipeline": "cluster",
    "app.run.run": "Run open_run",
    "dpac.dpac": "DPAC",
    "dpac.recipe": "Recipe",
    "errors": "ClusteringWarning Interrupted",
    "metrics": "clustering_accuracy evaluate",
    "neighbours.spaces": "GraphCoordinates SmoothedRows",
    "opa.diagnose": "Diagnosis diagnose",
    "opa.head": "OPAHead",
    "opa.losses": "OPALoss PACLoss WeightedContrastiveLoss",
    "opa.targets": "opa_targets",
    "pac.graph_pac": "GraphPAC",
    "pac.n_clusters": "select_n_clusters",
    "pac.pac": "PAC",
}
_HOMES = {name: f"probagg.{home}" for home, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_HOMES)


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
