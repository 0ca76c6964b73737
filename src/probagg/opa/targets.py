"""Section 3.4 and Eqs. 9 to 13 as pure functions of a batch.

All of them compute in float32 (float64 for float64 input), also under autocast: at m = 1.03 a
relative error of 1 % in a score is 40 % in a target. Where `torch.set_float32_matmul_precision` has
reduced the precision of float32 products, scores are computed in float64.
"""

import torch
from torch import Tensor

from probagg.aggregation import Moments, aggregate, assign, check_balance, check_m, embed
from probagg.errors import InputError
from probagg.known import with_known
from probagg.opa.processes import first_row, gather_rows, sum_over_processes

GATE_FLOOR = 1e-12  # of Eq. 11's denominator, for a row whose negatives all have weight 0


def opa_targets(
    features: Tensor,
    probs: Tensor,
    *,
    m: float = 1.03,
    metric: str = "cosine",
    balance: float = 1.0,
    gather: bool = False,
    known_labels: Tensor | None = None,
) -> Tensor:
    """Return targets Q (B, K): scores S = D P of the batch (Eq. 9), normalised as in Eq. 8.

    `features` is (B, D) and `probs` (B, K); the other parameters are those of
    :class:`probagg.OPALoss`. Rows with a known label have it in P and in Q. Q carries no gradient.

    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> probs = torch.tensor([[0.6, 0.4], [0.5, 0.5], [0.5, 0.5], [0.4, 0.6]])
    >>> opa_targets(features, probs).argmax(1)
    tensor([0, 0, 1, 1])
    """
    check_m(m)
    check_balance(balance)
    check_batch(features, probs)
    with torch.no_grad(), full_precision(features):
        P = with_known(as_float(probs), known_labels)
        return with_known(assign(_scores(features, P, metric, balance, gather)[0], m), known_labels)


def pac_objective(
    features: Tensor,
    probs: Tensor,
    *,
    metric: str = "cosine",
    balance: float = 1.0,
    detach: bool = True,
    gather: bool = False,
) -> Tensor:
    """Return the part p_i . s_i / B of each row in Tr(P^T D P) / B (Eqs. 1, 2), shape (B,).

    The term of Eq. 13 is their sum. With another `balance` a score is multiplied by the power
    balance - 1 of the cluster's share of the B rows. With `detach` the distances carry no gradient:
    it would pull all features together.
    """
    check_balance(balance)
    check_batch(features, probs)
    with full_precision(features):
        features = features.detach() if detach else features
        P = as_float(probs)
        S, n_rows = _scores(features, P, metric, balance, gather)
        return (P * S).sum(1) / n_rows**balance


def weighted_contrastive(
    z1: Tensor,
    z2: Tensor,
    probs: Tensor | None = None,
    *,
    temperature: float = 0.5,
    detach: bool = True,
    gather: bool = False,
) -> Tensor:
    """Return Eq. 11 of each row, averaged over both orders of the views, shape (B,).

    z1 and z2 are normalised here. The gate w_ij = 1 - p_i . p_j removes pairs of the same cluster
    from the denominator; it carries no gradient unless `detach=False`, which pulls everything into
    one cluster. `probs=None` is a gate of ones: plain NT-Xent. (Uniform probabilities only add the
    constant log(1 - 1/K) to it.)
    """
    if z1.shape != z2.shape or z1.dim() != 2:
        raise InputError(
            f"z1 has shape {tuple(z1.shape)} and z2 {tuple(z2.shape)}, but the same (rows, "
            "dimensions) is needed. Pass the projections of two views of the same rows."
        )
    if probs is not None:
        check_batch(z1, probs)
    with full_precision(z1):
        z1, z2 = _unit(as_float(z1)), _unit(as_float(z2))
        log_gate = None
        if probs is not None:
            P = as_float(probs.detach() if detach else probs)
            all_P = gather_rows(P) if gather else P
            gate = 1.0 - P @ all_P.T
            log_gate = torch.where(gate > 0.0, gate, 1.0).log()
            log_gate = log_gate.masked_fill(gate <= 0.0, -torch.inf)
        all_1, all_2 = (gather_rows(z1), gather_rows(z2)) if gather else (z1, z2)
        first = first_row(z1) if gather else 0
        one = _contrast(z1, z2, all_1, all_2, log_gate, temperature, first)
        two = _contrast(z2, z1, all_2, all_1, log_gate, temperature, first)
        return (one + two) / 2.0


def _unit(z: Tensor) -> Tensor:
    """Return rows of length 1. A zero row stays zero, without a gradient, which would overflow."""
    largest = z.detach().abs().amax(1, keepdim=True)
    z = z / torch.where(largest > 0.0, largest, torch.inf)
    squares = (z * z).sum(1, keepdim=True)
    return z * torch.where(squares > 0.0, squares, 1.0).rsqrt()


def _contrast(
    anchors: Tensor,
    positives: Tensor,
    same_view: Tensor,
    other_view: Tensor,
    log_gate: Tensor | None,
    temperature: float,
    first: int,
) -> Tensor:
    """Return -log of the fraction in Eq. 11 per anchor; `first` is the first anchor's column."""
    same, other = anchors @ same_view.T / temperature, anchors @ other_view.T / temperature
    if log_gate is not None:
        same, other = same + log_gate, other + log_gate
    rows = torch.arange(len(anchors), device=anchors.device)
    itself = rows[:, None] + first == torch.arange(len(same_view), device=anchors.device)
    same = same.masked_fill(itself, -torch.inf)
    floor = torch.full_like(same[:, :1], GATE_FLOOR).log()
    denominator = torch.logsumexp(torch.cat([same, other, floor], dim=1), dim=1)
    return denominator - (anchors * positives).sum(1) / temperature


def _scores(
    features: Tensor, P: Tensor, metric: str, balance: float, gather: bool
) -> tuple[Tensor, Tensor]:
    """Return S = D P (Eq. 9) by way of moments, which add up over processes, and the row count.

    Rows are centred first: the linear form would lose the digits of features in a narrow cone.
    """
    X = as_float(features)
    dtype = X.dtype
    if _products_are_coarse() and X.device.type != "mps":  # which has no float64
        X, P = X.double(), P.double()
    X = embed(X, metric)
    totals = torch.cat([X.detach().sum(0), X.detach().new_full((1,), len(X))])
    totals = sum_over_processes(totals) if gather else totals
    count, size = totals[-1], (X.detach() ** 2).mean()
    X = X - totals[:-1] / count
    moments = Moments.of(X, P)
    if gather:
        moments = Moments.of_sums(sum_over_processes(moments.sums))
    S = aggregate(X, moments, balance=balance)
    # Scores of identical rows are rounding errors and become zero. NaN stays NaN.
    rounding = torch.finfo(dtype).eps ** 2 * count * size
    return torch.where(rounding >= S, torch.zeros_like(S), S).to(dtype), count.to(dtype)


@torch.compiler.assume_constant_result
def _products_are_coarse() -> bool:
    """Return whether float32 products may use TF32 or bfloat16, on CUDA or on the CPU."""
    return torch.get_float32_matmul_precision() != "highest"


def check_batch(features: Tensor, probs: Tensor) -> None:
    """Raise an error if the shapes do not match. Reading values would wait for the device."""
    if features.dim() != 2 or probs.dim() != 2 or len(features) != len(probs):
        raise InputError(
            f"features have shape {tuple(features.shape)} and logits or probabilities "
            f"{tuple(probs.shape)}, but (rows, dimensions) and (rows, clusters) of the same rows "
            "are needed. Flatten or pool feature maps first."
        )


def as_float(tensor: Tensor) -> Tensor:
    """Return a tensor as float32; float64 stays."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def full_precision(tensor: Tensor) -> torch.autocast:
    """Return a context without autocast on the tensor's device."""
    return torch.autocast(tensor.device.type, enabled=False)
