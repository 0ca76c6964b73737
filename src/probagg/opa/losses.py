"""The losses as modules: each is a function of `targets` and a reduction.

All of them take logits, the functions take probabilities. None grows with the batch.
"""

import inspect

import torch.nn.functional as F
from torch import Tensor, nn

from probagg.aggregation import check_balance, check_m, check_metric
from probagg.errors import InputError
from probagg.opa.targets import (
    as_float,
    full_precision,
    opa_targets,
    pac_objective,
    weighted_contrastive,
)


class _Loss(nn.Module):
    def __init__(self, reduction: str) -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise InputError(f"reduction is {reduction!r}. Use 'mean', 'sum' or 'none'.")
        self.reduction = reduction

    def _reduce(self, rows: Tensor) -> Tensor:
        """Return the loss of a batch; that of an empty one is 0 and has no gradient."""
        if self.reduction == "none":
            return rows
        return rows.mean() if self.reduction == "mean" and len(rows) else rows.sum()

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        names = list(inspect.signature(type(self)).parameters)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names if name != "reduction")


class OPALoss(_Loss):
    """KL(Q || P) with targets Q from online probability aggregation (Eqs. 9, 10, Algorithm 2).

    Targets are computed from `features` and `logits` and carry no gradient. The predictions P are
    the softmax of `logits` or, if given, of `student_logits`, those of another view of the same
    rows. The loss is the mean over the batch, as in Algorithm 2; Eq. 10 has a sum. Use batches of
    at least 25, better 50 rows per cluster: targets of smaller ones are noisy.

    Parameters
    ----------
    m : float > 1, default=1.03
        The exponent that controls how hard the targets are; it must be below the critical m of the
        features (`critical_m(features, metric)`).
    metric : {"cosine", "sqeuclidean"}, default="cosine"
        The distance between features.
    balance : float in [0, 2], default=1.0
        The exponent of a cluster's mass in its score: 1 prefers clusters of equal size, 0 does not.
    gather : bool, default=False
        Whether to compute targets from the batches of all processes of `torch.distributed`.
    reduction : {"mean", "sum", "none"}, default="mean"
        How the losses of the rows are reduced.

    Examples
    --------
    >>> import torch
    >>> from probagg import OPALoss
    >>> features = torch.eye(4).repeat(8, 1)
    >>> logits = torch.randn(32, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    >>> OPALoss(m=1.03)(features, logits).backward()
    """

    def __init__(
        self,
        m: float = 1.03,
        *,
        metric: str = "cosine",
        balance: float = 1.0,
        gather: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        check_m(m)
        check_metric(metric)
        check_balance(balance)
        self.m, self.metric, self.balance, self.gather = m, metric, balance, gather

    def forward(
        self,
        features: Tensor,
        logits: Tensor,
        student_logits: Tensor | None = None,
        known_labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of features (B, D) and logits (B, K).

        The target of a row in `known_labels` (B,) is its cluster; -1 is unknown.
        """
        with full_precision(logits):
            Q = opa_targets(
                features,
                as_float(logits.detach()).softmax(-1),
                m=self.m,
                metric=self.metric,
                balance=self.balance,
                gather=self.gather,
                known_labels=known_labels,
            )
            student = as_float(logits if student_logits is None else student_logits)
            if student.shape != Q.shape:
                raise InputError(
                    f"student_logits have shape {tuple(student.shape)}, but the targets have "
                    f"{tuple(Q.shape)}. Pass another view's logits of the same rows and clusters."
                )
            return self._reduce(F.kl_div(student.log_softmax(1), Q, reduction="none").sum(1))


class PACLoss(_Loss):
    """PAC's objective of a batch, Tr(P^T D P) / B^2: the mean over pairs of rows.

    The second term of Eq. 13 is B times this, and so grows with the batch.

    Parameters
    ----------
    metric : {"cosine", "sqeuclidean"}, default="cosine"
        The distance between features.
    balance : float in [0, 2], default=1.0
        The exponent of a cluster's share of the batch in its score: 1 prefers clusters of equal
        size, 0 does not (twice the objective of k-means).
    detach : bool, default=True
        Whether to stop the gradient of the distances. It would pull all features together.
    gather : bool, default=False
        Whether to compute scores from the batches of all processes of `torch.distributed`.
    reduction : {"mean", "sum", "none"}, default="mean"
        How the losses of the rows are reduced.

    Examples
    --------
    >>> import torch
    >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> PACLoss()(features, torch.tensor([[9.0, 0.0], [0.0, 9.0]])).item() < 0.01
    True
    """

    def __init__(
        self,
        *,
        metric: str = "cosine",
        balance: float = 1.0,
        detach: bool = True,
        gather: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        check_metric(metric)
        check_balance(balance)
        self.metric, self.balance, self.detach, self.gather = metric, balance, detach, gather

    def forward(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return the loss of features (B, D) and logits (B, K): the parts of the rows, reduced."""
        with full_precision(logits):
            rows = pac_objective(
                features,
                as_float(logits).softmax(-1),
                metric=self.metric,
                balance=self.balance,
                detach=self.detach,
                gather=self.gather,
            )
        return self._reduce(rows)


class WeightedContrastiveLoss(_Loss):
    """Contrastive loss whose negatives are weighted by 1 - p_i . p_j (Eq. 11).

    Without `logits` all weights are 1, which is NT-Xent. The loss is averaged over the batch and
    both orders of the views.

    Parameters
    ----------
    temperature : float > 0, default=0.5
        The divisor of the cosine similarities.
    detach : bool, default=True
        Whether to stop the gradient of the weights. It would pull all rows into one cluster.
    gather : bool, default=False
        Whether to take negatives from the batches of all processes of `torch.distributed`.
    reduction : {"mean", "sum", "none"}, default="mean"
        How the losses of the rows are reduced.

    Examples
    --------
    >>> import torch
    >>> z = torch.eye(4)
    >>> loss = WeightedContrastiveLoss(temperature=0.5)
    >>> bool(loss(z, z) < loss(z, z.flip(0)))
    True
    """

    def __init__(
        self,
        temperature: float = 0.5,
        *,
        detach: bool = True,
        gather: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        if not temperature > 0.0:
            raise InputError(f"temperature is {temperature}, but must be positive. Try 0.5.")
        self.temperature, self.detach, self.gather = temperature, detach, gather

    def forward(self, z1: Tensor, z2: Tensor, logits: Tensor | None = None) -> Tensor:
        """Return the loss of projections z1, z2 (B, D) and logits (B, K)."""
        with full_precision(z1):
            rows = weighted_contrastive(
                z1,
                z2,
                None if logits is None else as_float(logits).softmax(-1),
                temperature=self.temperature,
                detach=self.detach,
                gather=self.gather,
            )
        return self._reduce(rows)
