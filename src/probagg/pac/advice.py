"""Advice for a user whose fit did not go well."""

from __future__ import annotations

from probagg.pac.solver import Solution


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
    if solution.n_empty:
        found.append(
            f"{solution.n_empty} of {solver.n_clusters} clusters lost all their samples. Use fewer "
            "clusters or lower m; fewer distinct rows than clusters also cause this."
        )
    return found
