"""PAC: cluster a matrix (section 3.3 of the paper)."""

from probagg.pac.estimator import PAC

__all__ = ["PAC"]
