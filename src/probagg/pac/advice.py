"""What to tell the user of a run that did not go well."""

from __future__ import annotations

import numpy as np

from probagg.pac.sweeps import Run


def problems(
    run: Run,
    labels: np.ndarray,
    *,
    n_clusters: int,
    m: float,
    critical_m: float,
    max_iter: int,
    tol: float,
) -> list[str]:
    """What went wrong, each with what to do; the cause hides its consequences."""
    if critical_m == 1.0:
        return ["All samples are alike: there is nothing to cluster. Check the data."]
    if m >= critical_m:
        return [
            f"m={m:.4g} is at or above the critical value {critical_m:.4g} of this data: uniform "
            "probabilities are stable there, and no cluster can form from them. Lower m below it "
            "(the paper uses 1.03) or pass m='auto'."
        ]
    if run.departure < 1e-6:
        return [
            "P never left uniform: its columns were equal from the start. Pass an init with some "
            "noise, or init='uniform'."
        ]
    found = []
    if not run.converged:
        found.append(
            f"PAC still changed after max_iter={max_iter} sweeps. Raise max_iter, or tol (now "
            f"{tol:g})."
        )
    empty = n_clusters - len(np.unique(labels))
    if empty:
        found.append(
            f"{empty} of {n_clusters} clusters lost all their samples. Ask for fewer clusters or "
            "lower m; fewer distinct rows than clusters also cause this."
        )
    return found
