"""A diagnosis without labels of a batch or a data set: whether it clusters, and if not, why."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from probagg.aggregation import Moments, aggregate, critical_m
from probagg.errors import ClusteringWarning, InputError, warn_user
from probagg.opa.targets import as_float, check_batch, full_precision, opa_targets


@dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`: label-free measures of a batch, its state, and what to change.

    Attributes
    ----------
    critical_m : float
        The critical m of the features; clusters form only below it.
    sharpness : float
        The mean over rows of the largest probability: 1/K is uniform, 1 is hard.
    evenness : float
        The entropy of the mean assignment divided by log K: 0 is one cluster, 1 is even.
    smallest, largest : float
        The shares of rows in the smallest and in the largest cluster, by argmax.
    agreement : float
        The share of rows whose target and prediction have the same argmax.
    stability : float
        The share of rows whose targets from one half and from the other have the same argmax: low
        where a batch has too few rows per cluster.
    state : str
        "clustering", "uniform", "one cluster", "empty clusters", "noisy targets" or "undecided".
    advice : str
        What to change; empty while clustering.
    """

    critical_m: float
    sharpness: float
    evenness: float
    smallest: float
    largest: float
    agreement: float
    stability: float
    state: str
    advice: str


@torch.no_grad()
def diagnose(
    features: Tensor,
    probs: Tensor,
    m: float = 1.03,
    *,
    metric: str = "cosine",
    balance: float = 1.0,
    warn: bool = True,
) -> Diagnosis:
    """Return a diagnosis of a batch, computed without labels, and warn if it does not cluster.

    `features` and `probs` are tensors or arrays of shapes (rows, dimensions) and (rows, clusters);
    `m`, `metric` and `balance` are those of the loss. `warn=False` returns without a warning.

    >>> features = torch.eye(4).repeat(25, 1)
    >>> diagnose(features, torch.eye(4).repeat(25, 1)).state
    'clustering'
    >>> diagnose(features, torch.full((100, 4), 0.25), warn=False).state
    'uniform'
    """
    features, probs = torch.as_tensor(features), torch.as_tensor(probs)
    check_batch(features, probs)
    if not len(probs):
        raise InputError("The batch has no rows. Pass the features and probabilities of some.")
    if not (torch.isfinite(features).all() and torch.isfinite(probs).all()):
        raise InputError(
            "The features or probabilities contain NaN or infinity: training has diverged. Lower "
            "the learning rate, clip gradients, or look for such values in the data."
        )
    with full_precision(features):
        X, P = as_float(features), as_float(probs)
        N, K = P.shape
        if P.min() < 0.0 or (P.sum(1) - 1.0).abs().max() > 0.01:  # bfloat16 rounds sums
            raise InputError(
                f"probs has values from {P.min():.3g} to {P.max():.3g}, but rows of probabilities "
                "that sum to 1 are needed. Pass logits.softmax(1)."
            )
        Q = opa_targets(X, P, m=m, metric=metric, balance=balance)
        threshold = critical_m(X, metric)
        labels = P.argmax(1)
        shares = torch.bincount(labels, minlength=K) / N
        mean = P.mean(0)
        entropy = -(mean * mean.clamp(min=1e-12).log()).sum()
        sharpness = float(P.amax(1).mean())
        evenness = float(entropy) / float(torch.log(torch.tensor(float(K)))) if K > 1 else 1.0
        agreement = float((Q.argmax(1) == labels).float().mean())
        order = torch.randperm(N, generator=torch.Generator().manual_seed(0)).to(X.device)
        moments = [Moments.of(X[half], P[half], metric) for half in order.tensor_split(2)]
        one, other = (aggregate(X, half, metric, balance).argmin(1) for half in moments)
        stability = float((one == other).float().mean())
    smallest, largest = float(shares.min()), float(shares.max())
    found = Diagnosis(
        threshold, sharpness, evenness, smallest, largest, agreement, stability, "", ""
    )
    state, advice = _interpret(found, m, N, K)
    if warn and advice:
        warn_user(f"{state}: {advice}", ClusteringWarning)
    return replace(found, state=state, advice=advice)


def _interpret(found: Diagnosis, m: float, N: int, K: int) -> tuple[str, str]:
    """Return the state and what to change, by the most likely cause."""
    threshold = found.critical_m
    if K > 1 and found.sharpness < 1.0 / K + 0.1 * (1.0 - 1.0 / K):
        if threshold < 1.001:
            return "uniform", (
                "probabilities are near 1/K, and the features do not differ enough to cluster at "
                "any m. They have collapsed: train the encoder with a loss that keeps them apart."
            )
        if m >= threshold:
            return "uniform", (
                f"probabilities are near 1/K, and m={m:g} is at or above the critical value "
                f"{threshold:.4f} of these features, where they stay uniform. Lower m below it."
            )
        return "uniform", (
            f"probabilities are near 1/K although m={m:g} is below the critical value "
            f"{threshold:.4f}. Train longer; if this persists, lower m, raise the batch size or "
            "the classifier's learning rate, and remove any term that rewards even assignments."
        )
    if K > 1 and found.largest > 0.95 and N >= 2 * K:
        return "one cluster", (
            f"{100 * found.largest:.0f} % of the rows are in one cluster. If the data has more: "
            "detach the gate and the distances, lower the learning rate, and check that features "
            "differ between rows."
        )
    if found.smallest == 0.0 and N >= 5 * K:
        return "empty clusters", (
            f"at least one of {K} clusters has none of {N} rows. Use fewer clusters or larger "
            "batches, or initialise the classifier again."
        )
    if found.stability < 0.3:
        return "noisy targets", (
            f"targets from one half of the {N} rows and from the other agree on "
            f"{100 * found.stability:.0f} %: the masses of {K} clusters vary too much between "
            "batches of this size. Use at least 25 rows per cluster, or PACLoss."
        )
    if found.agreement < 0.5:
        return "undecided", (
            f"targets and predictions agree on {100 * found.agreement:.0f} % of the rows. Train "
            "longer; if this persists, the targets are noise: use larger batches (50 rows or more "
            "per cluster) or a lower learning rate."
        )
    return "clustering", ""
