"""Advice for a user whose fit did not go well."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import ConvergenceWarning

from probagg.errors import ClusteringWarning
from probagg.pac.balance import gain_of_kmeans
from probagg.pac.solver import Solution

TINY = 0.05  # times the mean size of a cluster
FORCED = 0.1  # gain in the agreement of neighbours; up to 0.07 on sets of equal classes


def advise(solution: Solution, X: Any) -> list[tuple[str, type[Warning]]]:
    """Return what a user should know about the clusters of X, each with its kind of warning."""
    found = problems(solution)
    if found:
        return [(problem, ConvergenceWarning) for problem in found]
    problem = uneven_sizes(solution)
    if problem is None and (gain := gain_of_kmeans(solution, X, FORCED)):
        problem = forced_sizes(gain)
    return [(problem, ClusteringWarning)] if problem else []


def problems(solution: Solution) -> list[str]:
    """Return what went wrong, each with what to do; consequences of a cause are left out."""
    solver, m, critical_m = solution.solver, solution.update.m, solution.critical_m
    if critical_m == 1.0:
        return ["All samples are the same: there is nothing to cluster. Check the data."]
    if m >= critical_m:
        return [
            f"m={m:.4g} is at or above the critical value {critical_m:.4g} of this data: uniform "
            "probabilities are stable there, and no cluster can form. Lower m below it (the paper "
            "uses 1.03) or pass m='auto'."
        ]
    if solution.departure < 1e-6:
        return [
            "All probabilities are still equal. If the columns of init are equal, pass an init "
            "with some noise, or init='uniform'. If m is just below the critical value "
            f"{critical_m:.4g}, lower m or raise max_iter."
        ]
    found = []
    if not solution.converged:
        found.append(
            f"PAC still changed after max_iter={solver.max_iter} sweeps. Raise max_iter, or tol "
            f"(now {solver.tol:g})."
        )
    n_empty = int((solution.sizes < 0.5).sum())
    if n_empty:
        found.append(
            f"{n_empty} of {solver.n_clusters} clusters lost all their samples. Use fewer "
            "clusters or lower m; fewer distinct rows than clusters also cause this."
        )
    return found


def uneven_sizes(solution: Solution) -> str | None:
    """Return advice where many clusters are tiny beside the others, which outliers cause."""
    sizes, K = solution.sizes, solution.solver.n_clusters
    tiny = int((sizes < TINY * sizes.mean()).sum())
    if sizes.sum() < 100 * K or tiny < max(2, K / 4):
        return None
    balance = solution.update.balance
    raise_it = f", raise balance (now {balance:g}; the paper's is 1)" if balance < 1.0 else ""
    return (
        f"{tiny} of {K} clusters have less than {100 * TINY:.0f} % of the mean size, the largest "
        f"has {100 * sizes.max() / sizes.sum():.0f} % of the samples: the small ones may be "
        f"outliers. Use fewer clusters, scale the columns alike or leave outliers out{raise_it}."
    )


def forced_sizes(gain: float) -> str:
    """Return advice where clusters of equal size cut through dense groups."""
    return (
        "Clusters of about equal size do not fit these samples: in k-means' clusters the nearest "
        f"neighbours of a sample have its label more often (by {gain:.2f}, corrected for chance). "
        "Pass balance='auto', which chooses."
    )
