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
    from probagg.metrics import clustering_accuracy
    from probagg.pac.estimator import PAC

__version__ = "0.1.0"

__all__ = ["PAC", "Moments", "clustering_accuracy", "critical_m"]

_HOMES = {
    "PAC": "probagg.pac.estimator",
    "Moments": "probagg.aggregation",
    "critical_m": "probagg.aggregation",
    "clustering_accuracy": "probagg.metrics",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562): unused parts cost nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'probagg' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
