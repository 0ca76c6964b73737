"""probagg: clustering by probability aggregation (PAC, OPA, DPAC).

>>> from probagg import PAC
>>> PAC(n_clusters=3)
PAC(n_clusters=3)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probagg.aggregation import Moments, critical_m
    from probagg.dpac.estimator import DPAC
    from probagg.dpac.recipe import Recipe
    from probagg.metrics import clustering_accuracy
    from probagg.opa.diagnose import diagnose
    from probagg.opa.functional import opa_targets
    from probagg.opa.head import OPAHead
    from probagg.opa.losses import OPALoss, PACLoss, WeightedContrastiveLoss
    from probagg.pac.estimator import PAC
    from probagg.pac.select import select_n_clusters

__version__ = "0.1.0"

__all__ = [
    "DPAC",
    "PAC",
    "Moments",
    "OPAHead",
    "OPALoss",
    "PACLoss",
    "Recipe",
    "WeightedContrastiveLoss",
    "clustering_accuracy",
    "critical_m",
    "diagnose",
    "opa_targets",
    "select_n_clusters",
]

_HOMES = {
    "PAC": "probagg.pac.estimator",
    "select_n_clusters": "probagg.pac.select",
    "Moments": "probagg.aggregation",
    "critical_m": "probagg.aggregation",
    "clustering_accuracy": "probagg.metrics",
    "opa_targets": "probagg.opa.functional",
    "OPALoss": "probagg.opa.losses",
    "PACLoss": "probagg.opa.losses",
    "WeightedContrastiveLoss": "probagg.opa.losses",
    "OPAHead": "probagg.opa.head",
    "diagnose": "probagg.opa.diagnose",
    "DPAC": "probagg.dpac.estimator",
    "Recipe": "probagg.dpac.recipe",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562): unused parts cost nothing."""
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
